"""The language of continuous queries: SQL with windows on streams, bound to relations."""

from .binder import Query as Query
from .binder import bind as bind
from .catalog import Catalog as Catalog
from .explain import explain as explain

__all__ = ["Catalog", "Query", "bind", "explain"]
