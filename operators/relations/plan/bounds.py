"""The state of each operator of a plan and its bound; a plan without a bound is refused.

State is bounded by a window, or as one entry per key, group or distinct row, if those do not contain a time. State that
would keep each row of a stream forever is not bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....conf.units import length_text
from ....expressions.kinds import spark_name
from ....expressions.nodes import Call, Expression, Field, fields
from ...aggregates.sketches import sketchable
from . import nodes
from .aggregates import error_of
from .identity import remembered
from .periods import Partners, clock_of_bound, goes_on, latest_of, partners_of, period_of


@dataclass(frozen=True)
class Growth:
    """The known properties of a relation's size over time."""

    grows: bool = False  # Rows come forever and stay.
    retracts: bool = True  # Rows leave.
    static: bool = False  # The relation never changes.
    times: frozenset[str] = frozenset()  # Columns with ever new values, such as an event time.
    # Columns that are an event time: for how many µs after it a row may still come.
    clocks: Mapping[str, int] = field(default_factory=dict[str, int])
    stay: int | None = None  # For how many µs after its time a row may leave; None if unknown.
    source: nodes.Node | None = None  # If it grows: the window that lets no row leave.


def never_changes(node: nodes.Node) -> bool:
    """Return whether a relation reads only stored relations, and so never changes."""
    return all(
        each.static if isinstance(each, nodes.Stream) else not isinstance(each, nodes.Changes | nodes.Lifetime)
        for each in nodes.walk(node)
    )


_PER_VALUE = frozenset(
    [
        *("median", "percentile", "percentile_disc", "approx_percentile", "mode", "collect_list", "collect_set"),
        *("bit_and", "bit_or", "bit_xor", "min_by", "max_by"),
    ]
)


