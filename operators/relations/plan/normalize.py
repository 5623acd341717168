"""Rewrite queries of the same meaning to one plan, as far as simple rules allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, TypeVar

from ....expressions.nodes import Call, Constant, Expression, Field, all_of, conjuncts, fields, substituted, walk
from .bounds import UnboundedError, growth_of
from .expression_rules import never_fails, ordered, size
from .identity import remembered
from .nodes import (
    Changes,
    Copies,
    Distinct,
    Explode,
    GroupAggregates,
    Join,
    Latest,
    Lifetime,
    Node,
    Order,
    Project,
    Relation,
    RowWindow,
    SetOperation,
    Stream,
    TimeRange,
    Top,
    UnboundedWindow,
    Where,
    WindowFunction,
    WindowFunctions,
    WindowOver,
)

_Plan = TypeVar("_Plan", bound=Node)


def normalized(node: _Plan) -> _Plan:
    """Return an equivalent plan: conditions pushed down, projections merged, equalities of inner joins in ``on``.

    Conditions keep their order, since an earlier one may guard a later one. A condition that can fail, such as a
    division, does not move below a join.
    """
    return _rewritten(node)  # type: ignore[return-value]


@remembered
def _rewritten(node: Any) -> Any:
    if isinstance(node, Where):
        return _where(_rewritten(node.source), conjuncts(node.condition))
    if isinstance(node, Project):
        return _project(_rewritten(node.source), node.columns)
    if isinstance(node, Lifetime):
        return _lifetime(replace(node, source=_rewritten(node.source)))
    if isinstance(node, Join):
        return _join(replace(node, left=_rewritten(node.left), right=_rewritten(node.right)))
    if isinstance(node, SetOperation):
        return replace(node, left=_rewritten(node.left), right=_rewritten(node.right))
    if isinstance(node, Distinct):
        source = _rewritten(node.source)
        return source if isinstance(source, Distinct) else Distinct(source)
    if isinstance(node, GroupAggregates):
        return _aggregated(replace(node, source=_rewritten(node.source)))
    if isinstance(node, Explode | Copies | Top | WindowFunctions | Changes):
        return replace(node, source=_rewritten(node.source))
    if isinstance(node, WindowOver):
        return replace(node, stream=_rewritten(node.stream))
    if node.inputs:  # a sample
        return replace(node, source=_rewritten(node.source))
    return node


def _lifetime(node: Lifetime) -> Relation:
    """Move times as far down as conditions, and turn the time for which a stream's rows stay into a window."""
    source = node.source
    if isinstance(source, Where):
        return _where(_lifetime(replace(node, source=source.source)), conjuncts(source.condition))
    if isinstance(source, Project):
        columns = dict(source.columns)
        begins, ends = (
            tuple((substituted(time, columns), us) for time, us in some) for some in (node.begins, node.ends)
        )
        return _project(_lifetime(Lifetime(source.source, begins, ends)), source.columns)
    if isinstance(source, Join):
        for side, mine in (("left", source.how not in {"right", "full"}), ("right", source.how in {"inner", "right"})):
            known = set(getattr(source, side).schema.names)
            begins, ends = (
                tuple(x for x in some if fields(x[0]) <= known and not _of_window(x[0]))
                for some in (node.begins, node.ends)
            )
            if mine and ends and (side == "left" or source.as_of is None):
                below = _lifetime(Lifetime(getattr(source, side), begins, ends))
                joined = _join(replace(source, **{side: below}))
                rest = [
                    tuple(x for x in some if x not in gone) for some, gone in ((node.begins, begins), (node.ends, ends))
                ]
                return _lifetime(Lifetime(joined, *rest)) if rest[0] or rest[1] else joined
    if isinstance(source, WindowOver) and isinstance(source.window, UnboundedWindow) and not node.begins:
        origin = source.origin
        (time, us), *more = node.ends
        of_event = isinstance(origin, Stream) and isinstance(time, Field) and time.name == origin.event_time
        if of_event and not more and us > 0:
            return WindowOver(source.stream, TimeRange(us))
    return node


