"""The placed plan of each hosted query with its table, and all of them at one version of the registry."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ..conf.deep_stack import on_deep_stack
from ..conf.errors import OptionError, QueryRefusedError, SchemaError, UpstreamError
from ..core.rows.key import NO_KEY, Key
from ..core.rows.text import value_texts
from ..expressions.kinds import has_map, map_refused
from ..expressions.nodes import Expression
from ..operators.relations.evaluation import Evaluation
from ..operators.relations.operator import FAILURES, attributed, computed
from ..operators.relations.plan.bounds import growth_of
from ..operators.relations.plan.common_parts import in_words, shareable
from ..operators.relations.plan.identity import content, identity
from ..operators.relations.plan.nodes import (
    Changes,
    Copies,
    Join,
    Latest,
    Node,
    Now,
    QueueProject,
    Relation,
    RowWindow,
    Session,
    Stream,
    WindowOver,
    walk,
)
from ..operators.relations.plan.properties import Clock, clock_of, columns_read, is_periodic, key_of, never_null
from ..operators.relations.windows import check_years
from ..operators.relations.zsets import BEGINNING, TIME, WEIGHT, is_hashable, to_table
from ..operators.state.store import DictStore
from ..sink.results.result_table import ResultTable, layout_of
from .placement import Fragment, Placement, loses_rows, placed

if TYPE_CHECKING:
    from .registry import RegisteredQuery, Registry


NULL = "\\N"
"""The text of null. No value has it: a backslash in a value is doubled."""


def row_keys(rows: pa.Table, columns: Sequence[str]) -> pa.Array:
    r"""Return a text for each row, equal exactly for equal values of the columns; without columns, the empty text.

    Commas separate values; a backslash escapes commas and backslashes in them; null is ``\N``. A comma follows each
    element of an array and separates the fields of a struct; binary values are hexadecimal.
    """
    if not columns:
        return pa.array([""] * rows.num_rows, pa.string())
    return _joined([_texts(rows.column(name).combine_chunks()) for name in columns])


def _joined(values: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*(_escaped(each) for each in values), ",")


def _escaped(texts: pa.Array) -> pa.Array:
    doubled = pc.replace_substring(texts, "\\", "\\\\")
    return pc.fill_null(pc.replace_substring(doubled, ",", "\\,"), NULL)


def _texts(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_struct(kind):
        fields = values.flatten()
        made = _joined([_texts(each) for each in fields]) if fields else pa.array([""] * len(values), pa.string())
        return pc.if_else(values.is_valid(), made, None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list_texts(values)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        series = pl.from_arrow(values.cast(pa.large_binary()))
        assert isinstance(series, pl.Series)
        return series.bin.encode("hex").to_arrow().cast(pa.string())
    if pa.types.is_duration(kind):
        return values.cast(pa.int64()).cast(pa.string())
    if pa.types.is_floating(kind):
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values)
    return value_texts(values).cast(pa.string())


def _list_texts(values: pa.Array) -> pa.Array:
    elements = pc.binary_join_element_wise(_escaped(_texts(pc.list_flatten(values))), "", ",")
    sizes = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    made = pc.binary_join(pa.LargeListArray.from_arrays(offsets, elements), "")
    return pc.if_else(values.is_valid(), made, None)


_MOMENT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Result:
    """The table of a query."""

    kind: Literal["latest", "feed"]  # "latest": the current rows by key; "feed": one row for each change, forever.
    key: Key  # Columns of the table, never null; empty for a feed.
    plan: Relation | Changes  # The query's plan; copies of rows are numbered if they can be equal.
    schema: pa.Schema
    identity: tuple[str, ...]  # The plan's identifying columns: the key, unless there is a `row_key`.
    row_key: str | None  # The table's first column, if it holds the identity as text.
    time: str | None  # A feed's last column, each change's time; null for rows from the beginning.

    @property
    def queued(self) -> bool:
        """True if a queue releases the changes: their times are arrivals then."""
        return isinstance(self.plan, QueueProject)

    def table(
        self,
        incarnation: int,
        name: str,
        location: str,
        buckets: int,
        options: tuple[tuple[str, str], ...] = (),
        *,
        overwrite: bool = False,
    ) -> ResultTable:
        keep = "all" if self.kind == "feed" else "latest"
        return ResultTable(
            incarnation, name, location, self.schema, self.key, keep, buckets, options, overwrite, self.row_key
        )

    def of(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Return the plan's changes with the columns of the table, followed by their time and weight."""
        # A lazy frame for each query would take more time than all else.
        more: dict[str, pl.Series] = {}
        if self.row_key is not None:
            rows = to_table(changes, self.plan.schema)
            more[self.row_key] = pl.Series(self.row_key, row_keys(rows, self.identity), dtype=pl.String)
        if self.time is not None:
            times = changes.get_column(TIME)
            begun = times == BEGINNING
            check_years(times.filter(~begun).to_numpy(), "the result changes")
            more[self.time] = times.set(begun, None).cast(pl.Datetime("us", "UTC")).alias(self.time)
        names = [*self.schema.names, TIME, WEIGHT]
        if not more and changes.columns == names:
            return changes
        return pl.DataFrame([more[name] if name in more else changes.get_column(name) for name in names])