class UnboundedError(Exception):
    """A plan would keep unbounded state at ``node``, because of the window ``source``, whose rows stay."""

    def __init__(self, problem: str, hint: str, node: nodes.Node, source: nodes.Node | None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.node = node
        self.source = source


@dataclass(frozen=True)
class StateBound:
    """The state of an operator.

    ``sides`` are a join's, left and right: "none" if rows are not kept, "all" while they are in their relation, or
    "keys" for a weight per distinct key. A number is for how many µs after a row's time it is kept, and another word
    the column that ends this time.
    """

    node: nodes.Node
    keeps: str  # The state and its bound, for users; "" for none.
    sides: tuple[str | int, ...] = ()


def state_of(plan: nodes.Node) -> tuple[StateBound, ...]:
    """Return each operator's state, after its inputs', for a normalized plan; raise UnboundedError without a bound."""
    growth_of(plan)
    return tuple(state for each in nodes.walk(plan) for state in _bounded(each)[1])


def growth_of(plan: nodes.Node) -> Growth:
    """Return the growth of a plan's result; raise UnboundedError as :func:`state_of` does."""
    return _bounded(plan)[0]


@remembered
def _bounded(node: nodes.Node) -> tuple[Growth, list[StateBound]]:
    """Return the growth of a node, and its own state."""
    states: list[StateBound] = []
    return _growth(node, states), states


def only_grows(node: nodes.Node) -> bool:
    """Return whether rows come forever and none leaves; False for a plan that is refused."""
    try:
        return _only_grows(growth_of(node))
    except UnboundedError:
        return False


def grows(node: nodes.Node) -> bool:
    """Return whether rows come forever and stay; False for a plan that is refused."""
    try:
        return growth_of(node).grows
    except UnboundedError:
        return False


def _only_grows(growth: Growth) -> bool:
    return growth.grows and not growth.retracts


def _names(expressions: Sequence[Expression]) -> str:
    return ", ".join(str(each) for each in expressions)


def _growth(node: nodes.Node, states: list[StateBound]) -> Growth:
    if isinstance(node, nodes.Stream):
        states.append(StateBound(node, ""))
        clocks = {} if node.static else {node.event_time: node.lateness_us}
        return Growth(static=node.static, times=frozenset(clocks), clocks=clocks)
    if isinstance(node, nodes.ConstantRow):
        states.append(StateBound(node, ""))
        return Growth(retracts=False, static=True)
    if isinstance(node, nodes.Join):
        return _join(node, growth_of(node.left), growth_of(node.right), states)
    if isinstance(node, nodes.SetOperation):
        return _set_operation(node, growth_of(node.left), growth_of(node.right), states)
    inner = growth_of(node.inputs[0])
    if isinstance(node, nodes.Sample | nodes.Where):
        states.append(StateBound(node, ""))
        return inner
    if isinstance(node, nodes.WindowOver):
        return _windowed(node, inner, states)
    if isinstance(node, nodes.Lifetime):
        return _lifetime(node, inner, states)
    if isinstance(node, nodes.Explode):
        states.append(StateBound(node, ""))
        clock = clock_of_bound(node.array, inner.clocks)
        clocks = {**inner.clocks, **({} if clock is None else {node.name: clock})}
        times = inner.times | ({node.name} if goes_on(node.array, inner.times) else set())
        return replace(inner, times=times, clocks=clocks)
    if isinstance(node, nodes.Project):
        states.append(StateBound(node, node.state))
        times = frozenset(name for name, each in node.columns if goes_on(each, inner.times))
        found = ((name, clock_of_bound(each, inner.clocks)) for name, each in node.columns)
        clocks = {name: clock for name, clock in found if clock is not None}
        return replace(inner, times=times, clocks=clocks)
    if isinstance(node, nodes.GroupAggregates):
        return _aggregate(node, inner, states)
    if isinstance(node, nodes.Distinct | nodes.Copies):
        columns = tuple(Field(each.name, each.type) for each in node.inputs[0].schema)
        _few(columns, inner, "DISTINCT" if isinstance(node, nodes.Distinct) else "a table of equal rows", node)
        states.append(StateBound(node, f"a weight per distinct ({_names(columns)})"))
        return Growth(grows=False, retracts=inner.retracts, static=inner.static, times=inner.times)
    if isinstance(node, nodes.Top):
        return _top(node, inner, states)
    if isinstance(node, nodes.WindowFunctions):
        return _functions(node, inner, states)
    assert isinstance(node, nodes.Changes)
    if node.kind == "rstream" and inner.grows:
        raise UnboundedError(
            "RSTREAM gives all rows each time, and here they stay for ever",
            "give the stream a window: [RANGE 10 MINUTES]",
            node,
            inner.source,
        )
    states.append(StateBound(node, "all rows of the relation" if node.kind == "rstream" else ""))
    return Growth(times=inner.times, clocks=inner.clocks if node.kind == "istream" else {})


def _windowed(node: nodes.WindowOver, inner: Growth, states: list[StateBound]) -> Growth:
    window = node.window
    if inner.static and isinstance(node.stream, nodes.Stream) and node.stream.static:
        states.append(StateBound(node, f"all rows of {node.stream.name}"))
        return Growth(retracts=False, static=True)
    times = inner.times
    late, stay, bounds = 0, None, dict[str, int]()
    if isinstance(window, nodes.TimeRange):
        late = window.slide_us or 0
        stay = None if window.range_us is None else window.range_us + late
        slide = f", until the next multiple of {length_text(late)}" if late and stay is not None else ""
        states.append(StateBound(node, f"the rows of {length_text(window.range_us or late)}{slide}"))
    elif isinstance(window, nodes.Hop):
        late, stay = window.slide_us + 1, window.size_us + window.slide_us + 1
        states.append(
            StateBound(node, f"the rows of {length_text(window.size_us)} and of {length_text(window.slide_us)} more")
        )
        if window.columns:
            times = times | {"window_start", "window_end"}
            most = max(inner.clocks.values(), default=0)
            bounds = {"window_start": window.size_us + most, "window_end": most}
    elif isinstance(window, nodes.Session):
        _refuse_times(window.partition, inner, node)
        gap = length_text(window.gap_us)
        states.append(StateBound(node, f"the rows of open sessions, and of those that ended in the last {gap}"))
        # A session may be as long as it likes: nothing but its end tells when its rows come.
        return Growth(times=times | {"window_start", "window_end"}, clocks={"window_end": 0})
    elif isinstance(window, nodes.Now):
        stay = 1
        states.append(StateBound(node, "the rows of one instant"))
    elif isinstance(window, nodes.RowWindow):
        _refuse_times(window.partition, inner, node)
        each = f" per ({', '.join(window.partition)})" if window.partition else ""
        n = window.n + window.slide - 1
        states.append(StateBound(node, f"{n} row{'' if n == 1 else 's'}{each}"))
    elif isinstance(window, nodes.Latest):
        assert isinstance(node.origin, nodes.Stream)
        states.append(StateBound(node, f"one row per ({', '.join(node.origin.key)})"))
    else:
        states.append(StateBound(node, ""))
    clocks = {name: lag + late for name, lag in inner.clocks.items()}
    if isinstance(window, nodes.UnboundedWindow) or (isinstance(window, nodes.TimeRange) and stay is None):
        return Growth(grows=True, retracts=False, times=times, clocks=clocks, source=node)
    if stay is not None:  # after its change, which may be later than its time
        stay += max(inner.clocks.values(), default=0)
    if isinstance(window, nodes.RowWindow) and window.slide > 1:  # a row waits for the last one of its slide
        clocks = {}
    return Growth(times=times, clocks=clocks | bounds, stay=stay)


def _refuse_times(partition: Sequence[str], inner: Growth, node: nodes.Node) -> None:
    if any(each in inner.times for each in partition):
        raise UnboundedError(
            "PARTITION BY a time has a partition for each time, and keeps them all",
            "partition by a key, or use [RANGE 10 MINUTES]",
            node,
            node,
        )


def _lifetime(node: nodes.Lifetime, inner: Growth, states: list[StateBound]) -> Growth:
    ends = [(latest_of(time), length) for time, length in node.ends]
    stays = [shift[1] + length for shift, length in ends if shift is not None and shift[0] in inner.clocks]
    until = length_text(max(min(stays), 0)) + " after their time" if stays else "their last time"
    until = until if node.ends else "they come"
    states.append(StateBound(node, f"rows, and their changes, until {until}"))
    clocks = inner.clocks
    if node.begins:
        begins = [(latest_of(time) or ("", 0), length) for time, length in node.begins]
        column = begins[0][0][0]
        known = column in clocks and all(name == column for (name, _), _ in begins)
        clocks = {column: max(clocks[column], *(after + us for (_, after), us in begins))} if known else {}
    if not node.ends:
        return replace(inner, clocks=clocks)
    # After another time of the row than those: by as much later as the row may come after it.
    stay = max(0, *stays) + max(inner.clocks.values()) if stays else None
    return Growth(times=inner.times, clocks=clocks, stay=stay)


def _few(columns: Sequence[Expression], inner: Growth, what: str, node: nodes.Node) -> None:
    """Raise UnboundedError for one entry per distinct value of columns that have ever new values."""
    if not inner.grows:
        return
    for each in columns:
        if goes_on(each, inner.times):
            raise UnboundedError(
                f"{what} would keep an entry for each value of '{each}' for ever, and time brings ever new ones",
                "give the stream a window, s [RANGE 10 MINUTES], or leave that column out",
                node,
                inner.source,
            )


def _aggregate(node: nodes.GroupAggregates, inner: Growth, states: list[StateBound]) -> Growth:
    by = [each for _, each in node.by]
    changes = _changes_of_groups(node, inner)
    if changes is None:
        _few(by, inner, "GROUP BY", node)
    group = f"({_names(by)})" if by else "the whole"
    if changes is not None:
        group += f", until {length_text(changes)} after its first row"
    keeps = [f"{len(node.aggregates)} partial aggregate{'' if len(node.aggregates) == 1 else 's'} per {group}"]
    for each in node.aggregates:
        if each.function == "approx_count_distinct" and _only_grows(inner):
            keeps.append(_sketch(each, node, inner))
            continue
        if each.function == "collect_list" and inner.grows:
            raise UnboundedError(
                "a list of rows that stay for ever grows for ever",
                "give the stream a window, s [RANGE 10 MINUTES], or list each value once: COLLECT_SET(x)",
                node,
                inner.source,
            )
        per_value = each.function in _PER_VALUE or each.distinct
        # Rows that leave a window take a minimum with them: then all values are kept, with their counts.
        per_value = per_value or (each.function in {"min", "max", "approx_count_distinct"} and not _only_grows(inner))
        if per_value and each.arguments:
            if changes is None and (each.function in _PER_VALUE or each.distinct):
                _few(each.arguments, inner, each.function.upper(), node)
            shares = each.function in {"percentile", "percentile_disc", "approx_percentile"}
            values = each.arguments[:1] if shares else each.arguments
            keeps.append(f"a weight per value of {_names(values)} in each group")
    states.append(StateBound(node, "; ".join(dict.fromkeys(keeps))))
    times = [name for name, each in node.by if goes_on(each, inner.times)]
    times += [
        each.name
        for each in node.aggregates
        if each.function != "count" and any(goes_on(x, inner.times) for x in each.arguments)
    ]
    clocks = _clocks_of_groups(node, inner)
    return Growth(
        changes is not None,
        not inner.static,
        inner.static,
        frozenset(times),
        clocks,
        max(clocks.values(), default=None),
        inner.source,
    )


def _changes_of_groups(node: nodes.GroupAggregates, inner: Growth) -> int | None:
    """Return for how many µs after its first row a group may change, if rows stay for ever; None if not bounded."""
    if not inner.grows or (inner.retracts and inner.stay is None):
        return None
    periods = [period_of(each, inner.clocks) for _, each in node.by]
    length = min((each for each in periods if each is not None), default=None)
    return length if length is None or not inner.retracts else length + (inner.stay or 0)


def _clocks_of_groups(node: nodes.GroupAggregates, inner: Growth) -> dict[str, int]:
    """Return for how many µs after the times in its columns a group may change."""
    if inner.retracts and inner.stay is None:
        return {}
    late = (inner.stay or 0) if inner.retracts else 0
    found: dict[str, int] = {}
    for name, each in node.by:
        # Both are no later than the time of the row.
        time = each.arguments[1] if isinstance(each, Call) and each.function.startswith("date_trunc") else each
        period = period_of(each, inner.clocks) if isinstance(time, Field) else None
        if period is not None:
            found[name] = period + late
    return found


def changes_of_groups(node: nodes.GroupAggregates) -> int | None:
    """Return for how many µs after its first row a group may change, if groups come for ever; None for others."""
    try:
        return _changes_of_groups(node, growth_of(node.source))
    except UnboundedError:
        return None


def _sketch(each: nodes.Aggregation, node: nodes.Node, inner: Growth) -> str:
    values = each.arguments[0]
    kind = spark_name(values.type)
    if not sketchable(values.type):
        raise UnboundedError(
            f"APPROX_COUNT_DISTINCT of rows that stay for ever keeps a sketch, and none takes {kind}",
            "count a number or text that identifies the value, such as a field of it, or give the stream a window: "
            "[RANGE 10 MINUTES]",
            node,
            inner.source,
        )
    return f"a sketch of {values} with an error of {error_of(each):g} per group"


def _top(node: nodes.Top, inner: Growth, states: list[StateBound]) -> Growth:
    _few(node.by, inner, "the first rows of each group", node)
    if inner.grows and inner.retracts:
        raise UnboundedError(
            "the first rows of an order need all rows, since rows before them may leave, and here rows stay for ever",
            "give the stream a window: s [RANGE 10 MINUTES]",
            node,
            inner.source,
        )
    each = f" per ({_names(node.by)})" if node.by else ""
    if inner.grows:
        states.append(StateBound(node, f"{node.n} row{'' if node.n == 1 else 's'}{each}"))
    else:
        states.append(StateBound(node, f"the rows below it, in order{each}"))
    return Growth(static=inner.static, retracts=not inner.static, times=inner.times)


def rows_before(node: nodes.WindowFunctions) -> int | None:
    """Return how many rows before a row its functions read, if rows come in their order and stay; None otherwise."""
    try:
        inner = growth_of(node.source)
    except UnboundedError:
        return None
    return _rows_before(node, inner) if _only_grows(inner) else None


def _rows_before(node: nodes.WindowFunctions, inner: Growth) -> int | None:
    key = node.order[0] if len(node.order) == 1 else None
    if key is None or key.descending or not isinstance(key.expression, Field):
        return None
    if inner.clocks.get(key.expression.name) != 0:
        return None
    most = 0
    for each in node.functions:
        frame, before = each.frame, each.number
        if each.call.function != "lag":
            if frame.kind == "range" or frame.start is None or frame.end is None or frame.end > 0:
                return None
            before = -frame.start
        most = max(most, before)
    return most


def _functions(node: nodes.WindowFunctions, inner: Growth, states: list[StateBound]) -> Growth:
    times = [each.call.name for each in node.functions if any(goes_on(x, inner.times) for x in each.call.arguments)]
    by = f" per ({_names(node.by)})" if node.by else ""
    before = _rows_before(node, inner) if _only_grows(inner) else None
    if before is not None:
        _few(node.by, inner, "OVER", node)
        states.append(StateBound(node, f"{before} row{'' if before == 1 else 's'}{by}"))
        return replace(inner, times=inner.times.union(times))
    if inner.grows:
        raise UnboundedError(
            "functions with OVER need all rows of the relation, and here they stay for ever",
            "give the stream a window, s [RANGE 10 MINUTES]; order LAG and ROWS n PRECEDING by its event time; or keep "
            "the first rows: WHERE r <= 10 over ROW_NUMBER() OVER (…) AS r in a subquery",
            node,
            inner.source,
        )
    states.append(StateBound(node, f"the rows below it, in order{by}"))
    return Growth(static=inner.static, retracts=not inner.static, times=inner.times.union(times))


def _set_operation(node: nodes.SetOperation, left: Growth, right: Growth, states: list[StateBound]) -> Growth:
    pairs = list(zip(node.left.schema.names, node.right.schema.names, strict=True))
    times = frozenset(one for one, other in pairs if one in left.times or other in right.times)
    both = Growth(
        left.grows or right.grows,
        left.retracts or right.retracts or (node.kind == "except" and not right.static),
        left.static and right.static,
        times,
        source=left.source if left.grows else right.source,
    )
    if node.kind == "union" and node.all:
        states.append(StateBound(node, ""))
        clocks = {
            one: max(left.clocks[one], right.clocks[other])
            for one, other in pairs
            if one in left.clocks and other in right.clocks
        }
        stay = None if left.stay is None or right.stay is None else max(left.stay, right.stay)
        return replace(both, clocks=clocks, stay=stay)
    columns = tuple(Field(each.name, each.type) for each in node.schema)
    _few(columns, both, node.kind.upper(), node)
    states.append(StateBound(node, f"a weight of each side per distinct ({_names(columns)})"))
    return replace(both, grows=both.grows and node.all)


def _join(node: nodes.Join, left: Growth, right: Growth, states: list[StateBound]) -> Growth:
    partners = partners_of(node, left.clocks, right.clocks)
    afters = [
        each.after if each is not None and each.column in side.clocks else None
        for each, side in zip(partners, (left, right), strict=True)
    ]
    halves = node.how in {"semi", "anti", "null_aware_anti"}
    sides: list[str | int] = []
    for at, (side, other, ends) in enumerate(((left, right, partners[0]), (right, left, partners[1]))):
        needed = _needed(side, other, ends)
        if other.static and (at == 0 or node.as_of is None):
            # The other side has all its rows before the first of this one; a nearer row of an ASOF join may leave.
            sides.append("none")
        elif not side.grows:
            sides.append("all" if needed is None or other.retracts else needed)
        elif needed is not None:
            sides.append(needed)
        elif halves and at == 1 and node.condition is None:
            _few([each for _, each in node.on], right, "IN or EXISTS", node)
            sides.append("keys")
        else:
            raise _never_leaves(node, side)
    text = "; ".join(
        f"{name}: {_side(side, node, at)}" for at, (name, side) in enumerate(zip(("left", "right"), sides, strict=True))
    )
    states.append(StateBound(node, text, tuple(sides)))
    static = left.static and right.static
    clocks = _clocks(left, right, afters[0], alone=node.how not in {"inner", "right", "semi"})
    if halves:
        return Growth(left.grows, left.retracts or not right.static, static, left.times, clocks, source=left.source)
    # A row without a partner leaves with the first row of the other side that meets it.
    padded = (node.how in {"left", "full"} and not right.static) or (node.how in {"right", "full"} and not left.static)
    if node.as_of is not None:
        return Growth(
            left.grows, left.retracts or not right.static, static, left.times | right.times, clocks, source=left.source
        )
    return Growth(
        left.grows or right.grows,
        left.retracts or right.retracts or padded,
        static,
        left.times | right.times,
        {**clocks, **_clocks(right, left, afters[1], alone=node.how in {"right", "full"})},
        source=left.source if left.grows else right.source,
    )


def needed_of(node: nodes.Join) -> tuple[Partners | None, Partners | None]:
    """Return for how long after their times a join needs each side's rows; None where that is not bounded.

    No partner of a row changes after that. If a side's rows can leave and the join also returns them without a partner,
    they are needed until they leave. A plan that is refused has no bounds.
    """
    try:
        left, right = growth_of(node.left), growth_of(node.right)
    except UnboundedError:
        return None, None
    of_left, of_right = partners_of(node, left.clocks, right.clocks)
    return (
        _while_needed(left, right, of_left, node.how not in {"inner", "right"}),
        _while_needed(right, left, of_right, node.how in {"right", "full"}),
    )


def _while_needed(side: Growth, other: Growth, partners: Partners | None, alone: bool) -> Partners | None:
    if partners is None or (alone and side.retracts) or _needed(side, other, partners) is None:
        return None
    return Partners(partners.column, _length_needed(other, partners.after))


def _needed(side: Growth, other: Growth, partners: Partners | None) -> int | str | None:
    """Return for how many µs after its time a row is needed, given its partners' times, or until which of its columns.

    None if the partners may change at any time.
    """
    if partners is None or (other.retracts and other.stay is None):
        return None
    return _length_needed(other, partners.after) if partners.column in side.clocks else partners.column


def _length_needed(other: Growth, after: int) -> int:
    late = max(other.clocks.values(), default=0)
    return max(after + max(late, (other.stay or 0) if other.retracts else 0), 0)


def _clocks(side: Growth, other: Growth, after: int | None, *, alone: bool) -> dict[str, int]:
    """Return the greatest delay of a join's rows after the times of one side: a row comes with its partner.

    ``alone``: or without one, also when its last partner leaves.
    """
    if other.static:
        return dict(side.clocks)
    ends = [] if side.stay is None or side.grows else [side.stay]
    if after is not None and not (alone and other.retracts and other.stay is None):
        ends.append(_length_needed(other, after) if alone else after + max(other.clocks.values(), default=0))
    return {name: max(lag, min(ends)) for name, lag in side.clocks.items()} if ends else {}


def _side(side: str | int, node: nodes.Join, at: int) -> str:
    if isinstance(side, int):
        return f"rows for {length_text(side)} after their time"
    if side == "keys":
        return f"a weight per distinct ({_names([pair[at] for pair in node.on])})"
    return {"none": "nothing", "all": "the rows of the relation"}.get(side, f"rows until their {side}")


def _never_leaves(node: nodes.Join, side: Growth) -> UnboundedError:
    if node.as_of is not None:
        return UnboundedError(
            "ASOF JOIN would keep each row of this source for ever, since a nearer row may come at any time",
            "give it a window, [RANGE 1 HOUR] or LATEST(s); or join each row with the other side as it is at its time: "
            "FROM a ASOF JOIN b ON a.k = b.k AND a.t >= b.t over two streams without windows and their event times",
            node,
            side.source,
        )
    columns = sorted(fields(node.condition)) if node.condition is not None else []
    time = next((each.rpartition(".")[2] for each in columns if each in side.clocks), "t")
    stream = side.source.stream if isinstance(side.source, nodes.WindowOver) else None
    newest = (
        f"LATEST({stream.name}), one row per key, or " if isinstance(stream, nodes.Stream) and stream.updates else ""
    )
    return UnboundedError(
        "the join would keep each row of this source for ever, since a partner may come at any time",
        f"give it a window: {newest}[RANGE 1 HOUR], or [NOW] to join each row with the other side at that time. "
        f"Or bound both times: a.{time} BETWEEN b.{time} - INTERVAL '5' MINUTES "
        f"AND b.{time} + INTERVAL '5' MINUTES",
        node,
        side.source,
    )
