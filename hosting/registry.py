"""The registry at a version: the sum of the journal's changes, and the queries in force with their plans."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from ..conf.errors import CheckpointError
from ..expressions.kinds import UTC
from ..operators.relations.plan.nodes import Stream
from .journal import Change, Journal, Settings, found, known_name, relation_of, whole_view

if TYPE_CHECKING:
    from ..language import Catalog, Query


@dataclass(frozen=True)
class RegisteredQuery:
    """A query of the registry."""

    id: int  # incarnation: greater after each start, which also restarts the table
    name: str
    text: str
    weight: float = 1.0
    active: bool = True
    reason: str | None = None  # of its inactivity, if known
    buckets: int = 1  # number of parts of its table
    location: str = ""  # of its table
    bound: Query | None = field(default=None, compare=False, repr=False)  # its plan; certain only for active queries
    time_zone: str = UTC  # of its expressions
    kept_since_us: int | None = None  # since when it is paused with its state kept up to date
    lateness_us: int = 0  # by how much below the low-watermark rows still count
    queue: Mapping[str, str] = field(default_factory=dict[str, str])  # as in `ViewQueue`; empty for none

    @property
    def runs(self) -> bool:
        """True if it is evaluated, even if its table is not written."""
        return self.active or self.kept_since_us is not None

    def scope(self, catalog: Catalog) -> Catalog:
        """Return a catalog as the query reads it."""
        return catalog.in_zone(self.time_zone).with_lateness(self.lateness_us)

    @property
    def query(self) -> Query:
        """The query with its plan. Raises ValueError if there is none; active queries always have one."""
        if self.bound is None:
            raise ValueError(f"the query '{self.name}' is not active, so it has no plan")
        return self.bound


@dataclass(frozen=True)
class RegistryTexts:
    """The sum of a journal's changes at one version, without plans."""

    version: int = 0
    entries: Mapping[str, RegisteredQuery] = field(default_factory=dict[str, RegisteredQuery])
    views: Mapping[str, str] = field(default_factory=dict[str, str])
    # By dropped query: last change that deleted its table, and so all contents from before
    deleted: Mapping[str, int] = field(default_factory=dict[str, int])
    relations: Mapping[str, Stream] = field(default_factory=dict[str, Stream])  # the stored relations
    statements: Mapping[str, str] = field(default_factory=dict[str, str])  # as written, by what they define
    begun: int = 0  # largest number that an incarnation or a table's deletion has used
    failed: frozenset[int] = frozenset()  # failed incarnations
    functions: Mapping[str, str] = field(default_factory=dict[str, str])  # statements that declare functions

    def after(self, changes: Iterable[Change]) -> RegistryTexts:
        """Return the state after the next changes, in order.

        A change has no effect if its query no longer exists, or if it reports a failed incarnation that is no longer in
        force.
        """
        entries, views, relations = dict(self.entries), dict(self.views), dict(self.relations)
        deleted, version, begun, failed = dict(self.deleted), self.version, self.begun, set(self.failed)
        statements, functions = dict(self.statements), dict(self.functions)
        texts = {"view": views, "statement": statements, "function": functions}
        dropped = {"drop_view": views, "drop_function": functions, "drop_table": relations}
        for whole in changes:
            version += 1
            for change in (*(whole.parts or ()), whole):
                new = max(version, begun + 1)
                if change.kind in ("alter", "drop", "view", *dropped):
                    statements.pop(change.name, None)
                if change.kind in texts:
                    texts[change.kind][change.name] = change.text or ""
                elif change.kind in dropped:
                    dropped[change.kind].pop(change.name, None)
                elif change.kind == "table":
                    relations[change.name] = relation_of(change)
                elif change.kind == "create":
                    entries[change.name] = registered(change, new)
                elif change.kind == "drop":
                    gone = entries.pop(change.name, None)
                    if gone is not None and change.delete_table:
                        deleted[change.name] = begun = max(version, begun)
                elif change.name in entries:
                    before = entries[change.name]
                    entries[change.name] = _changed(before, change, new)
                    if change.kind == "fail" and entries[change.name] is not before:
                        failed.add(before.id)
                for name in change.restarts or ():
                    if name in entries and entries[name].runs:
                        begun = max(version, begun + 1)
                        entries[name] = replace(entries[name], id=begun)
                if change.name in entries:
                    begun = max(begun, entries[change.name].id)
        return RegistryTexts(
            version, entries, views, deleted, relations, statements, begun, frozenset(failed), functions
        )