def result_of(plan: Relation | Changes) -> Result:
    """Return the table for the result of a plan. Streams of changes, and equal rows that never leave, become feeds.

    The key is :func:`~..relations.keys.key_of`. Where rows can be equal, their copies are numbered in a column
    ``copy``, and all columns are the key. The key is a column ``row_key``, the values as text, for null values,
    unsuitable types, or at most one row. Names that are taken get an underscore.

    Raise UnboundedError if each value of a time would need a count of equal rows, forever.
    """
    if not isinstance(plan, Changes) and key_of(plan) is None:
        growth = growth_of(plan)
        if growth.grows and not growth.retracts:
            plan = Changes(plan, "istream")
    if isinstance(plan, Changes):
        time = _free("change_time" if "time" in plan.schema.names else "time", plan.schema.names)
        return Result("feed", NO_KEY, plan, plan.schema.append(pa.field(time, _MOMENT)), (), None, time)
    identity = key_of(plan)
    if identity is None:
        assert not isinstance(plan, Copies)
        plan = Copies(plan, _free("copy", plan.schema.names))
        growth_of(plan)
        identity = tuple(plan.schema.names)
    certain = never_null(plan)
    if identity and all(name in certain and _is_usable(plan.schema.field(name).type) for name in identity):
        return Result("latest", Key(identity), plan, plan.schema, identity, None, None)
    row_key = _free("row_key", plan.schema.names)
    schema = pa.schema([pa.field(row_key, pa.string(), nullable=False), *plan.schema])
    return Result("latest", Key((row_key,)), plan, schema, identity, row_key, None)


def _free(name: str, taken: Collection[str]) -> str:
    lowered = {each.lower() for each in taken}
    while name in lowered:
        name += "_"
    return name


def _is_usable(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal128(kind)
    )


@dataclass(frozen=True)
class Domain:
    """Streams and a clock whose evaluations step to the same time."""

    name: str
    streams: tuple[str, ...]  # sorted, without stored relations, which have no time
    clock: Clock
    lateness_us: int = 0  # by how much below the low-watermark rows still count


@dataclass(frozen=True)
class PlacedRoute:
    """The division of a stream's rows among the shards of the first stage."""

    name: str
    stream: Stream
    by: tuple[Expression, ...]  # over the stream's columns; an empty tuple sends all rows to one shard
    shard: int | None  # that shard
    newest: bool = False  # A task may send only its newest row of each key.
    columns: frozenset[str] = field(default=frozenset(), compare=False)  # of the stream, that its readers read


@dataclass(frozen=True)
class PlacedFragment:
    """A part of a query in the first stage."""

    name: str  # equal for equal parts whose changes have the same destination
    plan: Node
    group: str  # the evaluation that computes it in each shard; it has one domain and the same routes for all its parts
    domain: Domain
    routes: tuple[PlacedRoute, ...]
    onward: tuple[Expression, ...] | None  # as in ``Fragment``
    every_change: bool
    shard: int | None  # the one shard of the second stage that gets its changes; None to route by value

    @property
    def is_result(self) -> bool:
        """True if its changes are the query's result."""
        return self.onward is None

    @property
    def gathered(self) -> int | None:
        """The one shard of the first stage that evaluates it; None for all."""
        return next((each.shard for each in self.routes if each.shard is not None), None)


