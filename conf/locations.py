"""Where things lie: local paths made absolute, addresses of object stores as they are.

Everything that takes a path from a user goes through here, so that one path means one place to all parts.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from .errors import OptionError

__all__ = ["absolute_location", "checkpoint_location", "is_remote", "local_path", "scheme_of"]

# A word of at least two letters, so that no drive of Windows is one.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
# The stores that the library of the sink reaches, by the names that Hadoop and the library give them.
_STORES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")


def scheme_of(path: str) -> str:
    """Return the scheme of an address in lower case; an empty text for a path, also where ``file:`` precedes it."""
    found = _SCHEME.match(path.strip())
    scheme = found.group(1).lower() if found else ""
    return "" if scheme == "file" else scheme


def is_remote(path: str) -> bool:
    """Return whether an address names something else than a folder or a file that this machine has mounted."""
    return scheme_of(path) != ""


def absolute_location(path: str) -> str:
    """Return a local path as an absolute one (tasks may run in another folder), and an address of a store as it is.

    Raises
    ------
    OptionError
        A ``file:`` address names another machine.
    """
    path = path.strip()
    return path.rstrip("/") if is_remote(path) else local_path(path)


def local_path(path: str) -> str:
    """Return the absolute path that a path or a ``file:`` address names.

    Raises
    ------
    OptionError
        The address names another machine.
    """
    if not path.lower().startswith("file:"):
        return os.path.abspath(path)
    rest = path[5:]
    if rest.startswith("//") and not rest.startswith("///"):
        host, _, below = rest[2:].partition("/")
        if host and host.lower() != "localhost":
            raise OptionError(
                f"the address {path!r} names the machine {host!r}",
                expected="a local path, or an address such as file:///data",
                hint=f"write file:///{host}/{below} if {host!r} is a folder; mount the folder if it is a machine",
            )
        rest = "/" + below
    return os.path.abspath("/" + unquote(rest).lstrip("/"))


def checkpoint_location(path: str) -> str:
    """Return the place of a checkpoint, as :func:`absolute_location` does.

    Raises
    ------
    OptionError
        This package cannot reach the place, or would look elsewhere than Spark.
    """
    scheme = scheme_of(path)
    if scheme and scheme not in _STORES:
        raise OptionError(
            f"the checkpoint {path!r} lies on {scheme}, which this package cannot read",
            expected="a local or mounted folder, or an object store: s3a://bucket/folder, gs://…, abfss://…",
            hint="choose an address in an object store, or mount the file system on every machine and give the path "
            "with file: before it",
        )
    if not scheme and path.strip().lower().startswith("file:") and _ESCAPED.search(path):
        raise OptionError(
            f"the checkpoint {path!r} has escaped characters, which Spark takes literally",
            hint=f"write {local_path(path.strip())!r}",
        )
    return absolute_location(path)
