"""A plan as text: its operators with their state and its bounds, and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..conf.units import length_text
from ..expressions.types import call
from ..operators.relations.plan import nodes
from ..operators.relations.plan.bounds import StateBound, state_of
from ..operators.relations.plan.common_parts import aggregate_text, function_text, part_key
from ..operators.relations.plan.properties import key_of
from .binder import Query

_NAMED = 3


class SharedWith(NamedTuple):
    """The queries that share an operator of the explained one."""

    whole: tuple[str, ...] = ()  # They compute the same.
    slices: tuple[str, ...] = ()  # They share slices, for other windows or aggregates.


def plan_text(query: Query, shared: Mapping[str, SharedWith] | None = None) -> str:
    """Return a bound query's plan as text: the result's kind, columns and key, then the operators with their state.

    ``shared`` are the queries that share an operator, by its ``part_key``. They are named only at the topmost one. An
    operator that occurs twice has a number, as it is computed once.
    """
    states = {bound.node: bound for bound in state_of(query.plan)}
    columns = ", ".join(f"{field.name} {field.type}" for field in query.schema)
    key = [] if isinstance(query.plan, nodes.Changes) else [f"key: {_key(query.plan)}"]
    lines = [f"result: {_kind(query.plan)} ({columns})", *key, f"reads: {', '.join(query.reads) or 'nothing'}"]
    text = _Text(states, _repeated(query.plan), shared or {})
    return "\n".join([*lines, *text.of(query.plan)])


class PlanPart(NamedTuple):
    """An operator of a bound query, for a picture."""

    key: str  # its ``part_key``
    text: str
    keeps: str  # its state, in words; empty without any
    shared: SharedWith
    inputs: tuple[str, ...]  # keys
    reads: str = ""  # the stream or the stored relation that it is


def plan_parts(query: Query, shared: Mapping[str, SharedWith] | None = None) -> list[PlanPart]:
    """Return each operator of a query once, inputs first, without renamings. ``shared`` is as for :func:`plan_text`."""
    states = {bound.node: bound.keeps for bound in state_of(query.plan)}
    parts: dict[str, PlanPart] = {}

    def add(node: nodes.Node) -> str:
        key = part_key(node)
        if key in parts:
            return key
        if len(node.inputs) == 1 and part_key(node.inputs[0]) == key:
            return add(node.inputs[0])
        inputs = tuple(dict.fromkeys(add(source) for source in node.inputs))
        stream = isinstance(node, nodes.Stream)
        sharers = SharedWith() if stream or shared is None else shared.get(key, SharedWith())
        parts[key] = PlanPart(key, _head(node), states.get(node) or "", sharers, inputs, node.name if stream else "")
        return key

    add(query.plan)
    return list(parts.values())


def _kind(plan: nodes.Node) -> str:
    if not isinstance(plan, nodes.Changes):
        return "a relation, kept as a table"
    if plan.kind == "rstream":
        every = f"every {length_text(plan.every_us)}" if plan.every_us else "at each change"
        return f"a stream of all rows of the relation, {every}"
    return "a stream of the rows that " + ("come" if plan.kind == "istream" else "leave")


def _key(plan: nodes.Node) -> str:
    key = key_of(plan)
    if key is None:
        return "none, equal rows can be there"
    return ", ".join(key) or "none, there is one row at most"


def _repeated(plan: nodes.Node) -> set[str]:
    """Return the keys of operators that occur twice in the plan, without those below another such one."""
    seen: dict[str, int] = {}

    def count(node: nodes.Node, above: str = "") -> None:
        key = part_key(node)
        if key != above:  # a projection that renames means the same as what is below it
            seen[key] = seen.get(key, 0) + 1
        if key == above or seen[key] == 1:
            for source in node.inputs:
                count(source, key)

    count(plan)
    return {key for key, times in seen.items() if times > 1}


class _Text:
    """The lines of a plan's operators."""

    def __init__(
        self,
        states: Mapping[nodes.Node, StateBound],
        repeated: set[str],
        shared: Mapping[str, SharedWith],
    ) -> None:
        self._states = states
        self._repeated = repeated
        self._shared = shared
        self._numbers: dict[str, int] = {}

    def of(self, node: nodes.Node, depth: int = 0, above: str = "", named: frozenset[str] = frozenset()) -> list[str]:
        """Return the lines of a node and its inputs; ``named`` are the queries that share the operators above."""
        key = part_key(node)
        mark = ""
        if key in self._repeated and key != above and not isinstance(node, nodes.Stream):
            if key in self._numbers:
                return [f"{'  ' * depth}(see #{self._numbers[key]})"]
            self._numbers[key] = len(self._numbers) + 1
            mark = f"#{self._numbers[key]} "
        state = self._states.get(node)
        notes = [f"keeps {state.keeps}"] if state is not None and state.keeps else []
        sharers = self._shared.get(key, SharedWith()) if not isinstance(node, nodes.Stream) else SharedWith()
        notes += [f"shared with {_names(sharers.whole, named)}"] if set(sharers.whole) - named else []
        named |= set(sharers.whole)
        notes += [f"slices shared with {_names(sharers.slices, named)}"] if set(sharers.slices) - named else []
        lines = [f"{'  ' * depth}{mark}{_head(node)}{' -- ' if notes else ''}{'; '.join(notes)}"]
        for source in node.inputs:
            lines += self.of(source, depth + 1, key, named)
        return lines