@dataclass(frozen=True)
class PlacedQuery:
    """A query in the two stages."""

    id: int  # the incarnation
    name: str
    buckets: int
    result: Result
    domain: Domain
    fragments: tuple[PlacedFragment, ...]
    second: Node | None  # the second stage's plan over the fragments; None if the first finishes them
    shard: int | None  # the one shard of the second stage that computes it; None for all

    @classmethod
    def of(cls, registered: RegisteredQuery, shards: int) -> PlacedQuery:
        result, plan, placement = _divided(registered.query.plan)
        found = {each.name: each for each in walk(plan) if isinstance(each, Stream) and not each.static}
        streams, lateness = tuple(sorted(found)), max((each.lateness_us for each in found.values()), default=0)
        clock = clock_of(plan)
        # Results at the multiples of a period may need several batches; other queries must not wait for them.
        domain = Domain(named("domain", streams, clock, is_periodic(plan), lateness), streams, clock, lateness)
        gathered = placement.gathered_in(shards)
        fragments = tuple(_fragment(each, domain, gathered, shards) for each in placement.fragments)
        alone = placement.second is not None and all(each.onward == () for each in fragments)
        shard = gathered if alone else None
        number, name, buckets = registered.id, registered.name, registered.buckets
        return cls(number, name, buckets, result, domain, fragments, placement.second, shard)


def _divided(plan: Relation | Changes) -> tuple[Result, Relation | Changes, Placement]:
    result = result_of(plan)
    shared = shareable(result.plan)
    return result, shared, placed(shared)


def _fragment(fragment: Fragment, domain: Domain, gathered: int, shards: int) -> PlacedFragment:
    first, routes = fragment.gathered_in(shards), list[PlacedRoute]()
    read = columns_read(fragment.plan)
    for each in fragment.routes:
        shard = None if each.by else first
        newest = domain.clock == "arrival" and _takes_newest(fragment.plan, each.stream)
        name = named("routing", identity(replace(each.stream, lateness_us=0)), content(each.by), shard, newest)
        routes.append(PlacedRoute(name, each.stream, each.by, shard, newest, read[each.stream]))
    group = named("group", domain.name, sorted((each.stream.name, each.name) for each in routes))
    onward, every_change = fragment.onward, fragment.every_change
    second = gathered if onward == () else None
    name = named("piece", identity(fragment.plan), content(onward), second, every_change, group)
    return PlacedFragment(name, fragment.plan, group, domain, tuple(routes), onward, every_change, second)


def _takes_newest(plan: Node, stream: Stream) -> bool:
    """Return whether a plan reads a stream through ``LATEST`` alone. By arrival, only its newest rows then count."""
    readers = [each for each in walk(plan) if stream in each.inputs]
    newest = all(isinstance(each, WindowOver) and isinstance(each.window, Latest) for each in readers)
    return bool(readers) and newest and all(is_hashable(stream.schema.field(name).type) for name in stream.key)


