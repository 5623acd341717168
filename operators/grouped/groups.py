"""A shard's state of groups of newest rows, and the groups that a batch changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.buckets import mix_bits
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.newest import key_codes
from ...core.rows.system_column import deleted_mask
from ..aggregates.algebra import Aggregates
from ..joins.key_runs import KeyRuns
from ..joins.latest_plan import LatestSide
from ..joins.side import NUMBER, numbers_of
from ..joins.versions import places
from ..runtime.pack import micros
from ..state.pages import KeyPages
from ..state.runs import RunFiles
from ..state.store import Store
from .plan import ROWS, GroupPlan

BITS = 20
"""The maximum number of buckets of a group, as a power of two."""
LOW = (1 << BITS) - 1
"""The mask of the bucket in a pair: see :func:`pairs`."""

ROWS_OF_BUCKET = 256
"""A group with fewer rows is in one bucket."""


def buckets_for(rows: Int64s, bits: Int64s) -> Int64s:
    """Return the number of buckets of groups by their numbers of rows, as a power of two.

    It remains as before (`bits`) unless that is too small, or four times too large.
    """
    some = np.log2(np.maximum(rows, 1))
    # Of small groups a bucket has some hundred rows; a large group has as many buckets as a bucket has rows.
    wanted = np.ceil(np.minimum(np.maximum(some - np.log2(ROWS_OF_BUCKET), 0), some / 2)).astype(np.int64)
    wanted = np.minimum(wanted, BITS)
    return np.where((wanted > bits) | (wanted < bits - 1), wanted, bits)


def pairs(group: Int64s, bucket: Int64s) -> Int64s:
    """Return one number for each pair of a group's position and a bucket."""
    return (group << BITS) | bucket


def every_bucket(groups: Int64s, bits: Int64s) -> Int64s:
    """Return the pairs of groups and each of their buckets."""
    sizes = np.int64(1) << bits
    begins = np.cumsum(sizes) - sizes
    return pairs(np.repeat(groups, sizes), np.arange(int(sizes.sum())) - np.repeat(begins, sizes))


def bucket_of(hashes: Int64s, bits: Int64s) -> Int64s:
    """Return each row's bucket: the highest bits of its hash."""
    shift = np.minimum(64 - bits, 63).astype(np.uint64)
    return np.where(bits == 0, 0, (hashes.view(np.uint64) >> shift).astype(np.int64))


def place_of(numbers: Int64s, bucket: Int64s) -> Int64s:
    """Return the number by which a bucket's rows are found; for bucket 0, it is the group's own."""
    return np.where(bucket == 0, numbers, mixed(numbers ^ mixed(bucket)))


