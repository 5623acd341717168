"""The language of continuous queries: SQL with windows on streams, bound to relations."""

from .binder import Query, ViewQueue, bind
from .catalog import Catalog
from .explain import PlanPart, SharedWith, plan_parts, plan_text

__all__ = ["Catalog", "PlanPart", "Query", "SharedWith", "ViewQueue", "bind", "plan_parts", "plan_text"]
