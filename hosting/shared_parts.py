"""EXPLAIN of a query beside the registered ones, with the operators that they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from ..expressions.kinds import UTC
from ..language import Query, SharedWith, bind, plan_text
from ..operators.relations.plan.identity import identity
from ..operators.relations.plan.nodes import Node, Stream
from ..operators.relations.slice_plan import SliceShape, family_key, shape_of, takes
from .host_plan import HostPlan, HostPlans, PlacedQuery
from .journal import found
from .registry import RegisteredQuery, Registry, bind_registered, text_of


def explain_among(query: str, registry: Registry, time_zone: str | None = None) -> str:
    """Return the plan of a query as text, with the registered queries that share its operators.

    `query` is the name of a registered query or of a view, or a text. `time_zone` applies only to a text; UTC by
    default.
    """
    name = found(query, registry.queries)
    own = None if name is None else registry.queries[name]
    catalog = registry.catalog
    text = text_of(query, registry)
    bound = bind(text, catalog.in_zone(time_zone or UTC)) if own is None else bind_registered(own, catalog)
    return plan_text(bound, shared_parts(bound, registry, name))


def shared_parts(query: Query, registry: Registry, name: str | None = None) -> Mapping[str, SharedWith]:
    """Return the active queries that share each operator of a query, by ``part_key``.

    `name` is that of the registered query. Without it, the query counts as registered now. It then shares nothing if it
    reads columns that no other query reads. The sharing is certain for queries that begin in one batch. They may share
    more: operators of the second stage, and slices of later, narrower ones.
    """
    registered = registry.queries[name] if name is not None else None
    number = registered.id if registered is not None else registry.version + 1
    own = RegisteredQuery(number, name or "", query.text, 1.0, True, None, 1, "", query)
    others = {each.name: each for each in registry.active.values() if each.id != number}
    slots = range(registry.settings.shards)
    known = HostPlans(lambda _: registry, slots)(registry.version)
    plan = HostPlan.of(dataclasses.replace(registry, queries={**others, own.name: own}), slots, known)
    if number not in plan.queries:
        return {}
    query_plan = plan.queries.pop(number)
    if name is None:
        query_plan = dataclasses.replace(query_plan, fragments=tuple(filter(known.sends, query_plan.fragments)))
    mine = _Operators(query_plan)
    whole: dict[str, dict[str, None]] = {}
    slices: dict[str, dict[str, None]] = {}
    for each in plan.queries.values():
        theirs = _Operators(each)
        for _, key in mine.whole & theirs.whole:
            whole.setdefault(key, {})[each.name] = None
        for family, key, shape in mine.sliced:
            shapes = (other for at, _, other in theirs.sliced if at == family)
            if any(_shared(shape, other, mine_first=number < each.id) for other in shapes):
                slices.setdefault(key, {})[each.name] = None
    return {
        key: SharedWith(tuple(whole.get(key, ())), tuple(slices.get(key, ()))) for key in whole.keys() | slices.keys()
    }


def _shared(mine: SliceShape, other: SliceShape, *, mine_first: bool) -> bool:
    return takes(other, mine.width) if mine_first else takes(mine, other.width)


class _Operators:
    """The first stage's operators for a query: their evaluation and their name in it."""

    def __init__(self, query: PlacedQuery) -> None:
        self.whole: set[tuple[str, str]] = set()
        self.sliced: list[tuple[tuple[str, str], str, SliceShape]] = []
        for fragment in query.fragments:
            for node in _operators(fragment.plan):
                self.whole.add((fragment.group, identity(node)))
                shape = shape_of(node)
                if shape is not None:
                    self.sliced.append(((fragment.group, family_key(shape)), identity(node), shape))


def _operators(plan: Node) -> Iterator[Node]:
    """Yield the operators of a plan, but none between a slice and its stream: slices need no window there."""
    yield plan
    shape = shape_of(plan)
    below: Collection[Node] = plan.inputs if shape is None else (shape.stream,)
    for each in below:
        if not isinstance(each, Stream):
            yield from _operators(each)
