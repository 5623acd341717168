"""The registry at a version: the queries in force, each bound to its plan."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ...conf.errors import CheckpointError
from ..deltas.failures import FAILURES, attributed
from ..expressions.kinds import UTC
from ..language import Catalog, Query, bind
from .journal import Journal
from .settings import Settings
from .state import Entry, State

__all__ = ["Registered", "Registry", "registry_at", "registry_now"]


@dataclass(frozen=True)
class Registered:
    """A query of the registry."""

    id: int  # the incarnation, as in ``Entry``
    name: str
    text: str
    weight: float
    active: bool
    reason: str | None  # of its inactivity, if known
    buckets: int  # number of parts of its table
    location: str  # of its table
    bound: Query | None = field(default=None, compare=False, repr=False)  # its plan; certain only for active queries
    time_zone: str = UTC  # of its expressions

    @property
    def query(self) -> Query:
        """The query with its plan. Raises ValueError if there is none; active queries always have one."""
        if self.bound is None:
            raise ValueError(f"the query '{self.name}' is not active, so it has no plan")
        return self.bound


@dataclass(frozen=True)
class Registry:
    """The queries and views at one version of the journal. The version is the number of its newest change."""

    version: int
    catalog: Catalog  # streams, stored relations and views that queries can name
    queries: Mapping[str, Registered]  # all, inactive ones included
    settings: Settings
    deleted: Mapping[str, int] = field(default_factory=dict[str, int])  # as in ``State``
    failed: frozenset[int] = frozenset()  # failed incarnations

    @cached_property
    def active(self) -> Mapping[str, Registered]:
        return {name: each for name, each in self.queries.items() if each.active}


def registry_at(checkpoint: str, version: int, *, nonce: str | None = None) -> Registry:
    """Return the registry at a version of the journal, where 0 is the one before all changes.

    The same journal always gives the same registry. A query whose text no longer binds, perhaps after an upgrade, is
    inactive, and its reason is the error. With `nonce`, that of the checkpoint's settings, a cached version is returned
    without reading the checkpoint. Bound queries are reused by incarnation, so a change costs as much as its own query.
    """
    journal = Journal(checkpoint)
    with _lock:
        known = _versions.get(journal.location)
        if known is None or nonce is None or known.settings.nonce != nonce:
            settings = journal.settings()
            if settings is None:
                raise CheckpointError(
                    f"{journal.location} has no registry of queries",
                    expected="the checkpoint of continuous queries",
                    hint="correct the path; us.queries(…) begins a registry",
                )
            if known is None or known.settings.nonce != settings.nonce:
                known = _versions[journal.location] = _Versions(settings)
        _versions.move_to_end(journal.location)
        while len(_versions) > _CHECKPOINTS:
            _versions.popitem(last=False)
        return known.at(journal, version)


def registry_now(checkpoint: str) -> Registry:
    """Return the registry at the journal's newest version."""
    return registry_at(checkpoint, Journal(checkpoint).version())


_CHECKPOINTS = 8
_KEPT = 8
_lock = threading.RLock()


class _Versions:
    """A process's cache of one checkpoint's last registries."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._streams = settings.catalog()
        self._kept: OrderedDict[int, tuple[State, Registry]] = OrderedDict()

    def at(self, journal: Journal, version: int) -> Registry:
        if version not in self._kept:
            earlier = [each for each in self._kept if each < version]
            state = self._kept[max(earlier)][0] if earlier else State()
            state = state.after(journal.read(range(state.version + 1, version + 1)))
            self._kept[version] = state, self._registry(state)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(version)
        return self._kept[version][1]

    def _registry(self, state: State) -> Registry:
        streams = {**self._streams.streams, **state.relations}
        catalog = dataclasses.replace(self._streams, streams=streams, views=state.views)
        known: dict[tuple[int, str], Registered] = {}
        for _, registry in self._kept.values():  # the newest last
            known.update({(each.id, each.name): each for each in registry.queries.values()})
        queries = {
            name: self._registered(entry, catalog, known.get((entry.id, name))) for name, entry in state.entries.items()
        }
        return Registry(state.version, catalog, queries, self.settings, state.deleted, state.failed)

    def _registered(self, entry: Entry, catalog: Catalog, known: Registered | None) -> Registered:
        active, reason = entry.active, entry.reason
        bound = known.bound if known is not None else None
        if active and bound is None:
            try:
                bound = bind(entry.text, catalog.in_zone(entry.time_zone))
            except FAILURES as error:
                active, reason = False, str(attributed(error))
        made = Registered(
            entry.id,
            entry.name,
            entry.text,
            entry.weight,
            active,
            reason,
            entry.buckets,
            self.settings.table_of(entry.name),
            bound,
            entry.time_zone,
        )
        return known if known is not None and known == made and known.bound is bound else made


_versions: OrderedDict[str, _Versions] = OrderedDict()
