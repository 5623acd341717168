"""A shard's state of groups of newest rows, and the groups that a batch changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.feedback.reports import LatestJoinReport
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.newest import key_codes
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array
from ..aggregates.algebra import Aggregates
from ..joins.latest_plan import LatestSide
from ..joins.side import numbers_of, rows_in, without_key
from ..joins.versions import LatestVersions, places
from ..runtime.pack import micros
from ..runtime.shard import Shard, ShardInput
from ..state.key_runs import (
    BITS,
    LOW,
    KeyRuns,
    PlaceRanges,
    UInt64s,
    buckets_at,
    buckets_for,
    every_bucket,
    is_among,
    key_places,
    pairs,
    row_places,
)
from ..state.runs import RunFiles
from ..state.store import Store
from .plan import ROWS, GroupPlan


class GroupChanges(NamedTuple):
    """The groups that a batch changes, and their changes."""

    groups: pa.Table  # the columns of each group
    numbers: Int64s  # the numbers by which groups are found
    bits: Int64s  # each group's number of buckets before the batch, as a power of two
    after: Int64s  # each group's number of buckets after the batch, as a power of two
    changes: pa.Table  # rows that enter groups, and tombstones of rows that leave them
    group: Int64s  # the position of each change's group
    deleted: Mask  # a mask of the tombstones among the changes


_BUCKET = "__upstream_bucket"


class Members:
    """The rows of a shard's groups. `algebra` may be of any kind, because nothing is retracted."""

    def __init__(
        self,
        store: Store,
        name: str,
        side: LatestSide,
        algebra: Aggregates,
        saved: Any,
        files: RunFiles | None = None,
    ) -> None:
        self._side = side
        self._algebra = algebra
        self._columns = list(dict.fromkeys([*side.on, *side.key, *algebra.inputs]))
        self._schema = pa.schema([side.schema.field(each) for each in self._columns])
        self._rows = KeyRuns(store, f"{name}_rows", self._schema, saved.get("rows", {}), files)
        groups = [side.schema.field(each) for each in side.on]
        self._parts_schema = pa.schema([*groups, *algebra.state_schema, pa.field(_BUCKET, pa.int64())])
        self._parts = KeyRuns(store, f"{name}_parts", self._parts_schema, saved.get("parts", {}), files)

    def to_json(self) -> dict[str, Any]:
        return {"rows": self._rows.to_json(), "parts": self._parts.to_json()}

    def clear(self) -> None:
        self._rows.clear()
        self._parts.clear()

    def changed(self, asked: GroupChanges) -> pa.Table:
        at = row_places(asked.numbers[asked.group], numbers_of(asked.changes, self._side.key))
        touched = pairs(asked.group, buckets_at(at, asked.bits[asked.group]))
        states, codes, buckets = self._of_buckets(asked, at, touched)
        return self._of_groups(asked, touched, states, codes, buckets)

    def _of_buckets(self, asked: GroupChanges, at: UInt64s, touched: Int64s) -> tuple[pa.Table, Int64s, Int64s]:
        """Update the rows; return the state of each bucket with a change, its group and its number."""
        split = np.flatnonzero(asked.after != asked.bits)
        wanted = np.union1d(touched, every_bucket(split, asked.bits[split]))
        of = wanted >> BITS
        buckets = PlaceRanges.of_buckets(asked.numbers[of], wanted & LOW, asked.bits[of])
        found = self._rows.find_between(buckets.disjoint())
        group = places(asked.groups, found.rows, self._side.on)
        mine = group >= 0
        of = group[mine]
        mine[mine] = is_among(pairs(of, buckets_at(found.places[mine], asked.bits[of])), wanted)
        group = group[mine]
        rows = found.rows.filter(pa.array(mine)).combine_chunks()
        same = np.ones(rows.num_rows, dtype=np.bool_)
        replaced = places(rows, asked.changes, tuple(dict.fromkeys([*self._side.on, *self._side.key])))
        same[replaced[replaced >= 0]] = False
        enters = ~asked.deleted
        new = asked.changes.filter(pa.array(enters)).select(self._columns).cast(self._schema)
        stays = ~mine
        stays[mine] = same
        self._rows.replace(found, stays, new, at[enters])
        rows = pa.concat_tables([rows.filter(pa.array(same)), new]).combine_chunks()
        group = np.concatenate([group[same], asked.group[enters]])
        at = np.concatenate([found.places[mine][same], at[enters]])
        pairs_, codes = np.unique(pairs(group, buckets_at(at, asked.after[group])), return_inverse=True)
        states = self._algebra.lift(rows, codes, len(pairs_))
        return states, pairs_ >> BITS, pairs_ & LOW

    def _of_groups(
        self, asked: GroupChanges, touched: Int64s, states: pa.Table, codes: Int64s, buckets: Int64s
    ) -> pa.Table:
        """Update the states of large groups' buckets; return the state of each group."""
        n = asked.groups.num_rows
        large = np.flatnonzero((asked.bits > 0) | (asked.after > 0))
        if len(large) == 0:
            return self._algebra.combine(states, codes, n)
        found = self._parts.find_between(PlaceRanges.of_keys(asked.numbers[large]).disjoint())
        group = places(asked.groups, found.rows, self._side.on)
        same = group >= 0
        others, at = ~same, group[same]
        bucket = found.rows.column(_BUCKET).to_numpy()[same]
        same[same] = (asked.after[at] == asked.bits[at]) & ~np.isin(pairs(at, bucket), touched)
        new = np.flatnonzero(asked.after[codes] > 0)
        parts = asked.groups.take(pa.array(codes[new]))
        for name in self._algebra.state_schema.names:
            parts = parts.append_column(name, states.column(name).take(pa.array(new)))
        parts = parts.append_column(_BUCKET, pa.array(buckets[new])).cast(self._parts_schema)
        self._parts.replace(found, others | same, parts, row_places(asked.numbers[codes[new]], buckets[new]))
        kept = found.rows.filter(pa.array(same)).select(states.column_names)
        whole = pa.concat_tables([kept, states]).combine_chunks()
        return self._algebra.combine(whole, np.concatenate([group[same], codes]), n)


