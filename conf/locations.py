"""Where things lie: local paths made absolute, addresses of object stores as they are."""

from __future__ import annotations

import os
from urllib.parse import unquote

__all__ = ["absolute_location"]


def absolute_location(path: str) -> str:
    """A local path made absolute (tasks may run in another folder); the address of an object store as it is."""
    path = path.strip()
    if path.lower().startswith("file:"):
        return os.path.abspath("/" + unquote(path[5:]).lstrip("/"))
    if "://" in path:
        return path.rstrip("/")
    return os.path.abspath(path)
