"""QUALIFY: the first rows of each group by an order."""

from __future__ import annotations

from sqlglot import exp

from ..expressions.nodes import Field, all_of
from ..relations.nodes import Relation, Top, Where, Windowed
from .context import Context
from .froms import Filtered
from .literals import count
from .predicates import terms
from .results import orders_of
from .scalars import Scalars
from .shapes import has_window, unwrapped
from .sources import newest

__all__ = ["bind_qualify"]


def bind_qualify(select: exp.Select, filtered: Filtered, context: Context) -> Relation:
    """Apply ``QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= n``."""
    qualify = select.args.get("qualify")
    if qualify is None:
        return filtered.relation
    text, scope = context.text, filtered.source.scope
    relation = filtered.relation
    ranked, others = [], []
    for node in terms(qualify.this):
        (ranked if has_window(node) else others).append(node)
    if not ranked:
        raise text.error(qualify, "QUALIFY has no function with OVER", hint="a plain condition belongs into WHERE")
    if len(ranked) > 1:
        raise text.error(ranked[1], "QUALIFY with two functions with OVER is not supported", hint="use a subquery")
    window, n = _ranking(ranked[0], context)
    inner = Scalars(text, scope, where="in OVER")
    by = tuple(inner.bind(each) for each in window.args.get("partition_by") or [])
    order = orders_of(window.args["order"], inner)
    bare = filtered.source.bare
    by_time = (
        len(order) == 1
        and bare is not None
        and order[0].expression == Field(bare.event_time, bare.schema.field(bare.event_time).type)
    )
    if (
        by_time
        and order[0].descending
        and bare is not None
        and not filtered.joined
        and all(isinstance(each, Field) for each in by)
    ):
        # The newest rows of a stream by its event time: the window that CQL has for it.
        where = filtered.conditions
        partition = tuple(each.name for each in by if isinstance(each, Field))

        windowed = filtered.source.relation
        assert isinstance(windowed, Windowed)
        relation = Windowed(windowed.stream, newest(bare, n, partition, all_of(list(where))))
    else:
        relation = Top(relation, order, n, by)
    context.noted(relation, qualify)
    for node in others:
        relation = Where(relation, Scalars(text, scope, where="in QUALIFY").condition(node))
    return relation


def _ranking(node: exp.Expr, context: Context) -> tuple[exp.Window, int]:
    usage = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC) <= n"
    error = context.text.error(node, "this condition on a rank is not supported", expected=usage)
    if not isinstance(node, exp.EQ | exp.LT | exp.LTE):
        raise error
    window, literal = unwrapped(node.this), unwrapped(node.expression)
    if not (isinstance(window, exp.Window) and isinstance(literal, exp.Literal)):
        raise error
    if not isinstance(window.this, exp.Anonymous) or window.this.this != "ROW_NUMBER" or window.this.expressions:
        raise error
    if window.args.get("spec") is not None:
        raise context.text.error(window.args["spec"], "ROW_NUMBER takes no frame")
    if window.args.get("order") is None:
        raise context.text.error(window, "ROW_NUMBER needs ORDER BY", expected=usage)
    n = count(literal, context.text, "a rank of", least=0) - (1 if isinstance(node, exp.LT) else 0)
    if n < 1 or (isinstance(node, exp.EQ) and n != 1):
        raise context.text.error(node, "this keeps no first rows", expected="= 1, or <= n")
    return window, n
