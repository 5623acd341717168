"""The placed plan of each hosted query, and all of them at one version of the registry."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..conf.deep_stack import on_deep_stack
from ..conf.errors import QueryRefusedError, UpstreamError
from ..expressions.nodes import Expression
from ..operators.relations.evaluation import Evaluation
from ..operators.relations.operator import FAILURES, attributed, computed
from ..operators.relations.plan.common_parts import in_words, shareable
from ..operators.relations.plan.identity import content, identity
from ..operators.relations.plan.nodes import Changes, Node, Relation, Stream, walk
from ..operators.relations.plan.properties import Clock, clock_of, is_periodic
from ..operators.state.store import DictStore
from ..sink.results.result_table import layout_of
from .placement import Fragment, Placement, placed
from .result_schema import Result, result_of

if TYPE_CHECKING:
    from .registry import RegisteredQuery, Registry


@dataclass(frozen=True)
class Domain:
    """Streams and a clock whose evaluations step to the same time."""

    name: str
    streams: tuple[str, ...]  # sorted, without stored relations, which have no time
    clock: Clock


@dataclass(frozen=True)
class PlacedRoute:
    """The division of a stream's rows among the shards of the first stage."""

    name: str
    stream: Stream
    by: tuple[Expression, ...]  # over the stream's columns; an empty tuple sends all rows to one shard
    shard: int | None  # that shard


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
        streams = tuple(sorted({each.name for each in walk(plan) if isinstance(each, Stream) and not each.static}))
        clock = clock_of(plan)
        # Results at the multiples of a period may need several batches; other queries must not wait for them.
        domain = Domain(named("domain", streams, clock, is_periodic(plan)), streams, clock)
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
    for each in fragment.routes:
        shard = None if each.by else first
        name = named("routing", identity(each.stream), content(each.by), shard)
        routes.append(PlacedRoute(name, each.stream, each.by, shard))
    group = named("group", domain.name, sorted((each.stream.name, each.name) for each in routes))
    onward, every_change = fragment.onward, fragment.every_change
    second = gathered if onward == () else None
    name = named("piece", identity(fragment.plan), content(onward), second, every_change, group)
    return PlacedFragment(name, fragment.plan, group, domain, tuple(routes), onward, every_change, second)


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
    reasons of queries that cannot be hosted) and `failed` use incarnations; `routes` are by stream and name.
    """

    def __init__(self, registry: Registry, slots: Sequence[int]) -> None:
        self.version = registry.version
        self.slots = tuple(slots)
        self.queries: dict[int, PlacedQuery] = {}
        self.refused: dict[int, tuple[str, str]] = {}
        self.failed = registry.failed
        self.routes: dict[str, dict[str, PlacedRoute]] = {}
        self._placed: dict[int, tuple[RegisteredQuery, PlacedQuery | str]] = {}
        self._streams = registry.catalog.streams

    def stream(self, name: str) -> Stream:
        return self._streams[name]

    @property
    def shards(self) -> int:
        return len(self.slots)

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
                self.routes.setdefault(route.stream.name, {}).setdefault(route.name, route)


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
