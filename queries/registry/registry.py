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
    """A query of the registry.

    Parameters
    ----------
    id : int
        The incarnation: the version of the change that last started the query. Its table begins again with each.
    name, text : str
        As they were registered.
    weight : float
    active : bool
        Whether it runs.
    reason : str or None
        Why it does not run, if that is known.
    buckets : int
        How many parts its table has.
    location : str
        Its table's place.
    bound : Query or None
        Its plan; None if it is not active.
    time_zone : str
        In which its expressions have their values.
    """

    id: int
    name: str
    text: str
    weight: float
    active: bool
    reason: str | None
    buckets: int
    location: str
    bound: Query | None = field(default=None, compare=False, repr=False)
    time_zone: str = UTC

    @property
    def query(self) -> Query:
        """The query with its plan. Only active queries are sure to have one."""
        if self.bound is None:
            raise ValueError(f"the query '{self.name}' is not active, so it has no plan")
        return self.bound


@dataclass(frozen=True)
class Registry:
    """The queries and views at one version of the journal.

    Parameters
    ----------
    version : int
        The number of the newest change that it has.
    catalog : Catalog
        The streams, stored relations and views that queries can name.
    queries : mapping of str to Registered
        All queries by name, also those that are not active.
    settings : Settings
        What all queries have in common.
    deleted : mapping of str to int
        As of :class:`~.state.State`.
    failed : frozenset of int
        The incarnations that have failed.
    """

    version: int
    catalog: Catalog
    queries: Mapping[str, Registered]
    settings: Settings
    deleted: Mapping[str, int] = field(default_factory=dict[str, int])
    failed: frozenset[int] = frozenset()

    @cached_property
    def active(self) -> Mapping[str, Registered]:
        """The queries that run."""
        return {name: each for name, each in self.queries.items() if each.active}


def registry_at(checkpoint: str, version: int, *, nonce: str | None = None) -> Registry:
    """Return the registry as it was at a version of the journal.

    Parameters
    ----------
    checkpoint : str
        The checkpoint of the job that hosts the queries.
    version : int
        The number of the newest change to take in; 0 for none.
    nonce : str, optional
        The nonce of the checkpoint's settings, if the caller has it: then a registry that is known is returned without
        a look at the checkpoint.

    Returns
    -------
    Registry
        Always the same for the same journal. A query whose text no longer binds (a later release may refuse what an
        earlier one took) is not active, and its reason is the error.

    Raises
    ------
    CheckpointError
        The checkpoint has no registry, or not this version of it.

    Notes
    -----
    A process remembers the last versions of a checkpoint, and binds the queries that are new since. It takes the bound
    ones over by their incarnation, so a change of one query costs as much as that query.

    Examples
    --------
    >>> registry_at("cp", 12).active.keys()
    dict_keys(['per_route', 'slow'])
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
    """Return the registry with all changes that the journal has by now.

    Raises
    ------
    CheckpointError
        As of :func:`registry_at`.
    """
    return registry_at(checkpoint, Journal(checkpoint).version())


_CHECKPOINTS = 8
_KEPT = 8
_lock = threading.RLock()


class _Versions:
    """The last registries of one checkpoint that this process has needed."""

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
