"""The language of continuous queries: SQL with windows on streams, bound to relations."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .binder import Query as Query
    from .binder import bind as bind
    from .catalog import Catalog as Catalog
    from .explain import SharedWith as SharedWith
    from .explain import plan_text as plan_text

__all__ = ["Catalog", "Query", "SharedWith", "bind", "plan_text"]

# Where each name is. The process that follows the registry for Spark reads catalogs, and has no use for a parser.
_MODULES = {"Catalog": "catalog", "Query": "binder", "SharedWith": "explain", "bind": "binder", "plan_text": "explain"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
