"""Continuous queries: many queries over the same streams, which come and go while one job answers them all."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """The package is what ``upstream.queries(…)`` calls, too: its attribute of ``upstream`` has that name."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Open the continuous queries of a checkpoint: see :func:`upstream.api.queries.queries`."""
        return import_module("..api.queries", __name__).queries(*arguments, **named)


sys.modules[__name__].__class__ = _Package