def mixed(numbers: Int64s) -> Int64s:
    """Return a hash of integers: a step of splitmix64."""
    return mix_bits(numbers.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


_HASH, _BUCKET = "__upstream_hash", "__upstream_bucket"


class GroupChanges(NamedTuple):
    """The groups that a batch changes, and their changes."""

    groups: pa.Table  # the columns of each group
    numbers: Int64s  # the numbers by which groups are found
    bits: Int64s  # each group's number of buckets before the batch, as a power of two
    after: Int64s  # each group's number of buckets after the batch, as a power of two
    changes: pa.Table  # rows that enter groups, and tombstones of rows that leave them
    group: Int64s  # the position of each change's group
    deleted: Mask  # a mask of the tombstones among the changes


class Members:
    """The rows of a shard's groups. `algebra` may be of any kind, because nothing is retracted."""

    def __init__(self, store: Store, name: str, side: LatestSide, algebra: Aggregates, saved: Any) -> None:
        self._side = side
        self._algebra = algebra
        self._columns = list(dict.fromkeys([*side.on, *side.key, *algebra.inputs]))
        fields = [side.schema.field(each) for each in self._columns]
        own = [pa.field(each, pa.int64()) for each in (_HASH, NUMBER)]
        self._schema = pa.schema([*fields, *own])
        self._rows = KeyPages(store, f"{name}_rows", NUMBER, self._schema, saved.get("rows", {}))
        groups = [side.schema.field(each) for each in side.on]
        own = [pa.field(each, pa.int64()) for each in (_BUCKET, NUMBER)]
        self._parts_schema = pa.schema([*groups, *algebra.state_schema, *own])
        self._parts = KeyPages(store, f"{name}_parts", NUMBER, self._parts_schema, saved.get("parts", {}))

    def to_json(self) -> dict[str, Any]:
        return {"rows": self._rows.to_json(), "parts": self._parts.to_json()}

    def clear(self) -> None:
        self._rows.clear()
        self._parts.clear()

    def changed(self, asked: GroupChanges) -> pa.Table:
        hashes = mixed(numbers_of(asked.changes, self._side.key))
        touched = pairs(asked.group, bucket_of(hashes, asked.bits[asked.group]))
        states, codes, buckets = self._of_buckets(asked, hashes, touched)
        return self._of_groups(asked, touched, states, codes, buckets)

    def _of_buckets(self, asked: GroupChanges, hashes: Int64s, touched: Int64s) -> tuple[pa.Table, Int64s, Int64s]:
        """Update the rows; return the state of each bucket with a change, its group and its number."""
        split = np.flatnonzero(asked.after != asked.bits)
        before, now = (every_bucket(split, bits[split]) for bits in (asked.bits, asked.after))
        old = np.unique(np.concatenate([touched, before]))
        places_of = [place_of(asked.numbers[each >> BITS], each & LOW) for each in (old, now)]
        pages = self._rows.pages(np.concatenate(places_of))
        kept = self._rows.read(pages)
        group = places(asked.groups, kept, self._side.on) if kept.num_rows else np.empty(0, dtype=np.int64)
        known = group >= 0
        hash_of = kept.column(_HASH).to_numpy()
        mine = known.copy()
        at = group[known]
        mine[known] = np.isin(pairs(at, bucket_of(hash_of[known], asked.bits[at])), old)
        rows = kept.filter(pa.array(mine)).combine_chunks()
        stays = np.ones(rows.num_rows, dtype=np.bool_)
        replaced = places(rows, asked.changes, tuple(dict.fromkeys([*self._side.on, *self._side.key])))
        stays[replaced[replaced >= 0]] = False
        enters = ~asked.deleted
        rows = rows.filter(pa.array(stays)).select([*self._columns, _HASH])
        new = (
            asked.changes.filter(pa.array(enters)).select(self._columns).append_column(_HASH, pa.array(hashes[enters]))
        )
        rows = pa.concat_tables([rows, new.cast(rows.schema)]).combine_chunks()
        group = np.concatenate([group[mine][stays], asked.group[enters]])
        bucket = bucket_of(rows.column(_HASH).to_numpy(), asked.after[group])
        number = pa.array(place_of(asked.numbers[group], bucket))
        others = kept.filter(pa.array(~mine))
        self._rows.write(
            pages, kept.num_rows, pa.concat_tables([others, rows.append_column(NUMBER, number).cast(self._schema)])
        )
        found, codes = np.unique(pairs(group, bucket), return_inverse=True)
        states = self._algebra.lift(rows, codes, len(found))
        return states, found >> BITS, found & LOW

    def _of_groups(
        self, asked: GroupChanges, touched: Int64s, states: pa.Table, codes: Int64s, buckets: Int64s
    ) -> pa.Table:
        """Update the states of large groups' buckets; return the state of each group."""
        n = asked.groups.num_rows
        large = np.flatnonzero((asked.bits > 0) | (asked.after > 0))
        if len(large) == 0:
            return self._algebra.combine(states, codes, n)
        pages = self._parts.pages(asked.numbers[large])
        kept = self._parts.read(pages)
        group = places(asked.groups, kept, self._side.on)
        bucket = kept.column(_BUCKET).to_numpy()
        stays = group >= 0
        at = group[stays]
        stays[stays] = (asked.after[at] == asked.bits[at]) & ~np.isin(pairs(at, bucket[stays]), touched)
        same = kept.filter(pa.array(stays))
        new = np.flatnonzero(asked.after[codes] > 0)
        parts = asked.groups.take(pa.array(codes[new]))
        for name in self._algebra.state_schema.names:
            parts = parts.append_column(name, states.column(name).take(pa.array(new)))
        parts = parts.append_column(_BUCKET, pa.array(buckets[new]))
        parts = parts.append_column(NUMBER, pa.array(asked.numbers[codes[new]]))
        others = kept.filter(pa.array(group < 0))
        self._parts.write(pages, kept.num_rows, pa.concat_tables([others, same, parts.cast(self._parts_schema)]))
        whole = pa.concat_tables([same.select(states.column_names), states]).combine_chunks()
        return self._algebra.combine(whole, np.concatenate([group[stays], codes]), n)


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
        own = [pa.field(each, pa.int64()) for each in (_BITS, NUMBER)]
        self._schema = pa.schema([*groups, *plan.added.state_schema, *self._results, *own])
        self._runs = KeyRuns(store, name, NUMBER, self._schema, saved.get("groups", {}), files=files)
        self._members = (
            None if plan.held is None else Members(store, f"{name}_members", side, plan.held, saved.get("members", {}))
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
        kept = self._runs.all_rows()
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
        found = self._runs.find(numbers)
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
        new = new.append_column(_BITS, pa.array(bits)).append_column(NUMBER, pa.array(number))
        there = pa.array(count > 0)
        self._runs.replace(found, before < 0, new.filter(there).cast(self._schema))
        arrival = np.zeros(n, dtype=np.int64)
        np.maximum.at(arrival, group, micros(changes, "arrival"))
        left = np.zeros(n, dtype=np.bool_)
        left[known] = count[known] == 0
        return ChangedGroups(
            groups.filter(there),
            values.filter(there).select(list(self._plan.aggregates)),
            arrival[count > 0],
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
