"""OVER and QUALIFY: window functions over a relation, aggregates over a stream, and the first rows of each group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as patypes
from sqlglot import exp

from ..conf.errors import SchemaError
from ..expressions.coercion import cast, common
from ..expressions.kinds import spark_name
from ..expressions.literals import count, length_us
from ..expressions.nodes import Constant, Expression, Field, all_of
from ..expressions.places import Text
from ..expressions.scalars import unwrapped
from ..expressions.types import call
from ..operators.relations.plan.aggregates import OTHER_ROWS, RANKS, is_aggregate
from ..operators.relations.plan.nodes import (
    Aggregation,
    Changes,
    Frame,
    GroupAggregates,
    Join,
    Now,
    Order,
    Relation,
    RowWindow,
    Stream,
    TimeRange,
    UnboundedWindow,
    Where,
    Window,
    WindowFunction,
    WindowFunctions,
    WindowOver,
)
from ..operators.relations.plan.normalize import first_rows
from .predicates import terms
from .scalars import Scalars, bound_aggregation, call_of, has_window, read_call, renamed_aggregation
from .scope import Context
from .select_list import orders_of
from .sources import FilteredFrom

_NAMES = {"first": "first_value", "any_value": "first_value", "last": "last_value"}
_AGGREGATES = frozenset(["avg", "count", "max", "min", "sum"])
_ORDERED = "RANK() OVER (PARTITION BY k ORDER BY x)"
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class _Over:
    """A function with OVER, over the expressions of its place in the query."""

    node: exp.Window
    by: tuple[Expression, ...]
    order: tuple[Order, ...]
    function: WindowFunction


class WindowColumns:
    """The columns of the functions with OVER in a SELECT. ``scalars`` binds what is inside of them."""

    def __init__(self, context: Context, scalars: Scalars) -> None:
        self._context = context
        self._scalars = scalars
        self._found: list[_Over] = []

    def read(self, nodes: Sequence[exp.Expr]) -> dict[int, Expression]:
        """Return the column of each function with OVER in some expressions, by its node's id."""
        found: dict[int, Expression] = {}
        for node in nodes:
            for window in _windows(node):
                each = self._read(window)
                same = next((other for other in self._found if _bare(other) == _bare(each)), None)
                if same is None:
                    self._found.append(each)
                call = (same or each).function.call
                found[id(window)] = Field(call.name, call.type)
        return found

    def columns(self) -> list[Field]:
        return [Field(each.function.call.name, each.function.call.type) for each in self._found]

    def joined(self, relation: Relation, above: Callable[[Expression], Expression] = lambda each: each) -> Relation:
        """Return the relation with the columns. ``above`` turns an expression into one over the relation."""
        specs: dict[tuple[tuple[Order, ...], tuple[Expression, ...]], list[_Over]] = {}
        for each in self._found:
            specs.setdefault((each.order, each.by), []).append(each)
        for (order, by), some in specs.items():
            made = WindowFunctions(
                relation,
                tuple(replace(each, expression=above(each.expression)) for each in order),
                tuple(above(each) for each in by),
                tuple(replace(each.function, call=_above(each.function.call, above)) for each in some),
            )
            relation = self._context.noted(made, some[0].node)
        return relation

    def _read(self, node: exp.Window) -> _Over:
        text, scalars = self._context.text, self._scalars
        by = tuple(scalars.bind(each) for each in node.args.get("partition_by") or [])
        order = orders_of(node.args["order"], scalars) if node.args.get("order") is not None else ()
        function = call_of(node)
        where = node.this.expression.this if isinstance(node.this, exp.Filter) else None
        if not isinstance(function, exp.Anonymous):
            raise text.error(node, "this is not a function that OVER takes", expected=_ORDERED)
        name: str = function.this.lower()
        name = _NAMES.get(name, name)
        value = self._context.fresh(name)
        if name in RANKS or name in OTHER_ROWS:
            if where is not None:
                raise text.error(node, f"FILTER is only for aggregates, and {name.upper()} is none")
            if not order:
                raise text.error(node, f"{name.upper()} needs ORDER BY", expected=_ORDERED)
            made = self._placed(node, name, function.expressions, order)
            return _Over(node, by, order, replace(made, call=replace(made.call, name=value)))
        if not is_aggregate(name):
            raise text.error(node, f"{name.upper()} is neither an aggregate nor a window function", expected=_ORDERED)
        if node.this.find(exp.WithinGroup) is not None:
            raise text.error(
                node,
                f"ORDER BY in {name.upper()} OVER (…) is not supported",
                hint="aggregate with GROUP BY in a subquery, and join with it",
            )
        aggregate, _ = bound_aggregation(node, read_call(node, function, text), scalars, where)
        if aggregate.distinct or aggregate.function not in _AGGREGATES:
            what = f"{name.upper()}{'(DISTINCT …)' if aggregate.distinct else ''}"
            raise text.error(
                node,
                f"{what} OVER (…) is not supported",
                expected="SUM, COUNT, AVG, MIN or MAX",
                hint="aggregate with GROUP BY in a subquery, and join with it",
            )
        return _Over(node, by, order, WindowFunction(replace(aggregate, name=value), self._frame(node, order)))

    def _placed(
        self, node: exp.Window, name: str, arguments: Sequence[exp.Expr], order: tuple[Order, ...]
    ) -> WindowFunction:
        """Return a rank or the value of another row, without a name."""
        text, spec = self._context.text, node.args.get("spec")
        if spec is not None and (name in RANKS or name in {"lag", "lead"}):
            raise text.error(spec, f"{name.upper()} takes no frame", hint="leave it out")
        counts = {"ntile": (1,), "lag": (1, 2, 3), "lead": (1, 2, 3), "nth_value": (2,)}
        allowed = counts.get(name, (0,) if name in RANKS else (1,))
        if len(arguments) not in allowed:
            raise text.error(
                node, f"{name.upper()} got {len(arguments)} arguments", expected=" or ".join(map(str, allowed))
            )
        if name in RANKS:
            buckets = count(arguments[0], text, "NTILE of") if name == "ntile" else 0
            return WindowFunction(Aggregation("", name, (), RANKS[name]), number=buckets)
        value = self._scalars.bind(arguments[0])
        if name not in {"lag", "lead"}:
            number = count(arguments[1], text, "NTH_VALUE of") if name == "nth_value" else 0
            return WindowFunction(Aggregation("", name, (value,), value.type), self._frame(node, order), number)
        number = count(arguments[1], text, name.upper(), least=0) if len(arguments) > 1 else 1
        given = [value]
        if len(arguments) == 3:
            given.append(self._default(arguments[2], name, value.type))
        return WindowFunction(Aggregation("", name, tuple(given), value.type), number=number)

    def _default(self, node: exp.Expr, name: str, kind: pa.DataType) -> Expression:
        bound = self._scalars.bind(node)
        try:
            fits = common([bound.type, kind]) == kind
        except SchemaError:
            fits = False
        if not fits:
            raise self._context.text.error(
                node,
                f"the default of {name.upper()} is {spark_name(bound.type)}",
                expected=spark_name(kind),
                hint=f"cast it: CAST(… AS {spark_name(kind)})",
            )
        return bound if bound.type == kind else cast(bound, kind)

    def _frame(self, node: exp.Window, order: tuple[Order, ...]) -> Frame:
        spec, text = node.args.get("spec"), self._context.text
        if spec is None:
            return Frame(end=0 if order else None)
        kind: Literal["rows", "range"] = "rows" if spec.args["kind"] == "ROWS" else "range"
        start = self._bound(spec, "start", kind, order)
        end = self._bound(spec, "end", kind, order)
        if not order and (start, end) != (None, None):
            raise text.error(spec, "a frame needs ORDER BY", hint="write ORDER BY, or leave the frame out")
        if start is not None and end is not None and start > end:
            raise text.error(spec, "this frame ends before it begins")
        return Frame("range" if start is None and end is None else kind, start, end)

    def _bound(self, spec: exp.Expr, name: str, kind: str, order: tuple[Order, ...]) -> int | None:
        """Return the distance of one end of a frame; None if it is unbounded."""
        text, value, side = self._context.text, spec.args[name], spec.args.get(f"{name}_side")
        if value == "CURRENT ROW":
            return 0
        if value == "UNBOUNDED":
            if (side == "PRECEDING") != (name == "start"):
                raise text.error(spec, f"a frame's {name} is not UNBOUNDED {side}")
            return None
        far = count(value, text, "ROWS", least=0) if kind == "rows" else self._distance(value, spec, order)
        return far if side == "FOLLOWING" else -far

    def _distance(self, value: exp.Expr, spec: exp.Expr, order: tuple[Order, ...]) -> int:
        text, kind = self._context.text, order[0].expression.type if len(order) == 1 else None
        if kind is not None and patypes.is_integer(kind) and not isinstance(value, exp.Interval):
            return count(value, text, "RANGE", least=0)
        if kind is not None and patypes.is_timestamp(kind) and isinstance(value, exp.Interval):
            return length_us(value, text, "RANGE")
        if kind is not None and patypes.is_date(kind) and isinstance(value, exp.Interval):
            far = length_us(value, text, "RANGE")
            if far % _DAY_US == 0:
                return far // _DAY_US
        raise text.error(
            spec,
            "this RANGE has no distance in its order",
            expected="one key: a whole number with a number, or a timestamp or a date with an interval",
            hint="count rows: ROWS BETWEEN 9 PRECEDING AND CURRENT ROW",
        )


