"""What the changes of a journal add up to, as text: nothing is parsed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..expressions.kinds import UTC
from ..relations.nodes import Stream
from .changes import Change
from .stored import relation_of

__all__ = ["Entry", "State"]


@dataclass(frozen=True)
class Entry:
    """A query as the journal has it.

    Parameters
    ----------
    id : int
        The version that started it: that registered it, changed its text, activated it, or brought another version of
        a relation that it reads. Its table begins again with each.
    name, text : str
    weight : float
    active : bool
    reason : str or None
        Why it is not active, if somebody has said so.
    buckets : int
    time_zone : str
        In which its expressions have their values.
    """

    id: int
    name: str
    text: str
    weight: float = 1.0
    active: bool = True
    reason: str | None = None
    buckets: int = 1
    time_zone: str = UTC


@dataclass(frozen=True)
class State:
    """The registry's texts at one version.

    Parameters
    ----------
    version : int
    entries : mapping of str to Entry
    views : mapping of str to str
    deleted : mapping of str to int
        The queries that were dropped with their tables, and the last change that did so: what they wrote before it is
        to go.
    relations : mapping of str to Stream
        The stored relations.
    begun : int
        No incarnation has a greater number, nor had one whose table was to go.
    failed : frozenset of int
        The incarnations that have failed.

    Examples
    --------
    >>> from upstream.queries.registry.changes import Change
    >>> from upstream.queries.registry.state import State
    >>> state = State().after([Change("register", "q", "SELECT * FROM s"), Change("alter", "q", weight=3.0)])
    >>> state.version, state.entries["q"].id, state.entries["q"].weight
    (2, 1, 3.0)
    """

    version: int = 0
    entries: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    views: Mapping[str, str] = field(default_factory=dict[str, str])
    deleted: Mapping[str, int] = field(default_factory=dict[str, int])
    relations: Mapping[str, Stream] = field(default_factory=dict[str, Stream])
    begun: int = 0
    failed: frozenset[int] = frozenset()

    def after(self, changes: Iterable[Change]) -> State:
        """Return the state after the changes that follow its version, in order.

        A change that cannot apply changes nothing: a query is named that is not there, or an incarnation has failed
        that is no longer in force.
        """
        entries, views, relations = dict(self.entries), dict(self.views), dict(self.relations)
        deleted, version, begun, failed = dict(self.deleted), self.version, self.begun, set(self.failed)
        for change in changes:
            version += 1
            new = max(version, begun + 1)
            if change.kind == "view":
                views[change.name] = change.text or ""
            elif change.kind == "drop_view":
                views.pop(change.name, None)
            elif change.kind == "relation":
                relations[change.name] = relation_of(change)
                for name in change.restarts or ():
                    if name in entries and entries[name].active:
                        begun = max(version, begun + 1)
                        entries[name] = replace(entries[name], id=begun)
            elif change.kind == "drop_relation":
                relations.pop(change.name, None)
            elif change.kind == "register":
                entries[change.name] = _registered(change, new)
            elif change.kind == "drop":
                dropped = entries.pop(change.name, None)
                if dropped is not None and change.delete_table:
                    deleted[change.name] = begun = max(version, begun)
            elif change.name in entries:
                before = entries[change.name]
                entries[change.name] = _changed(before, change, new)
                if change.kind == "fail" and entries[change.name] is not before:
                    failed.add(before.id)
            if change.name in entries:
                begun = max(begun, entries[change.name].id)
        return State(version, entries, views, deleted, relations, begun, frozenset(failed))


def _registered(change: Change, version: int) -> Entry:
    return Entry(
        version,
        change.name,
        change.text or "",
        1.0 if change.weight is None else change.weight,
        change.active is not False,
        None,
        change.buckets or 1,
        change.time_zone or UTC,
    )


def _changed(entry: Entry, change: Change, version: int) -> Entry:
    if change.kind == "activate":
        return entry if entry.active else replace(entry, id=version, active=True, reason=None)
    if change.kind == "deactivate":
        return replace(entry, active=False, reason=change.reason) if entry.active else entry
    if change.kind == "fail":
        current = entry.active and entry.id == change.id
        return replace(entry, active=False, reason=change.reason) if current else entry
    weight = entry.weight if change.weight is None else change.weight
    if change.text is None or change.text == entry.text:
        return replace(entry, weight=weight)
    # A query that failed stays inactive until somebody activates it.
    return replace(entry, id=version, text=change.text, weight=weight, time_zone=change.time_zone or entry.time_zone)
