"""The merge of a bucket that keeps more than the newest row of each key: the newest few, or all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.newest import key_codes
from ...core.rows.sort_keys import places
from ..spec.history import Kept, newest_of_each
from ..spec.layout import Layout
from ..table.files import DataFiles
from ..table.table import BucketFiles
from .batch_rows import BatchRows, as_pending, concat_pending, seq_in_order
from .bucket import BucketMerge, BucketMerger, BucketOutcome, MergeVerdict, Tally
from .engines import Engine, Replacement
from .newest_rows import lost_pairs


def merger_of(
    layout: Layout, rows: DataFiles, tombstones: DataFiles, forget_below: int | None, engine: Engine
) -> BucketMerger:
    """Return the merger of buckets for a table's layout."""
    if layout.keep.latest:
        return BucketMerger(layout, rows, tombstones, forget_below, engine)
    keeper = AllRows if layout.keep.count is None else NewestFew
    return keeper(layout, rows, tombstones, forget_below, engine)


class AllRows(BucketMerger):
    """The merger that adds rows and reads no held ones."""

    def _merge(self, bucket: int, held: BucketFiles, new: BatchRows, turn: bool) -> tuple[MergeVerdict, BucketMerge]:
        del turn
        every = np.ones(new.rows.num_rows, dtype=np.bool_)
        rows = self._stage(self._rows, bucket, new.rows.slice(0, 0), new, every)
        tally = Tally(delivered=len(every))
        return MergeVerdict(every, every), BucketMerge(bucket, held, True, Replacement(rows), blind=True, tally=tally)


class NewestFew(BucketMerger):
    """The merger that keeps some of the newest rows of each key.

    It remembers a deletion even after newer rows: an older row that comes later might be among the newest few.
    """

    def _merge(self, bucket: int, held: BucketFiles, new: BatchRows, turn: bool) -> tuple[MergeVerdict, BucketMerge]:
        del turn
        base = self._rows.read_rows(held.rows, held.vectors)
        buried = self._buried(held)
        both = concat_pending([self._as_tombstones(buried), as_pending(base), new])
        dead, old = buried.num_rows, buried.num_rows + base.num_rows
        codes, time, kept = self._kept_of(both, old)
        lost = self._lost_ties(both, kept, old)
        stays, won = kept.stays[:old], kept.stays[old:]
        deleted = np.zeros(len(won), dtype=np.bool_) if new.deleted is None else new.deleted
        gone = dead + np.flatnonzero(~stays[dead:])
        effective = _took_rows_away(codes, time, gone, old + np.flatnonzero(deleted))[codes[old:]]
        remembered = won & deleted
        # As of the newest row alone: rows that RESTORE has brought back go by any deletion that is later than they are.
        won = won | (deleted & effective)
        outcome = BucketOutcome(won, deleted, won & (~deleted | effective), remembered)
        verdict = MergeVerdict(won, outcome.delivered, lost)
        if not won.any():
            return verdict, BucketMerge(bucket, held)
        # And stay as long as nothing has come of their key.
        rows_stay = stays[dead:] | ~np.isin(codes[dead:old], codes[old:][won])
        needed = buried.filter(pa.array(stays[:dead] & self._within_retention(buried)))

        def replacement() -> Replacement:
            staged = self._stage(self._rows, bucket, base.filter(pa.array(rows_stay)), new, won & ~deleted)
            return Replacement(staged, held.rows)

        return verdict, self._staged(bucket, held, new, outcome, needed, replacement)

    def _kept_of(self, both: BatchRows, old: int) -> tuple[Int64s, Int64s, Kept]:
        codes, _ = key_codes(columns_at(both.rows, self._layout.key))
        time = places(columns_at(both.rows, self._layout.order))
        deleted = np.zeros(len(codes), dtype=np.bool_) if both.deleted is None else both.deleted
        count = self._layout.keep.count or 1
        return codes, time, newest_of_each(codes, time, seq_in_order(both.rows, old), deleted, count)

    def _lost_ties(self, both: BatchRows, kept: Kept, old: int) -> tuple[BatchRows, ...]:
        pairs = kept.ties[(kept.ties >= old).any(axis=1)]  # those before have met
        conflicting = lost_pairs(both, pairs[:, 0], both, pairs[:, 1], self._layout)
        return (both.take(pairs[conflicting, 1]),) if conflicting.any() else ()


def _took_rows_away(codes: Int64s, time: Int64s, gone: Int64s, deletions: Int64s) -> Mask:
    """Return, per key, whether its new deletion removed a row; positions are of rows that left, and of deletions."""
    reaches = np.full(int(codes.max()) + 1 if len(codes) else 0, np.iinfo(np.int64).min)
    reaches[codes[deletions]] = time[deletions]
    through = np.isin(codes[gone], codes[deletions]) & (time[gone] <= reaches[codes[gone]])
    found = np.zeros(len(reaches), dtype=np.bool_)
    found[codes[gone[through]]] = True
    return found