def _of_window(time: Expression) -> bool:
    """Return whether a time is the bound of a window, after which a join still needs the row."""
    return isinstance(time, Call) and time.function == "window_bound"


def _aggregated(node: GroupAggregates) -> Relation:
    """Aggregate rows as they come if their groups have one lifetime, which then is that of the result."""
    above: list[Where | Project] = []
    source, by = node.source, {each: Field(name, each.type) for name, each in node.by}
    while isinstance(source, Where | Project):
        if isinstance(source, Project):
            columns = dict(source.columns)
            by = {substituted(each, columns): name for each, name in by.items()}
        above.append(source)
        source = source.source
    if not isinstance(source, Lifetime) or not all(time in by for time, _ in (*source.begins, *source.ends)):
        return node
    below: Relation = source.source
    for each in reversed(above):
        below = replace(each, source=below)
    made = replace(node, source=below)
    try:
        growth_of(made)
    except UnboundedError:
        return node
    return Lifetime(made, *(tuple((by[time], us) for time, us in some) for some in (source.begins, source.ends)))


def _filtered(source: Relation, conditions: Sequence[Expression]) -> Relation:
    return _where(source, conditions) if conditions else source


def _holds(condition: Expression) -> bool:
    return isinstance(condition, Constant) and condition.value is True


def _where(source: Relation, conditions: Sequence[Expression]) -> Relation:
    kept = [each for each in dict.fromkeys(conditions) if not _holds(each)]
    if not kept:
        return source
    if isinstance(source, Where):
        return _where(source.source, [*conjuncts(source.condition), *kept])
    if isinstance(source, Project):
        columns = dict(source.columns)
        below = [substituted(each, columns) for each in kept]
        if all(size(one) <= 3 * size(other) + 8 for one, other in zip(below, kept, strict=True)):
            return _project(_where(source.source, below), source.columns)
    if isinstance(source, Join):
        return _where_over_join(source, kept)
    if isinstance(source, WindowFunctions):
        return _where_over_functions(source, kept)
    if isinstance(source, Explode):
        known = set(source.source.schema.names)
        below = [each for each in kept if never_fails(each) and fields(each) and fields(each) <= known]
        if below:
            source = replace(source, source=_where(source.source, below))
            kept = [each for each in kept if each not in below]
    condition = all_of(kept)
    if condition is None:
        return source
    return Where(source, condition)


def _where_over_functions(node: WindowFunctions, conditions: Sequence[Expression]) -> Relation:
    """Move conditions on whole partitions below the functions, and take only the first rows if these are chosen."""
    partition = {each.name for each in node.by if isinstance(each, Field)}
    below = [each for each in conditions if fields(each) and fields(each) <= partition and never_fails(each)]
    rest = [each for each in conditions if each not in below]
    if below:
        node = replace(node, source=_where(node.source, below))
    numbers = {each.call.name for each in node.functions if each.call.function == "row_number"}
    if all(_looks_back(each) for each in node.functions):
        for each in rest:
            n = _chosen(ordered(each), numbers)
            if n is not None:
                rest.remove(each)
                node = replace(node, source=first_rows(node.source, node.order, n, node.by))
                break
    condition = all_of(rest)
    return node if condition is None else Where(node, condition)


def _looks_back(each: WindowFunction) -> bool:
    """Return whether the function of a row depends on no row after it."""
    if each.call.function in {"row_number", "rank", "dense_rank", "lag"}:
        return True
    return each.frame.kind == "rows" and each.frame.end is not None and each.frame.end <= 0