def named(*parts: object) -> str:
    """Return a short name for some values: the same in every process."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def rehearse(plan: Relation | Changes, name: str, location: str, buckets: int) -> None:
    """Place a query, compile its expressions and lay out its table as the job will, or raise QueryRefusedError."""
    on_deep_stack(lambda: _rehearse(plan, name, location, buckets))


def _rehearse(plan: Relation | Changes, name: str, location: str, buckets: int) -> None:
    shared: Node = plan
    try:
        result, shared, placement = _divided(plan)
        _compile(shared, placement, collapse=result.kind == "latest")
        _check_constants(shared)
        _check_lateness(plan)
        _check_types(plan)
        layout_of(result.table(0, name, location, buckets))
    except UpstreamError as error:
        problem = in_words(error.problem, shared)
        raise QueryRefusedError(problem, expected=error.expected, hint=error.hint) from error
    except FAILURES as error:
        raise QueryRefusedError(
            f"the query cannot be planned: {type(attributed(error)).__name__}: {error}",
            expected="a query that can be evaluated as it is written",
            hint="report it, with the text",
        ) from error


def _check_types(plan: Relation | Changes) -> None:
    for each in plan.schema:
        if pa.types.is_duration(each.type):
            raise SchemaError(
                f"the column {each.name!r} is an interval, which a Delta table cannot hold",
                expected="a number of units, or two times",
                hint="timestampdiff(SECOND, a, b) counts between two times, and EXTRACT(HOUR FROM i) is a part",
            )
        if has_map(each.type):
            raise map_refused(each.name, each.type)


def _check_lateness(plan: Node) -> None:
    """Raise OptionError if rows of a plan that came in time may depend on late ones, or its results on their order."""
    if not any(isinstance(each, Stream) and each.lateness_us for each in walk(plan)):
        return
    kinds = Session, RowWindow, Latest, Now
    for node in walk(plan):
        window = isinstance(node, WindowOver) and isinstance(node.window, kinds)
        emits = isinstance(node, Changes) and (node.kind != "istream" or loses_rows(node.source))
        if window or emits or (isinstance(node, Join) and node.as_of is not None):
            raise OptionError(
                "lateness of a query whose results cannot be corrected",
                expected="streams without windows, or RANGE, HOP and TUMBLE with aggregates; no EMIT, session, newest "
                "rows, OVER by time, or ASOF JOIN",
                hint="leave lateness out, and give the source dead_letter_rows = 'late', or a longer watermark delay",
            )


def _check_constants(plan: Node) -> None:
    """Raise the error of a part without streams, whose rows are always the same."""
    constant: dict[Node, bool] = {}
    for node in walk(plan):
        constant[node] = not isinstance(node, Stream) and all(constant[each] for each in node.inputs)
    below = {each for node, same in constant.items() if not same for each in node.inputs if constant[each]}
    for node in [plan] if constant[plan] else below:
        evaluation = Evaluation(DictStore())
        evaluation.add("query", node, collapse=True)
        for error in evaluation.step({}, 0).failed.values():
            raise error


def _compile(plan: Node, placement: Placement, *, collapse: bool) -> None:
    clock = clock_of(plan)
    for each in placement.fragments:
        Evaluation(DictStore(), clock=clock).add("query", each.plan, collapse=collapse)
        for route in each.routes:
            for one in route.by:
                computed(one, route.stream.schema)
        for one in each.onward or ():
            computed(one, each.plan.schema)
    if placement.second is not None:
        given = [each.plan for each in placement.fragments]
        Evaluation(DictStore(), clock=clock).add("query", placement.second, given, collapse=collapse)


class HostPlan:
    """The hosted queries of one version of the registry.

    `slots` has the number by which Spark groups each shard's rows, in both stages. `queries`, `refused` (the names and
    reasons of queries that cannot be hosted), `failed` and `held` (paused with their state) are by incarnation;
    `routes` are by stream and name.
    """

    def __init__(self, registry: Registry, slots: Sequence[int]) -> None:
        self.version = registry.version
        self.slots = tuple(slots)
        self.queries: dict[int, PlacedQuery] = {}
        self.refused: dict[int, tuple[str, str]] = {}
        self.failed = registry.failed
        self.held = frozenset(each.id for each in registry.active.values() if not each.active)
        self.routes: dict[str, dict[str, PlacedRoute]] = {}
        self._placed: dict[int, tuple[RegisteredQuery, PlacedQuery | str]] = {}
        self._streams = registry.catalog.streams

    def stream(self, name: str) -> Stream:
        return self._streams[name]

    def readers(self, stream: str) -> tuple[bool, bool]:
        """Return whether a stream has routings of newest rows only, and whether it has routings of every row."""
        newest = {each.newest for each in self.routes.get(stream, {}).values()}
        return True in newest, False in newest

    def sends(self, fragment: PlacedFragment) -> bool:
        """Return whether the scan sends all that a fragment reads, as other queries read it."""
        sent = ((each, self.routes.get(each.stream.name, {}).get(each.name)) for each in fragment.routes)
        return all(known is not None and route.columns <= known.columns for route, known in sent)

    @property
    def shards(self) -> int:
        return len(self.slots)

    def served(self, asked: frozenset[int] | None) -> frozenset[int] | None:
        """Return the queries whose results a batch emits (None: all), given the command's: none that is paused."""
        return asked if not self.held else frozenset(self.queries if asked is None else asked) - self.held

    @cached_property
    def timed(self) -> Mapping[str, tuple[PlacedRoute, Mapping[str, Domain]]]:
        """By stream: the first of its routes, and the domains of the queries that read it by the clock of event time.

        Each route of such queries has all rows of the stream.
        """
        routes, domains = dict[str, PlacedRoute](), dict[str, dict[str, Domain]]()
        for query in self.queries.values():
            if query.domain.clock == "event":
                for route in (route for each in query.fragments for route in each.routes if not route.stream.static):
                    name = route.stream.name
                    routes[name] = min(routes.get(name, route), route, key=lambda one: one.name)
                    domains.setdefault(name, {})[query.domain.name] = query.domain
        return {name: (route, domains[name]) for name, route in sorted(routes.items())}

    @property
    def uses_second(self) -> bool:
        """True if a query needs the second stage, which otherwise only passes results."""
        return any(each.second is not None for each in self.queries.values())

    @property
    def spreads_results(self) -> bool:
        """True if several shards of the second stage can have rows for one bucket of a table."""
        return any(each.second is not None and each.shard is None for each in self.queries.values())

    @classmethod
    def of(
        cls,
        registry: Registry,
        slots: Sequence[int],
        before: HostPlan | None = None,
        ended: Collection[int] = (),
    ) -> HostPlan:
        """Return the plan of a registry without the incarnations in `ended`.

        Queries that are also in `before`, the plan of another version, are not placed again.
        """
        plan = cls(registry, slots)
        known = before._placed if before is not None and before.slots == plan.slots else {}
        for each in sorted(registry.active.values(), key=lambda one: one.id):
            if each.id not in ended:
                was, found = known.get(each.id, (None, ""))
                plan._enter(each, found if was is each else _placed(each, plan.shards))
        return plan

    def _enter(self, registered: RegisteredQuery, found: PlacedQuery | str) -> None:
        self._placed[registered.id] = registered, found
        if isinstance(found, str):
            self.refused[registered.id] = registered.name, found
            return
        self.queries[registered.id] = found
        for fragment in found.fragments:
            for route in fragment.routes:
                routes = self.routes.setdefault(route.stream.name, {})
                known = routes.get(route.name, route)
                routes[route.name] = replace(known, columns=known.columns | route.columns)