def registered(change: Change, version: int) -> RegisteredQuery:
    """Return the query that a change creates."""
    weight = 1.0 if change.weight is None else change.weight
    active, buckets, zone = change.active is not False, change.buckets or 1, change.time_zone or UTC
    query = RegisteredQuery(version, change.name, change.text or "", weight, active, buckets=buckets, time_zone=zone)
    return replace(query, lateness_us=change.lateness_us or 0, queue=change.queue or {})


def _changed(entry: RegisteredQuery, change: Change, version: int) -> RegisteredQuery:
    if change.kind == "activate":
        if entry.active:
            return entry
        return replace(entry, id=entry.id if entry.runs else version, active=True, kept_since_us=None, reason=None)
    if change.kind == "deactivate":
        since = change.kept_since_us
        reason = change.reason if since is None else _kept_reason(since, change.reason)
        return replace(entry, active=False, kept_since_us=since, reason=reason) if entry.runs else entry
    if change.kind == "fail":
        current = entry.runs and entry.id == change.id
        return replace(entry, active=False, kept_since_us=None, reason=change.reason) if current else entry
    weight = entry.weight if change.weight is None else change.weight
    queue = entry.queue if change.queue is None else change.queue
    restarts = {**queue, "budget": ""} != {**entry.queue, "budget": ""} or bool(queue) != bool(entry.queue)
    if (change.text is None or change.text == entry.text) and not restarts:
        return replace(entry, weight=weight, queue=queue)
    if not entry.active and entry.runs:
        entry = replace(entry, kept_since_us=None, reason="paused; its state was of the text before")
    # A failed query stays inactive until a user activates it.
    zone, text = change.time_zone or entry.time_zone, change.text or entry.text
    return replace(entry, id=version, text=text, weight=weight, time_zone=zone, queue=queue)