def _chosen(condition: Expression, numbers: set[str]) -> int | None:
    """Return n if the condition chooses the rows whose number is at most n."""
    if not isinstance(condition, Call) or condition.function not in {"eq", "le", "lt"}:
        return None
    one, other = condition.arguments
    if condition.function == "eq" and isinstance(one, Constant):
        one, other = other, one
    if not isinstance(one, Field) or one.name not in numbers or not isinstance(other, Constant):
        return None
    n = other.value - (condition.function == "lt") if isinstance(other.value, int) else 0
    return n if n == 1 or (n > 1 and condition.function != "eq") else None


def first_rows(source: Relation, order: tuple[Order, ...], n: int, by: tuple[Expression, ...]) -> Relation:
    """Return the first n rows of each group. The newest rows of a stream are its window of rows."""
    windowed, where = (source.source, source.condition) if isinstance(source, Where) else (source, None)
    if isinstance(windowed, WindowOver) and isinstance(windowed.window, UnboundedWindow) and len(order) == 1:
        stream, names = windowed.stream, [each.name for each in by if isinstance(each, Field)]
        if isinstance(stream, Stream) and not stream.static and len(names) == len(by) and order[0].descending:
            time = Field(stream.event_time, stream.schema.field(stream.event_time).type)
            if order[0].expression == time:
                return WindowOver(stream, newest(stream, n, tuple(names), where))
    return Top(source, order, n, by)


def newest(stream: Stream | None, n: int, partition: tuple[str, ...], where: Expression | None) -> RowWindow | Latest:
    """Return the window of the newest n rows: ``Latest`` if these are the newest of each update key."""
    if stream is not None and stream.updates and n == 1 and where is None and set(partition) == set(stream.key):
        return Latest()
    return RowWindow(n, partition, where)


def _where_over_join(join: Join, conditions: Sequence[Expression]) -> Relation:
    safe = list(takewhile(never_fails, conditions))
    lone = [each for each in safe if _has_no_partner(each, join)]
    if lone:
        return _where(_lone_rows(join), [each for each in conditions if each not in lone])
    lefts, rights = set(join.left.schema.names), set(join.right.schema.names)
    to_left: list[Expression] = []
    to_right: list[Expression] = []
    inside: list[Expression] = []
    above: list[Expression] = []
    for each in conditions:
        read = fields(each)
        safe = never_fails(each)
        if safe and read <= lefts and read and join.how not in {"right", "full"}:
            to_left.append(each)
        elif safe and read <= rights and read and join.how in {"inner", "right"} and join.as_of is None:
            to_right.append(each)
        elif join.how == "inner" and join.as_of is None and never_fails(each, but_intervals=True):
            # A condition on both times bounds what the join keeps.
            inside.append(each)
        else:
            above.append(each)
    if inside:
        join = replace(join, condition=all_of([*conjuncts(join.condition), *inside]))
    if to_left or to_right or inside:
        left, right = _filtered(join.left, to_left), _filtered(join.right, to_right)
        made: Relation = _join(replace(join, left=left, right=right))
    else:
        made = join
    condition = all_of(above)
    return made if condition is None else Where(made, condition)


def _has_no_partner(condition: Expression, join: Join) -> bool:
    """Return whether a condition holds for an outer join's rows without a partner alone: ``o.k IS NULL``."""
    at = {"left": 1, "right": 0}.get(join.how)
    if at is None or join.as_of is not None or not isinstance(condition, Call) or condition.function != "is_null":
        return False
    return isinstance(condition.arguments[0], Field) and condition.arguments[0] in [pair[at] for pair in join.on]


def _lone_rows(join: Join) -> Relation:
    """Return an outer join's rows without a partner: those of an anti join, which keeps and gives less."""
    sides = (join.left, join.right) if join.how == "left" else (join.right, join.left)
    on = join.on if join.how == "left" else tuple((two, one) for one, two in join.on)
    own = set(sides[0].schema.names)
    columns = tuple(
        (each.name, Field(each.name, each.type) if each.name in own else Constant(None, each.type))
        for each in join.schema
    )
    return _project(Join(*sides, "anti", on, join.condition), columns)