def _names(names: Sequence[str], but: frozenset[str]) -> str:
    left = [name for name in names if name not in but]
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return ", ".join(left[:_NAMED]) + more


def _head(node: nodes.Node) -> str:
    if isinstance(node, nodes.Stream):
        if node.static:
            return f"Relation {node.name} (stored{f', {node.table}' if node.table is not None else ''})"
        key = f"{'updates' if node.updates else 'key'} by {', '.join(node.key)}, " if node.key else ""
        late = f", lateness {length_text(node.lateness_us)}" if node.lateness_us else ""
        return f"Stream {node.name} ({key}time {node.event_time}{late})"
    if isinstance(node, nodes.WindowOver):
        return _window(node)
    if isinstance(node, nodes.Sample):
        return f"Sample {node.percent:g} %" + (f", seed {node.seed}" if node.seed else "")
    if isinstance(node, nodes.Where):
        return f"Where {node.condition}"
    if isinstance(node, nodes.Project | nodes.ConstantRow):
        columns = ", ".join(
            name if str(expression) == name else f"{name} = {expression}" for name, expression in node.columns
        )
        if isinstance(node, nodes.QueueProject):
            where = "" if node.where is None else f" where {node.where}"
            weighted = "" if node.weight is None else f" by {node.weight}"
            return f"Queue {node.policy}{weighted}, then project {columns}{where}"
        return f"{'Project' if isinstance(node, nodes.Project) else 'One row of'} {columns}"
    if isinstance(node, nodes.Join):
        pairs = [f"{one} = {other}" for one, other in node.on]
        condition = [str(node.condition)] if node.condition is not None else []
        if node.as_of is not None:
            condition.append(str(call(node.as_of.function, [node.as_of.left, node.as_of.right])))
        kind = f"{'Join' if node.as_of is None else 'ASOF join'} {node.how}"
        return kind + (f" on {' and '.join([*pairs, *condition])}" if pairs or condition else "")
    if isinstance(node, nodes.GroupAggregates):
        by = ", ".join(name if str(expression) == name else f"{name} = {expression}" for name, expression in node.by)
        made = ", ".join(f"{aggregate.name} = {aggregate_text(aggregate)}" for aggregate in node.aggregates)
        return "Aggregate" + (f" by {by}" if by else "") + (f": {made}" if made else "")
    if isinstance(node, nodes.Distinct | nodes.Lifetime | nodes.Explode | nodes.Copies):
        return _of_rows(node)
    if isinstance(node, nodes.SetOperation):
        return node.kind.capitalize() + (" all" if node.all else "")
    if isinstance(node, nodes.Top):
        return f"First {node.n}{_ordered(node)}"
    if isinstance(node, nodes.WindowFunctions):
        made = ", ".join(f"{function.call.name} = {function_text(function)}" for function in node.functions)
        return f"Functions{_ordered(node)}: {made}"
    return node.kind.capitalize() + (f" every {length_text(node.every_us)}" if node.every_us else "")


def _ordered(node: nodes.Top | nodes.WindowFunctions) -> str:
    order = ", ".join(
        f"{key.expression}{' desc' if key.descending else ''}"
        + ("" if key.nulls_first != key.descending else f" nulls {'first' if key.nulls_first else 'last'}")
        for key in node.order
    )
    by = f" of each {', '.join(str(each) for each in node.by)}" if node.by else ""
    return by + (f" by {order}" if order else "")


def _of_rows(node: nodes.Distinct | nodes.Lifetime | nodes.Explode | nodes.Copies) -> str:
    if isinstance(node, nodes.Lifetime):
        times = [f"now >= {time} + {length_text(us)}" for time, us in node.begins]
        times += [f"now < {time} + {length_text(us)}" for time, us in node.ends]
        return "While " + " and ".join(times)
    if isinstance(node, nodes.Explode):
        return f"Elements of {node.array}"
    if isinstance(node, nodes.Copies):
        return f"Copies, numbered by {node.name}"
    return "Distinct"


def _window(node: nodes.WindowOver) -> str:
    window = node.window
    if isinstance(window, nodes.TimeRange):
        slide = f" slide {length_text(window.slide_us)}" if window.slide_us else ""
        return f"{'All rows' if window.range_us is None else f'Range {length_text(window.range_us)}'}{slide}"
    if isinstance(window, nodes.Hop):
        return f"Hop of {length_text(window.size_us)} by {length_text(window.slide_us)}"
    if isinstance(window, nodes.Session):
        return f"Sessions of each {', '.join(window.partition)} with gaps of {length_text(window.gap_us)}"
    if isinstance(window, nodes.RowWindow):
        by = f" of each {', '.join(window.partition)}" if window.partition else ""
        where = f" where {window.where}" if window.where is not None else ""
        slide = f" slide {window.slide}" if window.slide > 1 else ""
        return f"Rows {window.n}{slide}{by}{where}"
    if isinstance(window, nodes.Now):
        return "Now"
    return "Latest" if isinstance(window, nodes.Latest) else "All rows"
