"""The rows of each group, for aggregates that cannot retract a row: minima, lists, sketches.

A group's rows are in buckets by a hash of their key; a large group also stores each bucket's partial aggregate. A batch
aggregates the buckets that it changes again, and combines the group's buckets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ..aggregates.algebra import Aggregates
from ..joins.arriving import numbers_of
from ..joins.latest_plan import LatestSide
from ..joins.side import NUMBER
from ..joins.versions import places
from ..runtime.key_pages import KeyPages
from ..runtime.store import Store
from .buckets import BITS, LOW, bucket_of, every_bucket, mixed, pairs, place_of

__all__ = ["Asked", "Members"]

Mask = npt.NDArray[np.bool_]

_HASH, _BUCKET = "__upstream_hash", "__upstream_bucket"


class Asked(NamedTuple):
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

    def changed(self, asked: Asked) -> pa.Table:
        hashes = mixed(numbers_of(asked.changes, self._side.key))
        touched = pairs(asked.group, bucket_of(hashes, asked.bits[asked.group]))
        states, codes, buckets = self._of_buckets(asked, hashes, touched)
        return self._of_groups(asked, touched, states, codes, buckets)

    def _of_buckets(self, asked: Asked, hashes: Int64s, touched: Int64s) -> tuple[pa.Table, Int64s, Int64s]:
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

    def _of_groups(self, asked: Asked, touched: Int64s, states: pa.Table, codes: Int64s, buckets: Int64s) -> pa.Table:
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
