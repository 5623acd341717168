"""Conditions on now(): rows that come and leave as time passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from ..expressions.kinds import spark_name
from ..expressions.literals import length_us
from ..expressions.nodes import Expression, fields
from ..expressions.scalars import unwrapped
from ..expressions.types import call
from ..operators.relations.plan.bounds import never_changes
from ..operators.relations.plan.nodes import Lifetime
from .scalars import Scalars
from .scope import Context, Scope, is_outer
from .sources import From

_NOW = {"NOW", "CURRENT_TIMESTAMP"}
_COMPARISONS: dict[type[exp.Expr], str] = {exp.GT: "gt", exp.GTE: "ge", exp.LT: "lt", exp.LTE: "le"}
_FLIPPED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}


class Lifetimes:
    """The conditions of a WHERE that compare a time with now()."""

    def __init__(self, context: Context, scope: Scope) -> None:
        self._context = context
        self._scope = scope
        self._begins: list[tuple[Expression, int]] = []
        self._ends: list[tuple[Expression, int]] = []
        self._place: Any = None
        self.plain: list[Expression] = []
        """The parts of ``BETWEEN`` without now()."""

    def take(self, node: exp.Expr) -> bool:
        """Take a condition; return False if it does not compare with now()."""
        node = unwrapped(node)
        parts = [(node.this, _COMPARISONS[type(node)], node.expression)] if type(node) in _COMPARISONS else []
        if isinstance(node, exp.Between):
            parts = [(node.this, "ge", node.args["low"]), (node.this, "le", node.args["high"])]
        found = [(*each, self._after_now(each[0]), self._after_now(each[2])) for each in parts]
        if all((one is None) == (other is None) for *_, one, other in found):
            return False
        for left, function, right, one, other in found:
            if one is not None:
                self._add(right, _FLIPPED[function], one)
            elif other is not None:
                self._add(left, function, other)
            else:
                self.plain.append(call(function, [self._bound(left), self._bound(right)]))
        self._place = self._place or node
        return True

    def over(self, source: From) -> From:
        """Return the rows of FROM while the conditions hold; they are a relation, which rows leave."""
        if not self._begins and not self._ends:
            return source
        if not self._ends:
            raise self._context.text.error(
                self._place,
                "rows would come with time and never leave",
                hint="give the time at which they leave too: t > now() - INTERVAL '1' HOUR",
            )
        if never_changes(source.relation):
            raise self._context.text.error(
                self._place, "no stream is there by whose time rows could leave", hint="join with a stream"
            )
        made = self._context.noted(Lifetime(source.relation, tuple(self._begins), tuple(self._ends)), self._place)
        return replace(source, relation=made, bare=None, streams=False)

    def _bound(self, node: exp.Expr) -> Expression:
        return Scalars(self._context.text, self._scope, where="in WHERE").bind(node)

    def _after_now(self, node: exp.Expr) -> int | None:
        """Return by how many µs a moment is after now(); None for others."""
        node = unwrapped(node)
        if isinstance(node, exp.Anonymous):
            return 0 if node.this.upper() in _NOW and not node.expressions else None
        if isinstance(node, exp.Column):
            word = not node.text("table") and node.name.upper() == "CURRENT_TIMESTAMP"
            return 0 if word and not self._scope.has(node.name) else None
        interval = unwrapped(node.expression) if isinstance(node, exp.Add | exp.Sub) else None
        if not isinstance(interval, exp.Interval):
            return None
        moment = self._after_now(node.this)
        if moment is None:
            return None
        length = length_us(interval, self._context.text, "INTERVAL")
        return moment + (length if isinstance(node, exp.Add) else -length)

    def _add(self, node: exp.Expr, function: str, after: int) -> None:
        time = self._bound(node)
        columns = fields(time)
        if not pa.types.is_timestamp(time.type) or not columns or any(map(is_outer, columns)):
            raise self._context.text.error(
                node,
                f"now() compares with a time of the row, and this is {spark_name(time.type)}",
                expected="a TIMESTAMP column: t > now() - INTERVAL '1' HOUR",
            )
        if function in {"gt", "ge"}:
            self._ends.append((time, -after + (function == "ge")))
        else:
            self._begins.append((time, -after + (function == "lt")))
