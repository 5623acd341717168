"""The two stages' plan for one version of the registry: shared evaluations, routing of rows, and results."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..conf.deep_stack import on_deep_stack
from ..expressions.nodes import Expression
from ..operators.relations.operator import FAILURES, attributed
from ..operators.relations.plan.common_parts import shareable
from ..operators.relations.plan.identity import content, identity
from ..operators.relations.plan.nodes import Node, Sample, Stream, walk
from ..operators.relations.plan.properties import Clock, clock_of, is_periodic
from .placement.placement import Fragment, Placement, Route, placed
from .placement.result_schema import Result, result_of

if TYPE_CHECKING:
    from .registry.registry import RegisteredQuery, Registry


@dataclass(frozen=True)
class Domain:
    """Streams and a clock whose evaluations step to the same time."""

    name: str
    streams: tuple[str, ...]  # sorted, without stored relations, which have no time
    clock: Clock


@dataclass(frozen=True)
class StreamRoute:
    """The division of a stream's rows among the shards of the first stage."""

    name: str
    stream: Stream
    by: tuple[Expression, ...]  # over the stream's columns; an empty tuple sends all rows to one shard
    shard: int | None  # that shard


@dataclass(frozen=True)
class Group:
    """Parts of queries that one evaluation of the first stage computes in each shard."""

    name: str
    domain: Domain
    routings: Mapping[str, str]  # name of the routing, by stream
    shard: int | None  # the one shard that evaluates it; None for all


@dataclass(frozen=True)
class PlanFragment:
    """A part of a query in the first stage."""

    name: str  # equal for equal parts whose changes have the same destination
    fragment: Fragment
    group: str
    shard: int | None  # the one shard of the second stage that gets its changes; None to route by value


@dataclass(frozen=True)
class PlacedQuery:
    """A query in the two stages."""

    id: int  # the incarnation
    name: str
    buckets: int
    result: Result
    domain: Domain
    pieces: tuple[PlanFragment, ...]
    second: Node | None  # the second stage's plan over the pieces; None if the first finishes them
    shard: int | None  # the one shard of the second stage that computes it; None for all


class HostPlan:
    """The hosted queries of one version of the registry.

    `slots` has the number by which Spark groups each shard's rows, in both stages. `queries`, `refused` (the names and
    reasons of queries that cannot be hosted) and `failed` use incarnations; `routings` are by stream.
    """

    def __init__(self, version: int, slots: Sequence[int]) -> None:
        self.version = version
        self.slots = tuple(slots)
        self.queries: dict[int, PlacedQuery] = {}
        self.refused: dict[int, tuple[str, str]] = {}
        self.failed: frozenset[int] = frozenset()
        self.groups: dict[str, Group] = {}
        self.routings: dict[str, tuple[StreamRoute, ...]] = {}
        self._registered: dict[int, RegisteredQuery] = {}
        self._streams: Mapping[str, Stream] = {}

    def stream(self, name: str) -> Stream:
        return self._streams[name]

    def routing(self, stream: str, name: str) -> StreamRoute:
        return next(each for each in self.routings[stream] if each.name == name)

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

        Queries that are also in `before`, the plan of another version, are not planned again.
        """
        plan = cls(registry.version, slots)
        plan._streams = registry.catalog.streams
        plan.failed = registry.failed
        for each in sorted(registry.active.values(), key=lambda one: one.id):
            if each.id in ended:
                continue
            plan._registered[each.id] = each
            if before is not None and before.slots == plan.slots and before._registered.get(each.id) is each:
                plan._take_over(before, each.id)
            else:
                plan._add(each)
        return plan

    def _add(self, registered: RegisteredQuery) -> None:
        try:
            result = result_of(registered.query.plan)
            plan = _shareable(result.plan)
            placement = placed(plan)
            self.queries[registered.id] = self._hosted(registered, result, plan, placement)
        except FAILURES as error:
            self.refused[registered.id] = registered.name, str(attributed(error))

    def _hosted(self, registered: RegisteredQuery, result: Result, plan: Node, placement: Placement) -> PlacedQuery:
        domain = _domain(plan)
        streams = {each.name: each for each in walk(plan) if isinstance(each, Stream)}
        gathered = placement.gathered_in(self.shards)
        pieces = tuple(self._piece(each, domain, streams, gathered) for each in placement.fragments)
        alone = placement.second is not None and all(each.fragment.onward == () for each in pieces)
        return PlacedQuery(
            registered.id,
            registered.name,
            registered.buckets,
            result,
            domain,
            pieces,
            placement.second,
            gathered if alone else None,
        )

    def _piece(self, fragment: Fragment, domain: Domain, streams: Mapping[str, Stream], gathered: int) -> PlanFragment:
        first = fragment.gathered_in(self.shards)
        routings = {each.stream: _routing(streams[each.stream], each, first) for each in fragment.routes}
        shard = next((each.shard for each in routings.values() if each.shard is not None), None)
        names = {stream: routing.name for stream, routing in routings.items()}
        group = Group(named("group", domain.name, sorted(names.items())), domain, names, shard)
        self._enter(group, routings.values())
        onward = fragment.onward
        second = gathered if onward == () else None
        name = named("piece", identity(fragment.plan), content(onward), second, fragment.every_change, group.name)
        return PlanFragment(name, fragment, group.name, second)

    def _enter(self, group: Group, routings: Iterable[StreamRoute]) -> None:
        self.groups[group.name] = group
        for each in routings:
            known = self.routings.get(each.stream.name, ())
            if all(one.name != each.name for one in known):
                self.routings[each.stream.name] = (*known, each)

    def _take_over(self, before: HostPlan, number: int) -> None:
        if number in before.refused:
            self.refused[number] = before.refused[number]
            return
        query = self.queries[number] = before.queries[number]
        for piece in query.pieces:
            group = before.groups[piece.group]
            routings = {stream: before.routing(stream, name) for stream, name in group.routings.items()}
            self._enter(group, routings.values())


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


def _shareable(plan: Node) -> Node:
    assert not isinstance(plan, Stream | Sample)
    return shareable(plan)


def _domain(plan: Node) -> Domain:
    clock = clock_of(plan)
    streams = tuple(sorted({each.name for each in walk(plan) if isinstance(each, Stream) and not each.static}))
    # Results at the multiples of a period may need several batches; other queries must not wait for them.
    return Domain(named("domain", streams, clock, is_periodic(plan)), streams, clock)


def _routing(stream: Stream, route: Route, gathered: int) -> StreamRoute:
    shard = None if route.by else gathered
    return StreamRoute(named("routing", identity(stream), content(route.by), shard), stream, route.by, shard)


def named(*parts: object) -> str:
    """Return a short name for some values: the same in every process."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