_BITS = "__upstream_bits"


class ChangedGroups(NamedTuple):
    """The groups that a batch changes."""

    groups: pa.Table  # the columns of groups with a key
    values: pa.Table
    arrival: Int64s  # when the last change of each of the groups arrived
    gone: pa.Table  # the columns of groups whose last key left in this batch
    gone_arrival: Int64s


class KeptGroups:
    """The groups of a shard.

    With `results`, the state includes results that are not computed from partial aggregates, for :meth:`all_groups`.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        plan: GroupPlan,
        saved: Any,
        files: RunFiles | None = None,
        *,
        results: bool = False,
    ) -> None:
        self._plan = plan
        self._results = plan.held.result_schema if results and plan.held is not None else pa.schema([])
        side = plan.side
        groups = [side.schema.field(each) for each in side.on]
        self._schema = pa.schema([*groups, *plan.added.state_schema, *self._results, pa.field(_BITS, pa.int64())])
        self._runs = KeyRuns(store, name, self._schema, saved.get("groups", {}), files)
        self._members = (
            None
            if plan.held is None
            else Members(store, f"{name}_members", side, plan.held, saved.get("members", {}), files)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "groups": self._runs.to_json(),
            **({} if self._members is None else {"members": self._members.to_json()}),
        }

    @property
    def rows(self) -> int:
        return self._runs.rows

    def clear(self) -> None:
        self._runs.clear()
        if self._members is not None:
            self._members.clear()

    def all_groups(self) -> tuple[pa.Table, pa.Table]:
        """Return the columns of all groups, and their aggregates. Needs `results`."""
        kept = self._runs.find_all().rows
        values = self._plan.added.lower(kept.select(self._plan.added.state_schema.names))
        for name in self._results.names:
            values = values.append_column(name, kept.column(name))
        return kept.select(list(self._plan.side.on)), values.select(list(self._plan.aggregates))

    def changed(self, changes: pa.Table) -> ChangedGroups:
        """Apply changes of keys' newest rows, at least one, and return the groups that they change.

        Changes are rows that enter their group, and tombstones, with former values, of rows that leave it.
        """
        side, added = self._plan.side, self._plan.added
        numbers = numbers_of(changes, side.on)
        found = self._runs.find(key_places(numbers))
        kept = found.rows
        before, group, first = _groups(kept, changes, side.on)
        n = len(first)
        groups, number = changes.select(list(side.on)).take(pa.array(first)).combine_chunks(), numbers[first]
        deleted = deleted_mask(changes).to_numpy()
        known = before[before >= 0]
        was = kept.filter(pa.array(before >= 0))
        state = added.combine(
            pa.concat_tables(
                [was.select(added.state_schema.names), _lifted(added, changes, group, ~deleted, n)]
            ).combine_chunks(),
            np.concatenate([known, np.arange(n)]),
            n,
        )
        state = added.retract(state, _lifted(added, changes, group, deleted, n))
        values = added.lower(state)
        count = values.column(ROWS).to_numpy()
        bits = np.zeros(n, dtype=np.int64)
        bits[known] = was.column(_BITS).to_numpy()
        if self._members is not None:
            after = buckets_for(count, bits)
            assert self._plan.held is not None
            asked = GroupChanges(groups, number, bits, after, changes, group, deleted)
            lowered = self._plan.held.lower(self._members.changed(asked))
            bits = after
            for name in lowered.column_names:
                values = values.append_column(name, lowered.column(name))
        new = groups
        for name in added.state_schema.names:
            new = new.append_column(name, state.column(name))
        for name in self._results.names:
            new = new.append_column(name, values.column(name))
        new = new.append_column(_BITS, pa.array(bits))
        there = pa.array(count > 0)
        self._runs.replace(found, before < 0, new.filter(there).cast(self._schema), key_places(number[count > 0]))
        arrival = np.zeros(n, dtype=np.int64)
        np.maximum.at(arrival, group, micros(changes, "arrival"))
        left = np.zeros(n, dtype=np.bool_)
        left[known] = count[known] == 0
        shown = count > 0
        if not self._plan.aggregates:
            shown[known] = False  # nothing of it changes
        return ChangedGroups(
            groups.filter(pa.array(shown)),
            values.filter(pa.array(shown)).select(list(self._plan.aggregates)),
            arrival[shown],
            groups.filter(pa.array(left)),
            arrival[left],
        )


def _groups(kept: pa.Table, changes: pa.Table, on: Sequence[str]) -> tuple[Int64s, Int64s, Int64s]:
    """Return each kept group's number (-1 without a change), each change's number, and each group's first change."""
    both = [(kept.column(name).chunks, changes.column(name)) for name in on]
    codes, size = key_codes([pa.chunked_array([*one, *two.chunks], two.type) for one, two in both])
    touched, first, group = np.unique(codes[kept.num_rows :], return_index=True, return_inverse=True)
    place = np.full(size, -1, dtype=np.int64)
    place[touched] = np.arange(len(touched))
    return place[codes[: kept.num_rows]], group, first