def _kept_reason(since_us: int, reason: str | None) -> str:
    since = datetime.fromtimestamp(since_us // 1_000_000, timezone.utc)
    return f"state kept since {since:%Y-%m-%d %H:%M:%S} UTC" + (f": {reason}" if reason else "")


@dataclass(frozen=True)
class Registry:
    """The queries and views at one version of the journal. The version is the number of its newest change."""

    version: int
    catalog: Catalog  # streams, stored relations and views that queries can name
    queries: Mapping[str, RegisteredQuery]  # all, inactive ones included
    settings: Settings
    deleted: Mapping[str, int] = field(default_factory=dict[str, int])  # as in ``RegistryTexts``
    failed: frozenset[int] = frozenset()  # failed incarnations
    statements: Mapping[str, str] = field(default_factory=dict[str, str])  # as in ``RegistryTexts``

    @cached_property
    def active(self) -> Mapping[str, RegisteredQuery]:
        """The queries that the job evaluates, including those that are paused with their state."""
        return {name: each for name, each in self.queries.items() if each.runs}


def registry_at(checkpoint: str, version: int, *, nonce: str | None = None) -> Registry:
    """Return the registry at a version of the journal, where 0 is the one before all changes.

    The same journal always gives the same registry. A query whose text no longer binds, perhaps after an upgrade, is
    inactive, and its reason is the error. With `nonce`, that of the checkpoint's settings, a cached version is returned
    without reading the checkpoint. Bound queries are reused by incarnation, so a change costs as much as its own query.
    """
    journal = Journal(checkpoint)
    return _versions_of(journal, nonce).at(journal, version)


def _versions_of(journal: Journal, nonce: str | None = None) -> _Versions:
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
        return known


def registry_now(checkpoint: str) -> Registry:
    """Return the registry at the journal's newest version."""
    return registry_at(checkpoint, Journal(checkpoint).version())


def texts_now(checkpoint: str) -> tuple[RegistryTexts, Catalog, Settings]:
    """Return the newest version without plans, which parses no query: one that no longer binds counts as active."""
    journal = Journal(checkpoint)
    known = _versions_of(journal)
    texts = known.texts(journal, journal.version())
    return texts, known.catalog(texts), known.settings


_CHECKPOINTS = 8
_KEPT = 8
_Cached = TypeVar("_Cached")
_lock = threading.RLock()


class _Versions:
    """A process's cache of one checkpoint's last registries."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._streams = settings.catalog()
        self._texts: OrderedDict[int, RegistryTexts] = OrderedDict()
        self._kept: OrderedDict[int, Registry] = OrderedDict()
        # Readers of texts do not wait for queries that are bound: a thousand take seconds.
        self._reading, self._binding = threading.Lock(), threading.RLock()

    def texts(self, journal: Journal, version: int) -> RegistryTexts:
        """Return the state at a version; it costs as much as the changes since an earlier one that is cached."""
        with self._reading:
            if version not in self._texts:
                earlier = [each for each in self._texts if each < version]
                state = self._texts[max(earlier)] if earlier else RegistryTexts()
                self._texts[version] = state.after(journal.read(range(state.version + 1, version + 1)))
            return _newest(self._texts, version)

    def at(self, journal: Journal, version: int) -> Registry:
        with self._binding:
            if version not in self._kept:
                self._kept[version] = self._registry(self.texts(journal, version))
            return _newest(self._kept, version)

    def catalog(self, state: RegistryTexts) -> Catalog:
        streams = {**self._streams.streams, **state.relations}
        return dataclasses.replace(self._streams, streams=streams, views=state.views, functions=state.functions)

    def _registry(self, state: RegistryTexts) -> Registry:
        catalog = self.catalog(state)
        known: dict[tuple[int, str], RegisteredQuery] = {}
        for registry in self._kept.values():  # the newest last
            known.update({(each.id, each.name): each for each in registry.queries.values()})
        queries = {
            name: self._registered(entry, catalog, known.get((entry.id, name))) for name, entry in state.entries.items()
        }
        return Registry(state.version, catalog, queries, self.settings, state.deleted, state.failed, state.statements)

    def _registered(self, entry: RegisteredQuery, catalog: Catalog, known: RegisteredQuery | None) -> RegisteredQuery:
        made = replace(entry, location=self.settings.table_of(entry.name), bound=known.bound if known else None)
        if made.runs and made.bound is None:
            made = _bound(made, catalog)
        return known if known is not None and known == made and known.bound is made.bound else made


def _newest(cached: OrderedDict[int, _Cached], version: int) -> _Cached:
    """Return a cached version, and drop those that have not been used for the longest time."""
    cached.move_to_end(version)
    while len(cached) > _KEPT:
        cached.popitem(last=False)
    return cached[version]


_versions: OrderedDict[str, _Versions] = OrderedDict()


def _bound(query: RegisteredQuery, catalog: Catalog) -> RegisteredQuery:
    """Return a query with its plan; inactive if it cannot be bound."""
    from ..operators.relations.operator import FAILURES, attributed

    try:
        return replace(query, bound=bind_registered(query, catalog))
    except FAILURES as error:
        return replace(query, active=False, kept_since_us=None, reason=str(attributed(error)))


def bind_registered(query: RegisteredQuery, catalog: Catalog) -> Query:
    """Return a query's plan, with its queue."""
    # The process that plans batches needs no plans, and does without the parser.
    from ..language import ViewQueue, bind

    return ViewQueue.put(bind(query.text, query.scope(catalog)), query.name, query.queue, query.time_zone)


_WORD = re.compile(r"[\w.-]+")


def text_of(query: str, registry: Registry) -> str:
    """Return the text of a registered query or view; texts are unchanged. Raise OptionError for an unknown name."""
    name = found(query, registry.queries)
    if name is not None:
        return registry.queries[name].text
    view = registry.catalog.view(query)
    if view is not None:
        return whole_view(view[0])
    if _WORD.fullmatch(query.strip()):
        known_name(query.strip(), [*registry.queries, *registry.catalog.views], "query")
    return query