def _windows(node: exp.Expr) -> Iterator[exp.Window]:
    """Yield the functions with OVER of an expression, but not those of its subqueries or inside of others."""
    if isinstance(node, exp.Window):
        yield node
    elif not isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
        for each in node.iter_expressions():
            yield from _windows(each)


def _bare(each: _Over) -> tuple[object, ...]:
    function = each.function
    return each.by, each.order, replace(function, call=replace(function.call, name=""))


def _above(each: Aggregation, above: Callable[[Expression], Expression]) -> Aggregation:
    where = None if each.where is None else above(each.where)
    return replace(each, arguments=tuple(above(argument) for argument in each.arguments), where=where)


def bind_first(qualify: exp.Expr, filtered: FilteredFrom, context: Context) -> Relation | None:
    """Apply ``QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) <= n``; return None for other conditions."""
    text, scope = context.text, filtered.source.scope
    relation: Relation = filtered.relation
    ranked, others = [], []
    for node in terms(qualify.this):
        (ranked if has_window(node) else others).append(node)
    found = _ranking(ranked[0], context) if len(ranked) == 1 else None
    if found is None:
        return None
    window, n = found
    inner = Scalars(text, scope, where="in OVER")
    by = tuple(inner.bind(each) for each in window.args.get("partition_by") or [])
    order = orders_of(window.args["order"], inner)
    relation = first_rows(relation, order, n, by)
    context.noted(relation, qualify)
    for node in others:
        relation = Where(relation, Scalars(text, scope, where="in QUALIFY").condition(node))
    return relation