def _lifted(
    algebra: Aggregates, changes: pa.Table, group: Int64s, which: npt.NDArray[np.bool_], groups: int
) -> pa.Table:
    return algebra.lift(changes.filter(pa.array(which)).combine_chunks(), group[which], groups)


class GroupShard(Shard[GroupPlan, LatestJoinReport]):
    """A shard of aggregates by group."""

    began = "the groups in this checkpoint were aggregated"
    same = "groups, key, aggregates and number of shards"
    report = LatestJoinReport
    counted = ("left_rows", "results", "retracted", "without_key")

    def __init__(self, number: int, plan: GroupPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        head = self._head
        side = plan.side
        self._versions = LatestVersions(self._store, "keys", side, head.get("keys", {}), files) if side.stays else None
        self._groups = KeptGroups(self._store, "groups", plan, head.get("groups", {}), files)

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Add the newest rows, retract those they replace, and return the changed groups, empty ones as tombstones."""
        side = self._plan.side
        schema = side.versioned if self._versions is None else side.schema
        rows, punctuation = rows_in(given.left, schema)
        self._counts["left_rows"] += rows.num_rows
        self._advance_clock([rows])
        changes = rows
        if self._versions is not None:
            self._versions.hear(punctuation)
            changes = self._versions.changes(rows.combine_chunks())
        keyless = without_key(changes, side.on)
        self._counts["without_key"] += int(np.count_nonzero(keyless & ~deleted_mask(changes).to_numpy()))
        changes = changes.filter(pa.array(~keyless)).combine_chunks()
        result = self._changed(changes) if changes.num_rows else None
        if result is not None:
            self._counts["results"] += result.num_rows
            self._counts["retracted"] += int(np.count_nonzero(deleted_mask(result).to_numpy()))
        expired = 0 if self._versions is None else self._versions.expired
        return result, {"left_kept": self._groups.rows, "left_expired": expired}

    def _changed(self, changes: pa.Table) -> pa.Table:
        found = self._groups.changed(changes)
        given = [self._given(found.groups, found.values, found.arrival)]
        if found.gone.num_rows:
            given.append(self._given(found.gone, None, found.gone_arrival))
        return pa.concat_tables(given)

    def _given(self, groups: pa.Table, values: pa.Table | None, arrival: Int64s) -> pa.Table:
        """Return results, or tombstones of groups without values."""
        schema, n = self._plan.schema, groups.num_rows
        columns: dict[str, Any] = {name: groups.column(name) for name in groups.column_names}
        for name in self._plan.aggregates:
            columns[name] = pa.nulls(n, schema.field(name).type) if values is None else values.column(name)
        system = system_array(
            source=f"groups/{self._number}",
            seq=self._sequence(n),
            arrival_us=arrival,
            deleted=np.full(n, values is None),
        )
        columns[SYSTEM] = pa.chunked_array([system]).cast(schema.field(SYSTEM).type)
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def saved(self) -> dict[str, Any]:
        keys = {} if self._versions is None else self._versions.to_json()
        return {"groups": self._groups.to_json(), "keys": keys}