def _placed(registered: RegisteredQuery, shards: int) -> PlacedQuery | str:
    """Return a placed query, or the reason why it cannot be hosted."""
    try:
        return PlacedQuery.of(registered, shards)
    except FAILURES as error:
        return str(attributed(error))


class HostPlans:
    """The plans of a registry's versions. A process caches the last ones.

    It can be pickled if `registry_of` can. `opened` is the version with which the job started. A batch that was planned
    earlier runs again without the queries that this version no longer has. So a query that ended the job can be dropped
    or deactivated.
    """

    def __init__(self, registry_of: Callable[[int], Registry], slots: Sequence[int], opened: int = 0) -> None:
        self.registry_of = registry_of
        self.slots = tuple(slots)
        self.opened = opened

    def __call__(self, version: int) -> HostPlan:
        registry = self.registry_of(version)
        ended = self._ended(registry)
        with _lock:
            same = (plan for known, without, plan in _plans if known is registry and without == ended)
            found = next((plan for plan in same if plan.slots == self.slots), None)
            if found is None:
                before = next((plan for _, _, plan in reversed(_plans) if plan.slots == self.slots), None)
                found = on_deep_stack(lambda: HostPlan.of(registry, self.slots, before, ended))
                _plans.append((registry, ended, found))
                del _plans[:-_KEPT]
            return found

    def _ended(self, registry: Registry) -> frozenset[int]:
        if registry.version >= self.opened:
            return frozenset()
        there = {each.id for each in self.registry_of(self.opened).active.values()}
        return frozenset(each.id for each in registry.active.values()) - there


_KEPT = 8
_lock = threading.RLock()
_plans: list[tuple[Registry, frozenset[int], HostPlan]] = []