def _ranking(node: exp.Expr, context: Context) -> tuple[exp.Window, int] | None:
    if not isinstance(node, exp.EQ | exp.LT | exp.LTE):
        return None
    window, literal = unwrapped(node.this), unwrapped(node.expression)
    if not (isinstance(window, exp.Window) and isinstance(literal, exp.Literal)):
        return None
    function = window.this
    if not isinstance(function, exp.Anonymous) or function.this != "ROW_NUMBER" or function.expressions:
        return None
    if window.args.get("spec") is not None or window.args.get("order") is None:
        return None
    n = count(literal, context.text, "a rank of", least=0) - (1 if isinstance(node, exp.LT) else 0)
    return None if n < 1 or (isinstance(node, exp.EQ) and n != 1) else (window, n)


def of_stream(items: Sequence[exp.Expr], filtered: FilteredFrom) -> bool:
    """Return whether some expressions have aggregates over a stream alone, and no other function with OVER."""
    windows = [each for item in items for each in _windows(item)]
    functions = [call_of(each) for each in windows]
    names = [each.this.lower() if isinstance(each, exp.Anonymous) else "" for each in functions]
    aggregates = all(is_aggregate(name) and _NAMES.get(name, name) not in OTHER_ROWS for name in names)
    return aggregates and filtered.source.bare is not None and not filtered.joined


_USAGE = "SUM(x) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN INTERVAL '10' MINUTES PRECEDING AND CURRENT ROW)"
_ROWS_USAGE = "SUM(x) OVER (PARTITION BY k ORDER BY t ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"


def bind_over(
    items: Sequence[exp.Expr], filtered: FilteredFrom, context: Context
) -> tuple[Relation, dict[int, Expression]]:
    """Return a stream's rows with their aggregates, which stay, and the column of each ``OVER`` by its node's id."""
    windows = [each for item in items for each in _windows(item)]
    stream = filtered.source.bare
    assert stream is not None
    condition = all_of(list(filtered.conditions))
    source = filtered.source.relation
    assert isinstance(source, WindowOver)

    def rows(window: Window) -> Relation:
        if isinstance(window, RowWindow):  # the condition comes before the cut
            return WindowOver(source.stream, replace(window, where=condition))
        made = WindowOver(source.stream, window)
        return made if condition is None else Where(made, condition)

    relation = rows(Now())
    columns: dict[int, Expression] = {}
    for node in windows:
        by, window = _frame(node, stream, filtered, context)
        scalars = Scalars(context.text, filtered.source.scope, aggregates=True, where="in OVER")
        bound = scalars.bind(node.this)
        names = [context.fresh("group") for _ in by]
        value = context.fresh("over")
        made = renamed_aggregation(scalars.found[0], value)
        groups = GroupAggregates(rows(window), tuple(zip(names, by, strict=True)), (made,))
        pairs = [
            pair
            for name, each in zip(names, by, strict=True)
            for pair in _same(node, each, Field(name, each.type), context)
        ]
        relation = context.noted(Join(relation, groups, "inner", tuple(pairs)), node)
        columns[id(node)] = scalars.above(bound, {}, [value])
    # Each row stays with its aggregates. Without this, a row would vanish that equals one of the microsecond before.
    return context.noted(WindowOver(Changes(relation, "istream"), UnboundedWindow()), windows[0]), columns