def _join(join: Join) -> Join:
    """Move an inner join's one-sided conditions to their side, and its equalities to ``on``."""
    if join.how != "inner" or join.condition is None:
        return join
    lefts, rights = set(join.left.schema.names), set(join.right.schema.names)
    to_left: list[Expression] = []
    to_right: list[Expression] = []
    rest: list[Expression] = []
    on = list(join.on)
    for each in conjuncts(join.condition):
        read = fields(each)
        pair = _pair(each, lefts, rights)
        if _holds(each):
            continue
        if pair is not None:
            if pair not in on:
                on.append(pair)
        elif read and read <= lefts and never_fails(each):
            to_left.append(each)
        elif read and read <= rights and never_fails(each):
            to_right.append(each)
        else:
            rest.append(each)
    return Join(_filtered(join.left, to_left), _filtered(join.right, to_right), join.how, tuple(on), all_of(rest))


def _pair(each: Expression, lefts: set[str], rights: set[str]) -> tuple[Expression, Expression] | None:
    if not isinstance(each, Call) or each.function != "eq":
        return None
    one, other = each.arguments
    if not fields(one) or not fields(other) or not (never_fails(one) and never_fails(other)):
        return None
    if fields(one) <= lefts and fields(other) <= rights:
        return one, other
    if fields(one) <= rights and fields(other) <= lefts:
        return other, one
    return None


def _read(source: Relation, names: frozenset[str]) -> Relation:
    """Return the relation without the window functions whose columns are not read."""
    if isinstance(source, Where):
        below = _read(source.source, names | fields(source.condition))
        return source if below is source.source else _where(below, conjuncts(source.condition))
    if not isinstance(source, WindowFunctions):
        return source
    functions = tuple(each for each in source.functions if each.call.name in names)
    expressions = [*(each.expression for each in source.order), *source.by]
    for each in functions:
        expressions += [*each.call.arguments, *([] if each.call.where is None else [each.call.where])]
    below = _read(source.source, names.union(*map(fields, expressions)))
    return replace(source, source=below, functions=functions) if functions else below


def _project(source: Relation, columns: tuple[tuple[str, Expression], ...]) -> Relation:
    source = _read(source, frozenset[str]().union(*(fields(each) for _, each in columns)))
    if isinstance(source, Project):
        inner = dict(source.columns)
        reads: dict[str, int] = {}
        for _, expression in columns:
            for each in walk(expression):
                if isinstance(each, Field):
                    reads[each.name] = reads.get(each.name, 0) + 1
        # Merge only if no computed column would be computed twice.
        if all(count == 1 or not isinstance(inner[name], Call) for name, count in reads.items()):
            merged = tuple((name, substituted(each, inner)) for name, each in columns)
            return _project(source.source, merged)
    same = tuple((each.name, Field(each.name, each.type)) for each in source.schema)
    return source if columns == same else Project(source, columns)


def rewriter(change: Callable[[Expression], Expression]) -> Callable[[_Plan], _Plan]:
    """Return the function that changes plans' expressions, such as to set a time zone; it rewrites shared nodes once.

    ``change`` returns the same object for an expression that stays.
    """
    made: dict[int, tuple[Any, Any]] = {}  # with what it was made of, so that ids stay

    def put(value: Any) -> Any:
        if isinstance(value, Call):
            return change(value)
        if isinstance(value, tuple):
            found = tuple(put(each) for each in value)
            return value if all(one is other for one, other in zip(found, value, strict=True)) else found
        if not dataclasses.is_dataclass(value) or isinstance(value, (type, Stream, Field, Constant)):
            return value
        if id(value) not in made:
            parts = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            changed = {name: new for name, old in parts.items() if (new := put(old)) is not old}
            made[id(value)] = value, dataclasses.replace(value, **changed) if changed else value
        return made[id(value)][1]

    return put
