"""The language of continuous queries: SQL with windows on streams, bound to relations."""

from .binder import Query, bind
from .catalog import Catalog
from .explain import SharedWith, plan_text

__all__ = ["Catalog", "Query", "SharedWith", "bind", "plan_text"]