def _frame(
    node: exp.Window, stream: Stream, filtered: FilteredFrom, context: Context
) -> tuple[list[Expression], Window]:
    text = context.text
    inner = Scalars(text, filtered.source.scope, where="in OVER")
    by = [inner.bind(each) for each in node.args.get("partition_by") or []]
    order = node.args.get("order")
    time = Field(stream.event_time, stream.schema.field(stream.event_time).type)
    keys = order.expressions if order is not None else []
    if len(keys) != 1 or keys[0].args.get("desc") or inner.bind(keys[0].this) != time:
        raise text.error(
            order or node, f"OVER goes by the event time of '{stream.name}'", expected=f"ORDER BY {stream.event_time}"
        )
    spec = node.args.get("spec")
    if spec is None:
        return by, UnboundedWindow()
    start, side = spec.args["start"], spec.args.get("start_side")
    if spec.args["kind"] == "ROWS":
        return by, _rows(node, spec, by, text)
    if spec.args["end"] != "CURRENT ROW" or side != "PRECEDING":
        raise text.error(spec, "a frame goes from a time before the row to the row", expected=_USAGE)
    if start == "UNBOUNDED":
        return by, UnboundedWindow()
    if not isinstance(start, exp.Interval):
        raise text.error(spec, "this frame has no length of time", expected=_USAGE)
    # A frame holds both of its ends, a window only the later one.
    return by, TimeRange(length_us(start, text, "RANGE") + 1)


def _rows(node: exp.Window, spec: exp.Expr, by: list[Expression], text: Text) -> Window:
    """Return the window of ``ROWS BETWEEN n PRECEDING AND CURRENT ROW``: n + 1 rows with the row itself."""
    start, side = spec.args["start"], spec.args.get("start_side")
    if spec.args["end"] != "CURRENT ROW" or side == "FOLLOWING":
        raise text.error(spec, "a frame goes from rows before the row to the row", expected=_ROWS_USAGE)
    if start == "UNBOUNDED":
        return UnboundedWindow()
    if start == "CURRENT ROW":
        n = 0
    elif isinstance(start, exp.Literal) and not start.is_string:
        n = count(start, text, "ROWS", least=0)
    else:
        raise text.error(spec, "this frame has no number of rows", expected=_ROWS_USAGE)
    columns = [each.name for each in by if isinstance(each, Field)]
    if len(columns) < len(by):
        place = next(at for at, each in zip(node.args["partition_by"], by, strict=True) if not isinstance(each, Field))
        raise text.error(
            place,
            "PARTITION BY of a frame of rows is of columns",
            hint="partition by columns, or by time: RANGE BETWEEN INTERVAL '10' MINUTES PRECEDING AND CURRENT ROW",
        )
    return RowWindow(n + 1, tuple(dict.fromkeys(columns)))


def _same(node: exp.Expr, one: Expression, other: Expression, context: Context) -> list[tuple[Expression, Expression]]:
    """Return pairs that are equal if both values are, or if both are null."""
    nothing = Constant(_some(node, one.type, context), one.type)
    try:
        filled = [call("coalesce", [each, nothing]) for each in (one, other)]
        empty = [call("is_null", [each]) for each in (one, other)]
    except SchemaError as error:
        raise context.text.error(node, error.problem, expected=error.expected, hint=error.hint) from None
    return [(filled[0], filled[1]), (empty[0], empty[1])]


def _some(node: exp.Expr, kind: pa.DataType, context: Context) -> Any:
    if patypes.is_string(kind) or patypes.is_large_string(kind):
        return ""
    if patypes.is_boolean(kind):
        return False
    if patypes.is_integer(kind) or patypes.is_decimal(kind):
        return 0
    if patypes.is_floating(kind):
        return 0.0
    if patypes.is_date(kind):
        return date(1970, 1, 1)
    if patypes.is_timestamp(kind):
        return datetime(1970, 1, 1, tzinfo=timezone.utc if kind.tz else None)
    raise context.text.error(node, f"PARTITION BY of {kind} is not supported", hint="partition by a text or a number")
