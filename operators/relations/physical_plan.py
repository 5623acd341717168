"""Translate the nodes of a plan into the operators that evaluate it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from ...expressions.nodes import Expression, Field
from .aggregate import AggregateOperator
from .arrangement import OperatorState
from .as_of import AsOfJoin
from .changes import DeltaStream, RelationStream
from .functions import DISTINCT_COUNT, AggregateCall
from .join import JoinOperator, NotIn, counted
from .multiplicities import RULES, KeyedRows, Multiplicities, NumberedCopies
from .newest import NewestByArrival, NewestWindow
from .operator import Evaluable, Operator
from .ordered_rows import Ordered, TopRows
from .plan import nodes
from .plan.aggregates import error_of, share_of
from .plan.bounds import changes_of_groups, needed_of, never_changes, only_grows, rows_before
from .plan.identity import digest, identity
from .plan.properties import Clock, key_of
from .queue_project import QueueProjectOperator
from .slice_plan import Families, sliced
from .stateless import ConstantRowOperator, ExplodeOperator, FilterOperator, InputRelation, ProjectOperator, UnionAll
from .streams import ChangeStream, SampleOperator, StreamSource
from .window_functions import WindowCall, WindowFunctionsOperator
from .windows import HopWindow, RowLifetimes, SessionWindow, StoredRelation, TimeWindow

Compile = Callable[[Expression, pa.Schema], Evaluable]
"""Compiles an expression over rows of a schema."""


@dataclass(frozen=True)
class OperatorBuild:
    """An operator of a plan, before it has a state."""

    key: str  # Equal for parts that compute the same.
    inputs: tuple[str, ...]  # The keys of its input parts.
    make: Callable[[OperatorState], Operator]
    stream: str = ""  # The catalog's stream whose rows it takes; "" for none.
    is_stream: bool = False  # Its result is a stream, which has no contents.
    points: bool = True  # Its result is needed at all change points; otherwise the net change is enough.
    beside: tuple[str, ...] = ()  # The keys of parts that keep its slices, or rows for it and its like.


def parts(
    node: nodes.Node,
    compile_: Compile,
    given: Collection[nodes.Node] = (),
    clock: Clock = "event",
    families: Families | None = None,
    *,
    points: bool = True,
    seen: set[tuple[str, bool]] | None = None,
) -> Iterator[OperatorBuild]:
    """Yield the parts of a plan, each after its inputs; ``given`` is computed elsewhere.

    A part is repeated if only some parts above it need its change points. ``seen`` are those that were yielded.
    """
    key = identity(node)
    families = families or Families()
    points = points or isinstance(node, nodes.Changes)
    seen = set() if seen is None else seen
    if not seen.isdisjoint({(key, points), (key, True)}):
        return
    seen.add((key, points))
    if node in given:
        yield OperatorBuild(key, (), lambda _: InputRelation(node.schema, clock), points=points)
        return
    slices = sliced(node, compile_, given, families)
    if isinstance(node, nodes.Join):
        sides = [_side(node, at, compile_, given, clock) for at in (0, 1)]
        for source, kept in sides:
            yield from parts(source, compile_, given, clock, families, points=points, seen=seen)
            for each in kept:
                if seen.isdisjoint({(each.key, points), (each.key, True)}):
                    seen.add((each.key, points))
                    yield replace(each, points=points)
        inputs = tuple(kept[-1].key if kept else identity(source) for source, kept in sides)
        beside = tuple(each.key for _, kept in sides for each in kept)
        yield OperatorBuild(key, inputs, partial(_operator, node, compile_, clock), points=points, beside=beside)
        return
    below = node.inputs if slices is None else (slices.shape.stream,)
    takes_rows = slices is not None or isinstance(node, nodes.WindowOver | nodes.Sample)
    for each in below:
        yield from parts(each, compile_, given, clock, families, points=points, seen=seen)
        if takes_rows and isinstance(each, nodes.Changes):
            yield OperatorBuild(_rows_of(each), (identity(each),), _rows_maker(each.schema), is_stream=True)
    inputs = tuple(_rows_of(each) if takes_rows else identity(each) for each in below)
    if slices is not None:
        yield OperatorBuild(slices.key, inputs, slices.slices, is_stream=True)
        yield OperatorBuild(key, (slices.key,), slices.windows, points=points, beside=(slices.key,))
        return
    yield OperatorBuild(
        key,
        inputs,
        partial(_operator, node, compile_, clock),
        node.name if isinstance(node, nodes.Stream) else "",
        isinstance(node, nodes.Stream | nodes.Sample | nodes.Changes | nodes.QueueProject),
        points,
    )


def _side(
    node: nodes.Join, at: int, compile_: Compile, given: Collection[nodes.Node], clock: Clock
) -> tuple[nodes.Node, list[OperatorBuild]]:
    """Return the node below a join's input, and the parts between: they keep the rows by columns that joins compare.

    Rows under other names are kept once. There are no parts if a window below keeps the rows by these columns. A join
    itself keeps rows whose partners it counts, and rows that it needs for a limited time.
    """
    source: nodes.Node = node.inputs[at]
    by = [each.name for each in (pair[at] for pair in node.on) if isinstance(each, Field)]
    alone = node.as_of is not None or node.how == "null_aware_anti" or counted(node.how)[at]
    alone = alone or never_changes(node.inputs[1 - at]) or (clock == "event" and needed_of(node)[at] is not None)
    if alone or not by or len(by) < len(node.on) or _keeps(source, by, given):
        return source, []
    above: list[nodes.Project] = []
    while isinstance(source, nodes.Project) and source not in given and _only_renames(source):
        by = _columns_below(source, by)
        above.append(source)
        source = source.source
    mark, keyed = f"-by-{digest(tuple(by))}", source
    key = identity(keyed) + mark
    made = [OperatorBuild(key, (identity(keyed),), lambda state: KeyedRows(keyed.schema, by, state, key_of(keyed)))]
    for each in reversed(above):
        key = identity(each) + mark
        made.append(OperatorBuild(key, (made[-1].key,), partial(_operator, each, compile_, clock)))
    return source, made


def _only_renames(node: nodes.Project) -> bool:
    columns = {each.name for _, each in node.columns if isinstance(each, Field)}
    return len(columns) == len(node.columns) == len(node.source.schema)


def _columns_below(node: nodes.Project, columns: Iterable[str]) -> list[str]:
    made = dict(node.columns)
    return [each.name for each in map(made.__getitem__, columns) if isinstance(each, Field)]


def _keeps(node: nodes.Node, by: Sequence[str], given: Collection[nodes.Node]) -> bool:
    """Return whether a window below keeps the rows by some columns."""
    while isinstance(node, nodes.Where | nodes.Project) and node not in given:
        by = _columns_below(node, by) if isinstance(node, nodes.Project) else by
        node = node.source
    if node in given or not isinstance(node, nodes.WindowOver):
        return False
    match node.window:
        case nodes.Latest():
            return isinstance(node.origin, nodes.Stream) and [*node.origin.key] == [*by]
        case nodes.RowWindow(_, partition):
            return [*partition] == [*by]
        case _:
            return False


def _rows_maker(schema: pa.Schema) -> Callable[[OperatorState], Operator]:
    return lambda _: ChangeStream(schema)


def _rows_of(node: nodes.Node) -> str:
    return f"{identity(node)}-rows" if isinstance(node, nodes.Changes) else identity(node)


def _operator(node: nodes.Node, compile_: Compile, clock: Clock, state: OperatorState) -> Operator:
    match node:
        case nodes.Stream(name, schema):
            event_time, lateness = "" if node.static else node.event_time, node.lateness_us
            return StreamSource(name, schema, event_time, state, any_time=clock == "arrival", lateness_us=lateness)
        case nodes.Sample(source, percent, seed):
            stream = digest(source.name if isinstance(source, nodes.Stream) else source, 15)
            return SampleOperator(source.schema, percent, seed, stream)
        case nodes.WindowOver():
            return _window(node, compile_, state, clock)
        case nodes.ConstantRow(columns):
            empty = pa.schema([])
            return ConstantRowOperator(node.schema, [(name, compile_(each, empty)) for name, each in columns])
        case nodes.Where(source, condition):
            return FilterOperator(node.schema, compile_(condition, source.schema))
        case nodes.Project(source, columns):
            made = [(name, compile_(each, source.schema)) for name, each in columns]
            if not isinstance(node, nodes.QueueProject):
                return ProjectOperator(made)
            stream = next(each.name for each in nodes.walk(source) if isinstance(each, nodes.Stream))
            where = None if node.where is None else compile_(node.where, source.schema)
            weight = None if node.weight is None else compile_(node.weight, source.schema)
            return QueueProjectOperator(node, stream, made, where, weight, state)
        case nodes.Join():
            return _join(node, compile_, state, clock)
        case nodes.GroupAggregates(source, by, aggregates):
            stays = only_grows(source)
            calls = [_call(each, compile_, source.schema, stays=stays) for each in aggregates]
            return AggregateOperator(
                node.schema,
                [(name, compile_(each, source.schema)) for name, each in by],
                calls,
                state,
                changes_of_groups(node) if clock == "event" else None,
            )
        case nodes.Distinct() | nodes.Lifetime() | nodes.Explode() | nodes.Copies():
            return _of_rows(node, compile_, state)
        case nodes.SetOperation(_, _, kind, all_):
            if kind == "union":
                return UnionAll(node.schema) if all_ else Multiplicities(node.schema, 2, RULES["distinct"], state)
            return Multiplicities(node.schema, 2, RULES[f"{kind} all" if all_ else kind], state)
        case nodes.Top(source, order, n, by):
            ordered = _ordered(order, compile_, source.schema)
            groups = [compile_(each, source.schema) for each in by]
            return TopRows(node.schema, ordered, n, groups, state, stays=only_grows(source))
        case nodes.WindowFunctions(source, order, by, functions):
            ordered = _ordered(order, compile_, source.schema)
            found = [
                WindowCall(_call(each.call, compile_, source.schema), each.frame, each.number) for each in functions
            ]
            groups = [compile_(each, source.schema) for each in by]
            before = rows_before(node)
            return WindowFunctionsOperator(node.schema, source.schema, ordered, groups, found, state, before)
        case nodes.Changes(_, kind, every):
            return RelationStream(node.schema, every, state) if kind == "rstream" else DeltaStream(node.schema, kind)


def _ordered(order: Iterable[nodes.Order], compile_: Compile, schema: pa.Schema) -> list[Ordered]:
    return [(compile_(each.expression, schema), each.descending, each.nulls_first) for each in order]


def _call(each: nodes.Aggregation, compile_: Compile, schema: pa.Schema, *, stays: bool = False) -> AggregateCall:
    return AggregateCall(
        each.name,
        each.function,
        tuple(compile_(argument, schema) for argument in each.arguments),
        each.type,
        each.distinct,
        None if each.where is None else compile_(each.where, schema),
        error_of(each) if stays and each.function == DISTINCT_COUNT else None,
        stays,
        share_of(each),
        each.order,
    )


def _of_rows(
    node: nodes.Distinct | nodes.Lifetime | nodes.Explode | nodes.Copies, compile_: Compile, state: OperatorState
) -> Operator:
    match node:
        case nodes.Distinct():
            return Multiplicities(node.schema, 1, RULES["distinct"], state)
        case nodes.Lifetime(source, begins, ends):
            one, two = ([(compile_(time, source.schema), us) for time, us in some] for some in (begins, ends))
            return RowLifetimes(node.schema, one, two, state)
        case nodes.Explode(source, array, name, position, outer):
            return ExplodeOperator(node.schema, compile_(array, source.schema), name, position, outer)
        case nodes.Copies(source, name):
            return NumberedCopies(source.schema, name, state)


def _window(node: nodes.WindowOver, compile_: Compile, state: OperatorState, clock: Clock) -> Operator:
    schema = node.stream.schema
    source = node.origin
    match node.window:
        case nodes.TimeRange(range_us, slide_us):
            return TimeWindow(schema, range_us, slide_us, 0, state)
        case nodes.Hop(size_us, slide_us, columns):
            if columns:
                return HopWindow(node.schema, size_us, slide_us, state)
            return TimeWindow(schema, size_us, slide_us, 1, state)
        case nodes.Now():
            return TimeWindow(schema, 1, None, 0, state)
        case nodes.UnboundedWindow():
            if isinstance(source, nodes.Stream) and source.static:
                return StoredRelation(schema, state)
            return TimeWindow(schema, None, None, 0, state)
        case nodes.Session(gap_us, partition):
            return SessionWindow(node.schema, gap_us, partition, state)
        case nodes.RowWindow(n, partition, where, slide):
            condition = None if where is None else compile_(where, schema)
            return NewestWindow(schema, n, partition, condition, False, state, slide)
        case nodes.Latest():
            assert isinstance(source, nodes.Stream)
            if clock == "arrival":
                return NewestByArrival(schema, source.key, state)
            return NewestWindow(schema, 1, source.key, None, True, state)


def _join(node: nodes.Join, compile_: Compile, state: OperatorState, clock: Clock) -> Operator:
    left, right = node.left.schema, node.right.schema
    on = [(compile_(one, left), compile_(two, right)) for one, two in node.on]
    both = pa.schema([*left, *right])
    condition = None if node.condition is None else compile_(node.condition, both)
    static = never_changes(node.left), never_changes(node.right)
    if node.how == "null_aware_anti":
        return NotIn(node.schema, right, on[0], on[1:], condition, state, static)
    if node.as_of is not None:
        by = node.as_of.function, compile_(node.as_of.left, left), compile_(node.as_of.right, right)
        return AsOfJoin(node.schema, left, right, node.how == "left", on, by, state, static)
    # By the clock of arrival, the time of a step says nothing of the event times that are still to come.
    needed = needed_of(node) if clock == "event" else (None, None)
    within = key_of(node.left), key_of(node.right)
    return JoinOperator(node.schema, left, right, node.how, on, condition, state, static, needed, within)
