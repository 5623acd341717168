"""The registry at a version: the queries in force, each bound to its plan."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from ...conf.errors import CheckpointError
from ...expressions.kinds import UTC
from ...operators.relations.operator import FAILURES, attributed
from ...sql import Catalog, Query, bind
from .changes import Settings, found, known_name, whole_view
from .journal import Journal
from .state import JournalQuery, RegistryTexts

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class RegisteredQuery:
    """A query of the registry."""

    id: int  # the incarnation, as in ``JournalQuery``
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
    queries: Mapping[str, RegisteredQuery]  # all, inactive ones included
    settings: Settings
    deleted: Mapping[str, int] = field(default_factory=dict[str, int])  # as in ``RegistryTexts``
    failed: frozenset[int] = frozenset()  # failed incarnations

    @cached_property
    def active(self) -> Mapping[str, RegisteredQuery]:
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
        self._kept: OrderedDict[int, tuple[RegistryTexts, Registry]] = OrderedDict()

    def at(self, journal: Journal, version: int) -> Registry:
        if version not in self._kept:
            earlier = [each for each in self._kept if each < version]
            state = self._kept[max(earlier)][0] if earlier else RegistryTexts()
            state = state.after(journal.read(range(state.version + 1, version + 1)))
            self._kept[version] = state, self._registry(state)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(version)
        return self._kept[version][1]

    def _registry(self, state: RegistryTexts) -> Registry:
        streams = {**self._streams.streams, **state.relations}
        catalog = dataclasses.replace(self._streams, streams=streams, views=state.views)
        known: dict[tuple[int, str], RegisteredQuery] = {}
        for _, registry in self._kept.values():  # the newest last
            known.update({(each.id, each.name): each for each in registry.queries.values()})
        queries = {
            name: self._registered(entry, catalog, known.get((entry.id, name))) for name, entry in state.entries.items()
        }
        return Registry(state.version, catalog, queries, self.settings, state.deleted, state.failed)

    def _registered(self, entry: JournalQuery, catalog: Catalog, known: RegisteredQuery | None) -> RegisteredQuery:
        active, reason = entry.active, entry.reason
        bound = known.bound if known is not None else None
        if active and bound is None:
            try:
                bound = bind(entry.text, catalog.in_zone(entry.time_zone))
            except FAILURES as error:
                active, reason = False, str(attributed(error))
        made = RegisteredQuery(
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


_WORD = re.compile(r"[\w.-]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class QueryStatus(Protocol):
    """The job's report of a query."""

    @property
    def whole_from(self) -> int | None:
        """The event time in µs from which its results are complete, if known."""

    @property
    def staleness_s(self) -> float | None:
        """The age in seconds of the rows that its table took last."""

    @property
    def waiting_since_us(self) -> int | None:
        """The oldest arrival in µs behind results that wait; None if none wait."""


def listed(registry: Registry, reports: Mapping[int, QueryStatus], now_us: int) -> pl.DataFrame:
    """Return a row for each query, in order of registration.

    `reports` are by incarnation, so a query that has restarted since its report has none.
    """
    import polars as pl

    rows = list[tuple[object, ...]]()
    for each in registry.queries.values():
        report = reports.get(each.id)
        whole_from = None if report is None else _time(report.whole_from)
        staleness = None if report is None else report.staleness_s
        since = None if report is None or not each.active else report.waiting_since_us
        waiting = None if since is None else max(now_us - since, 0) / 1e6
        rows.append((each.name, each.text, each.weight, each.active, each.reason, whole_from, staleness, waiting))
    columns = {"name": pl.String, "text": pl.String, "weight": pl.Float64, "active": pl.Boolean, "reason": pl.String}
    more = {"whole_from": pl.Datetime("us", "UTC"), "staleness": pl.Float64, "waiting": pl.Float64}
    return pl.DataFrame(rows, {**columns, **more}, orient="row")


def _time(time_us: int | None) -> datetime | None:
    """Return a time; `datetime.min` for the beginning of a stream."""
    try:
        return None if time_us is None else _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return datetime.min.replace(tzinfo=timezone.utc)


def text_of(query: str, registry: Registry) -> str:
    """Return the text of a registered query or of a view, given its name; return a text unchanged.

    Raises OptionError if `query` is one word and no query or view has this name.
    """
    name = found(query, registry.queries)
    if name is not None:
        return registry.queries[name].text
    view = registry.catalog.view(query)
    if view is not None:
        return whole_view(view[0])
    if _WORD.fullmatch(query.strip()):
        known_name(query.strip(), [*registry.queries, *registry.catalog.views], "query")
    return query
