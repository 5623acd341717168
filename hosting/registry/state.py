"""The sum of a journal's changes, as unparsed texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...expressions.kinds import UTC
from ...operators.relations.plan.nodes import Stream
from .changes import Change, relation_of


@dataclass(frozen=True)
class JournalQuery:
    """A query in the journal."""

    id: int  # incarnation: greater after each start, which also restarts the table
    name: str
    text: str
    weight: float = 1.0
    active: bool = True
    reason: str | None = None  # of its deactivation, if known
    buckets: int = 1
    time_zone: str = UTC  # of its expressions


@dataclass(frozen=True)
class RegistryTexts:
    """The registry's texts at one version."""

    version: int = 0
    entries: Mapping[str, JournalQuery] = field(default_factory=dict[str, JournalQuery])
    views: Mapping[str, str] = field(default_factory=dict[str, str])
    # By dropped query: last change that deleted its table, and so all contents from before
    deleted: Mapping[str, int] = field(default_factory=dict[str, int])
    relations: Mapping[str, Stream] = field(default_factory=dict[str, Stream])  # the stored relations
    begun: int = 0  # largest number that an incarnation or a table's deletion has used
    failed: frozenset[int] = frozenset()  # failed incarnations

    def after(self, changes: Iterable[Change]) -> RegistryTexts:
        """Return the state after the next changes, in order.

        A change has no effect if its query no longer exists, or if it reports a failed incarnation that is no longer in
        force.
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
        return RegistryTexts(version, entries, views, deleted, relations, begun, frozenset(failed))


def _registered(change: Change, version: int) -> JournalQuery:
    return JournalQuery(
        version,
        change.name,
        change.text or "",
        1.0 if change.weight is None else change.weight,
        change.active is not False,
        None,
        change.buckets or 1,
        change.time_zone or UTC,
    )


def _changed(entry: JournalQuery, change: Change, version: int) -> JournalQuery:
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
    # A failed query stays inactive until a user activates it.
    return replace(entry, id=version, text=change.text, weight=weight, time_zone=change.time_zone or entry.time_zone)
