"""The language of continuous queries: SQL with windows on streams, bound to relations."""

from .binder import Query as Query
from .binder import bind as bind
from .catalog import Catalog as Catalog
from .explain import SharedWith as SharedWith
from .explain import plan_text as plan_text

__all__ = ["Catalog", "Query", "SharedWith", "bind", "plan_text"]
