"""The clock of a plan's evaluation: the event times of its rows, or their order of arrival."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from ....expressions.nodes import Call, Constant, Expression, Field, conjuncts, fields
from . import nodes
from .expression_rules import never_fails
from .identity import remembered

Clock: TypeAlias = Literal["event", "arrival"]
"""By ``event``, a row counts from its event time, once the low-watermark passes it; by ``arrival``, at once."""


def clock_of(plan: nodes.Node) -> Clock:
    """Return the clock for a hosted plan: arrival wherever possible, since it does not wait."""
    return "arrival" if on_arrival(plan) and not is_periodic(plan) else "event"


def is_periodic(plan: nodes.Node) -> bool:
    """Return whether a plan emits all its rows at the multiples of a period."""
    return any(isinstance(each, nodes.Changes) and each.every_us is not None for each in nodes.walk(plan))


def on_arrival(plan: nodes.Node) -> bool:
    """Return whether a plan can be evaluated as rows arrive, without waiting for the low-watermark.

    No row may leave as time passes, and each window must be
    :class:`~.nodes.Latest` or over a stored relation. A row then replaces an older one of its key,
    or is superseded. Other windows depend on times that are certain only once the low-watermark passes them.
    """
    return all(_is_newest(each) for each in nodes.walk(plan) if isinstance(each, nodes.WindowOver | nodes.Lifetime))


def _is_newest(node: nodes.WindowOver | nodes.Lifetime) -> bool:
    if isinstance(node, nodes.Lifetime):
        return False
    origin = node.origin
    return isinstance(origin, nodes.Stream) and (origin.static or isinstance(node.window, nodes.Latest))


Key = tuple[str, ...]


def key_of(plan: nodes.Node) -> tuple[str, ...] | None:
    """Return the fewest known columns that identify a relation's rows, in order; () if there is at most one row.

    No two rows, or copies of one, ever have equal values in all of them; null equals null. It is None if rows can be
    equal, as in a projection without the key, and for streams.
    """
    found = _keys(plan)
    if not found:
        return None
    fewest = min(found, key=len)
    return tuple(name for name in plan.schema.names if name in fewest)


_MOST_KEYS = 16


@remembered
def _keys(node: nodes.Node) -> list[Key]:
    """Return the shortest minimal keys: a join of many relations would have too many."""
    found: list[Key] = []
    for key in sorted(_all_keys(node), key=len):
        if len(found) < _MOST_KEYS and not any(set(key).issuperset(each) for each in found):
            found.append(key)
    return found


def _all_keys(node: nodes.Node) -> list[Key]:
    match node:
        case nodes.WindowOver():
            return _of_window(node)
        case nodes.ConstantRow():
            return [()]
        case nodes.Where(source, _) | nodes.Lifetime(source):
            return _keys(source)
        case nodes.WindowFunctions(source, _, by, functions):
            groups = _names(by)
            numbers = [each.call.name for each in functions if each.call.function == "row_number"]
            return _keys(source) + [(*groups, each) for each in numbers if groups is not None]
        case nodes.Top(source, _, n, by):
            groups = _names(by)
            return _keys(source) + ([groups] if n == 1 and groups is not None else [])
        case nodes.Project(source, columns):
            return _renamed(_keys(source), columns)
        case nodes.Join():
            return _of_join(node)
        case nodes.GroupAggregates(_, by, _):
            return [tuple(name for name, _ in by)]
        case nodes.Distinct(source) | nodes.Copies(source):
            return [*_keys(source), _columns(node)]
        case nodes.Explode(source, _, _, str() as position):
            return [(*each, position) for each in _keys(source)]
        case nodes.SetOperation():
            return _of_set(node)
        case _:
            return []


def _of_window(node: nodes.WindowOver) -> list[Key]:
    match node.window:
        case nodes.Latest():
            assert isinstance(node.origin, nodes.Stream)
            return [node.origin.key]
        case nodes.RowWindow(1, partition, _):
            return [partition]
        case _:
            return []


def _renamed(keys: Sequence[Key], columns: Sequence[tuple[str, Expression]]) -> list[Key]:
    names: dict[str, str] = {}
    for name, expression in columns:
        if isinstance(expression, Field):
            names.setdefault(expression.name, name)
    return [tuple(names[each] for each in key) for key in keys if all(each in names for each in key)]


def _of_join(node: nodes.Join) -> list[Key]:
    left = _keys(node.left)
    if node.how in {"semi", "anti", "null_aware_anti"} or node.as_of is not None:
        return left
    if node.how == "full":
        # A row of either side without a partner can have nulls in its own key too, and look like one of the other side.
        return []
    right = _keys(node.right)
    found: list[Key] = []
    # A row of one side meets one row at most if a key of the other side is among what is equal.
    if node.how in {"inner", "left"} and _meets_one(right, (two for _, two in node.on)):
        found += left
    if node.how in {"inner", "right"} and _meets_one(left, (one for one, _ in node.on)):
        found += right
    return found + [(*one, *two) for one in left for two in right]


def _meets_one(keys: Sequence[Key], equal: Iterable[Expression]) -> bool:
    names = {each.name for each in equal if isinstance(each, Field)}
    return any(names.issuperset(key) for key in keys)


def _of_set(node: nodes.SetOperation) -> list[Key]:
    found = [] if node.all else [_columns(node)]
    if node.kind == "union":
        return found + _of_union(node)
    found += _keys(node.left)
    if node.kind == "intersect":
        names = dict(zip(node.right.schema.names, node.left.schema.names, strict=True))
        found += [tuple(names[each] for each in key) for key in _keys(node.right)]
    return found


def _of_union(node: nodes.SetOperation) -> list[Key]:
    """Return the keys of both sides, with a column that has another constant in each."""
    names = dict(zip(node.left.schema.names, node.right.schema.names, strict=True))
    constants = {name: (_constant(node.left, name), _constant(node.right, other)) for name, other in names.items()}
    apart = [name for name, (one, other) in constants.items() if one and other and one.value != other.value]
    others = [set(key) for key in _keys(node.right)]
    both = [key for key in _keys(node.left) if {names[each] for each in key} in others]
    return [(*key, *apart[:1]) for key in both if apart]


def _constant(node: nodes.Node, name: str) -> Constant | None:
    """Return the constant that a column is; None for others."""
    while isinstance(node, nodes.Project):
        each = dict(node.columns)[name]
        if not isinstance(each, Field):
            return each if isinstance(each, Constant) else None
        node, name = node.source, each.name
    return None


def _names(expressions: Sequence[Expression]) -> Key | None:
    names = [each.name for each in expressions if isinstance(each, Field)]
    return tuple(names) if len(names) == len(expressions) else None


def _columns(node: nodes.Node) -> Key:
    return tuple(node.schema.names)


_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_NEVER = frozenset({"is_null", "is_not_null", "eq_null_safe"})
_COUNTS = frozenset({"count", "approx_count_distinct", "collect_set"})
_NUMBERS = frozenset({"count", "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"})


@remembered
def never_null(node: nodes.Node) -> frozenset[str]:
    """Return the columns that are known to have a value in each row.

    Rows of a stream without a time, and of an update stream without a key, are quarantined, so these columns qualify.
    """
    match node:
        case nodes.Stream(_, schema):
            certain = {each.name for each in schema if not each.nullable}
            return frozenset(certain | {node.event_time} - {""} | set(node.key if node.updates else ()))
        case nodes.WindowOver(stream):
            return never_null(stream) | frozenset(node.schema.names[len(stream.schema.names) :])
        case nodes.Where(source, condition):
            return never_null(source) | _required(condition)
        case nodes.ConstantRow(columns):
            return _computed(columns, frozenset())
        case nodes.Project(source, columns):
            return _computed(columns, never_null(source))
        case nodes.GroupAggregates(source, by, aggregates):
            counts = {each.name for each in aggregates if each.function in _COUNTS}
            return _computed(by, never_null(source)) | counts
        case nodes.Join():
            return _never_null_of_join(node)
        case nodes.SetOperation(left, right, kind, _):
            one, other = never_null(left), never_null(right)
            other = frozenset(a for a, b in zip(left.schema.names, right.schema.names, strict=True) if b in other)
            return one & other if kind == "union" else one | other if kind == "intersect" else one
        case nodes.Copies(source, name):
            return never_null(source) | {name}
        case nodes.Explode(source):
            return never_null(source) | ({node.position} if node.position and not node.outer else frozenset())
        case nodes.Distinct(source) | nodes.Top(source):
            return never_null(source)
        case nodes.WindowFunctions(source, _, _, functions):
            numbers = {each.call.name for each in functions if each.call.function in _NUMBERS}
            return never_null(source) | numbers
        case _:  # a sample of a stream, or changes of a relation
            return never_null(node.inputs[0])


def _never_null_of_join(node: nodes.Join) -> frozenset[str]:
    left, right = never_null(node.left), never_null(node.right)
    compared = {each.name for pair in node.on for each in pair if isinstance(each, Field)}
    met = frozenset(compared) | _required(node.condition)
    match node.how:
        case "inner":
            return left | right | met
        case "left" | "anti" | "null_aware_anti":
            return left
        case "right":
            return right
        case "semi":
            return left | met.intersection(node.left.schema.names)
        case _:
            return frozenset()


def _required(condition: Expression | None) -> frozenset[str]:
    """Return the columns that have a value wherever the condition is true."""
    found: set[str] = set()
    for each in conjuncts(condition):
        if not isinstance(each, Call):
            continue
        if each.function in _COMPARISONS:
            found.update(one.name for one in each.arguments if isinstance(one, Field))
        elif each.function in {"is_not_null", "in", "between", "like"} and isinstance(each.arguments[0], Field):
            found.add(each.arguments[0].name)
    return frozenset(found)


def _computed(columns: Collection[tuple[str, Expression]], certain: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name, each in columns if has_value(each, certain))


def has_value(expression: Expression, certain: frozenset[str]) -> bool:
    """Return whether an expression is never null if those columns are not."""
    if isinstance(expression, Field):
        return expression.name in certain
    if isinstance(expression, Constant):
        return expression.value is not None
    if expression.function == "coalesce":
        return any(has_value(each, certain) for each in expression.arguments)
    if expression.function == "window_bound":
        return has_value(expression.arguments[0], certain)
    return expression.function in _NEVER


def columns_read(plan: nodes.Node) -> Mapping[nodes.Stream, frozenset[str]]:
    """Return the columns of each stream on which a plan's result depends; all of a stored relation.

    All columns count as read where rows are compared as a whole, and where a plan keeps the newest rows. A query that
    begins later starts with these rows, and nothing would bring their other columns back.
    """
    every = list(nodes.walk(plan))
    read: dict[nodes.Node, set[str]] = {node: set() for node in every}
    read[plan] |= set(plan.schema.names)
    for node in reversed(every):  # each after all that have it as an input
        if isinstance(node, nodes.Stream):
            read[node] |= set(node.schema.names) if node.static else {*node.key, node.event_time}
        for each in node.inputs:
            read[each] |= _read_below(node, read[node]) & set(each.schema.names)
    return {node: frozenset(read[node]) for node in every if isinstance(node, nodes.Stream)}


def _read_below(node: nodes.Node, names: set[str]) -> set[str]:
    """Return the columns of a node's inputs that it reads, given those of its own that are read."""
    computed = set[str]().union(*map(fields, nodes.expressions_of(node)))
    keeps = isinstance(node, nodes.WindowOver) and isinstance(
        node.window, nodes.Latest | nodes.RowWindow | nodes.Session
    )
    if isinstance(node, nodes.QueueProject | nodes.GroupAggregates):
        return computed
    if isinstance(node, nodes.Project):
        return set().union(*(fields(each) for name, each in node.columns if name in names or not never_fails(each)))
    rows = (
        isinstance(node, nodes.Where | nodes.Lifetime | nodes.Explode | nodes.Sample | nodes.WindowOver | nodes.Join)
        and not keeps
    )
    if rows and not (isinstance(node, nodes.Join) and node.as_of is not None):
        return names | computed
    return {name for each in node.inputs for name in each.schema.names}
