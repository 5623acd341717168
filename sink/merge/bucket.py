"""The merge of a batch's rows into one bucket: the newest row of each key or of each part, the newest few, or all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...conf.errors import TableError
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.newest import key_codes
from ...core.rows.sort_keys import ordered, places
from ..spec.history import Kept, newest_of_each
from ..spec.layout import Layout
from ..table.files import DataFiles, StagedFile, conform
from ..table.table import BucketFiles, Snapshot
from ..table.tombstones import DELETIONS
from .batch_rows import BatchRows, OlderKeys, as_pending, concat_pending, seq_in_order
from .engines import Engine, HeldRows, MergeCandidates, Replacement
from .newest_rows import MergeContest, PartContest, contest, lost_against, lost_pairs


class Tally(NamedTuple):
    """Numbers of keys, as in :class:`~upstream.sink.figures.summary.CommitSummary`."""

    applied: int = 0
    deleted: int = 0
    absent: int = 0

    def plus(self, other: Tally) -> Tally:
        return Tally(*(one + two for one, two in zip(self, other, strict=True)))


@dataclasses.dataclass(frozen=True)
class BucketMerge:
    """The result of merging one bucket."""

    bucket: int
    held: BucketFiles  # the table's files that it was merged with
    changed: bool = False  # True if the bucket's rows differ from before
    # takes the place of these files, or is put beside some of them
    replacement: Replacement = dataclasses.field(default_factory=Replacement)
    blind: bool = False  # True if it was merged with no rows: then others may have changed the bucket
    tombstones: StagedFile | None = None  # replaces the bucket's tombstones; None if there are no new ones
    # keys whose row has left the table, for followers: later tombstones replace the present ones
    deletions: StagedFile | None = None
    tally: Tally = dataclasses.field(default_factory=Tally)
    older: OlderKeys = dataclasses.field(default_factory=OlderKeys)  # keys of which no row was newer than the table's

    def staged(self) -> list[StagedFile]:
        return [file for file in (self.rows, self.tombstones, self.deletions) if file is not None]

    @property
    def won(self) -> bool:
        """Return True if any row or tombstone of the batch was newer than the table's."""
        return self.changed or self.tombstones is not None

    @property
    def rows(self) -> StagedFile | None:
        """Return the new file of rows; None if nothing changed, or no row is left for one."""
        return self.replacement.rows

    @property
    def replaced(self) -> tuple[str, ...]:
        return self.replacement.replaced


class BucketOutcome(NamedTuple):
    """The outcome of each row and deletion of a batch."""

    won: Mask  # those that change the bucket's rows or its tombstones
    deleted: Mask
    applied: Mask  # those that change its rows
    remembered: Mask  # the deletions that become their key's tombstone
    left: Mask  # the deletions that take their key's row away

    @classmethod
    def of(cls, won: Mask, deleted: Mask, applied: Mask, remembered: Mask) -> BucketOutcome:
        return cls(won, deleted, applied, remembered, applied & deleted)

    @property
    def tally(self) -> Tally:
        return Tally(int(self.applied.sum()), int(self.left.sum()), int((self.won & ~self.applied).sum()))


class MergeVerdict(NamedTuple):
    """The result of a merge, per row of the batch."""

    won: Mask  # rows newer than the table's
    applied: Mask  # rows that changed the table
    lost: tuple[BatchRows, ...] = ()  # rows of either side that lost in a conflict


class BucketMerger:
    """The merger of one table's buckets; the engine decides how rows leave a bucket."""

    def __init__(
        self, layout: Layout, rows: DataFiles, tombstones: DataFiles, forget_below: int | None, engine: Engine
    ) -> None:
        self._layout = layout
        self._engine = engine
        self._rows = rows
        self._tombstones = tombstones
        self._deletions = tombstones.in_folder(DELETIONS)
        self._forget_below = forget_below

    def merge(
        self, bucket: int, held: BucketFiles, new: BatchRows, *, turn: bool = False
    ) -> tuple[MergeVerdict, BucketMerge]:
        """Stage the bucket with the rows of `new` that are newer; on an error no file is left.

        `new` has one row or tombstone for each key. With `turn`, large files may be rewritten although they need
        not be.
        """
        try:
            return self._merge(bucket, held, new, turn)
        except FileNotFoundError as error:
            raise TableError(
                f"a data file of bucket {bucket} is gone: {error}",
                expected="the files that the table's log names",
                hint="restart the query if the table was replaced or vacuumed meanwhile; else restore the file",
            ) from error

    def remove(self, merges: list[BucketMerge]) -> None:
        self._rows.remove(file.path for merge in merges for file in merge.staged())

    def done(self, seen: Snapshot) -> None:
        """Tidy the indexes after a task that saw the table in state `seen`."""
        self._engine.done(set(seen.rows))

    def came_with(self, merge: BucketMerge) -> BatchRows:
        """Return this batch's rows and tombstones among those that a merge has staged."""
        parts: list[BatchRows] = []
        for files, staged, deleted in (  # deletions first: a row that is there has come after them
            (self._tombstones, merge.tombstones, True),
            (self._deletions, merge.deletions, True),  # as a rule the same once more
            (self._rows, merge.rows, False),
        ):
            if staged is None or staged.fresh == 0:
                continue
            fresh = files.read_rows([staged.path]).slice(staged.rows - staged.fresh)
            rows = conform(fresh, self._rows.schema)
            arrival = None if staged.arrival_us is None else np.frombuffer(staged.arrival_us, dtype=np.int64)
            marks = np.full(staged.fresh, deleted)
            parts.append(dataclasses.replace(as_pending(rows), arrival_us=arrival, deleted=marks))
        return concat_pending(parts)

    def _merge(self, bucket: int, held: BucketFiles, new: BatchRows, turn: bool) -> tuple[MergeVerdict, BucketMerge]:
        candidates = new.rows.select(self._layout.deciding)
        with self._engine.held_rows(held, candidates, turn=turn) as rows:
            rivals = rows.rivals(candidates)
            against_rows = contest(rivals.rows, candidates, self._layout)
            buried, against_tombstones = self._contest_tombstones(held, candidates)
            deleted = np.zeros(len(against_rows.won), dtype=np.bool_) if new.deleted is None else new.deleted
            met = against_rows.rival >= 0
            # A row that a later deletion is known of is one that RESTORE has brought back: an earlier deletion takes it
            # away as well.
            won = against_rows.won & (against_tombstones.won | (met & deleted))
            applied, remembered = won & (met | ~deleted), won & deleted & against_tombstones.won
            if not self._layout.order:  # no table remembers them; another task's rows may meet those of absent keys
                remembered &= ~applied
            outcome = BucketOutcome.of(won, deleted, applied, remembered)
            lost_pairs = self._lost(new, rows, rivals, against_rows, buried, against_tombstones)
            verdict = MergeVerdict(won, outcome.applied, lost_pairs)
            if not won.any():
                return verdict, BucketMerge(bucket, held)
            needed = np.zeros(buried.num_rows, dtype=np.bool_)
            if outcome.remembered.any():
                # Before any row is taken out: also one that this batch overtakes has overtaken tombstones.
                needed = ~self._overtaken(buried, rows) & against_tombstones.stays(
                    buried.num_rows, won & against_tombstones.won
                )
            fresh, lost = won & ~deleted, ~against_rows.stays(rivals.rows.num_rows, won)

            def replacement() -> Replacement:
                count = int(fresh.sum())
                return rows.replace(rivals, lost, count, lambda kept: self._stage_rows(held, bucket, kept, new, fresh))

            return verdict, self._staged(bucket, held, new, outcome, _chosen(buried, needed), replacement)

    def _staged(
        self,
        bucket: int,
        held: BucketFiles,
        new: BatchRows,
        outcome: BucketOutcome,
        needed: pa.Table,
        replacement: Callable[[], Replacement],
    ) -> BucketMerge:
        """Stage the files of an outcome, with the tombstones that stay (`needed`); on an error no file is left."""
        merge = BucketMerge(bucket, held, bool(outcome.applied.any()), tally=outcome.tally)
        try:
            if merge.changed:
                merge = dataclasses.replace(merge, replacement=replacement())
            if outcome.remembered.any():
                staged = self._stage(self._tombstones, bucket, needed, new, outcome.remembered)
                merge = dataclasses.replace(merge, tombstones=staged)
            staged = self._stage(self._deletions, bucket, needed.slice(0, 0), new, outcome.left)
            merge = dataclasses.replace(merge, deletions=staged)
        except BaseException:
            self.remove([merge])
            raise
        return merge

    def _lost(
        self,
        new: BatchRows,
        rows: HeldRows,
        rivals: MergeCandidates,
        against_rows: MergeContest,
        buried: pa.Table,
        against_tombstones: MergeContest,
    ) -> tuple[BatchRows, ...]:
        """Return the rows that lose in conflicts with the table's rows and tombstones, of either side."""
        lost: list[BatchRows] = []
        if against_rows.tied.any():
            held = rows.whole(rivals, against_rows.rival[against_rows.tied])
            lost += lost_against(new, against_rows, as_pending(held), self._layout)
        # A key that has a row has one that is newer than its deletion: the two have met.
        tied = against_tombstones.tied & (against_rows.rival < 0)
        if tied.any():
            held = self._as_tombstones(buried).take(against_tombstones.rival[tied])
            lost += lost_against(new, dataclasses.replace(against_tombstones, tied=tied), held, self._layout)
        return tuple(lost)

    def _contest_tombstones(self, held: BucketFiles, candidates: pa.Table) -> tuple[pa.Table, MergeContest]:
        buried = self._buried(held)
        return buried, contest(buried, candidates, self._layout)

    def _buried(self, held: BucketFiles) -> pa.Table:
        if held.tombstones is None:
            return self._tombstones.schema.empty_table()
        return self._tombstones.read_rows([held.tombstones], columns=self._layout.deciding)

    def _as_tombstones(self, buried: pa.Table) -> BatchRows:
        rows = conform(buried, self._rows.schema)
        return dataclasses.replace(as_pending(rows), deleted=np.ones(rows.num_rows, dtype=np.bool_))

    def _overtaken(self, buried: pa.Table, rows: HeldRows) -> Mask:
        """Return which tombstones are needless: a newer row has come, or their retention is over."""
        overtaken = ~contest(buried, rows.rivals(buried).rows, self._layout).stays(buried.num_rows)
        return overtaken | ~self._within_retention(buried)

    def _within_retention(self, buried: pa.Table) -> Mask:
        if self._forget_below is None or self._layout.time is None:
            return np.ones(buried.num_rows, dtype=np.bool_)
        return ordered(buried.column(self._layout.time)) >= self._forget_below

    def _stage_rows(
        self, held: BucketFiles, bucket: int, kept: pa.Table, new: BatchRows, chosen: Mask
    ) -> StagedFile | None:
        rows, fresh = _together(kept, new, chosen)
        staged = self._write(self._rows, bucket, rows, fresh, new, chosen)
        if staged is not None:
            try:
                self._engine.staged(held, staged.path, rows)
            except BaseException:
                self._rows.remove([staged.path])
                raise
        return staged

    def _stage(self, files: DataFiles, bucket: int, kept: pa.Table, new: BatchRows, chosen: Mask) -> StagedFile | None:
        return self._write(files, bucket, *_together(kept, new, chosen), new, chosen)

    def _write(
        self, files: DataFiles, bucket: int, rows: pa.Table, fresh: int, new: BatchRows, chosen: Mask
    ) -> StagedFile | None:
        if rows.num_rows == 0:
            return None
        needs_arrival = not self._layout.order and new.arrival_us is not None
        arrival = new.arrival_us[chosen].tobytes() if needs_arrival and new.arrival_us is not None else None
        return files.stage(rows, bucket, fresh, arrival)


def _together(kept: pa.Table, new: BatchRows, chosen: Mask) -> tuple[pa.Table, int]:
    fresh = _chosen(new.rows.select(kept.column_names), chosen)
    return pa.concat_tables([kept, fresh.cast(kept.schema)]) if kept.num_rows else fresh, fresh.num_rows


def _chosen(rows: pa.Table, chosen: Mask) -> pa.Table:
    return rows if chosen.all() else rows.filter(pa.array(chosen))


def merger_of(
    layout: Layout, rows: DataFiles, tombstones: DataFiles, forget_below: int | None, engine: Engine
) -> BucketMerger:
    """Return the merger of buckets for a table's layout."""
    kind = BucketMerger
    if layout.partial:
        kind = NewestParts
    elif not layout.history.latest:
        kind = AllRows if layout.history.count is None else NewestFew
    return kind(layout, rows, tombstones, forget_below, engine)


class AllRows(BucketMerger):
    """The merger that adds rows and reads no held ones."""

    def _merge(self, bucket: int, held: BucketFiles, new: BatchRows, turn: bool) -> tuple[MergeVerdict, BucketMerge]:
        del turn
        every = np.ones(new.rows.num_rows, dtype=np.bool_)
        rows = self._stage(self._rows, bucket, new.rows.slice(0, 0), new, every)
        tally = Tally(applied=len(every))
        return MergeVerdict(every, every), BucketMerge(bucket, held, True, Replacement(rows), blind=True, tally=tally)


class NewestParts(BucketMerger):
    """The merger that decides each part of a key's row alone.

    It remembers a deletion even after newer rows: an older row that comes later might have a part that they lack.
    """

    def _merge(self, bucket: int, held: BucketFiles, new: BatchRows, turn: bool) -> tuple[MergeVerdict, BucketMerge]:
        candidates = new.rows.select(self._layout.deciding)
        with self._engine.held_rows(held, candidates, turn=turn) as rows:
            rivals, buried = rows.rivals(candidates), self._buried(held)
            met, dug = _met(rivals.rows, candidates, self._layout), _met(buried, candidates, self._layout)
            before = as_pending(rows.whole(rivals, met))
            both = concat_pending([self._as_tombstones(buried).take(dug), before, new])
            dead, old = len(dug), len(dug) + len(met)
            decided = PartContest(both, old, self._layout)
            losers = decided.lost()
            lost = (both.take(losers),) if len(losers) else ()
            had = np.full(decided.keys, -1)
            had[decided.key[dead:old]] = np.arange(dead, old)
            keys, deleted, wins = decided.key[old:], decided.deleted[old:], decided.wins()[old:]
            # An earlier deletion, too, takes a row away that RESTORE has brought back.
            touched = np.zeros(decided.keys, dtype=np.bool_)
            touched[keys[wins | deleted]] = True
            changed = touched & decided.differs(had)
            outcome = self._outcome(decided, wins, changed, had >= 0)
            verdict = MergeVerdict(outcome.won, outcome.applied, lost)
            if not outcome.won.any():
                return verdict, BucketMerge(bucket, held)
            replaced = np.zeros(buried.num_rows, dtype=np.bool_)
            replaced[dug] = np.isin(decided.key[:dead], keys[outcome.remembered])
            needed = buried.filter(pa.array(~replaced & self._within_retention(buried)))
            leaves = np.zeros(rivals.rows.num_rows, dtype=np.bool_)
            leaves[met] = changed[decided.key[dead:old]]
            fresh = as_pending(decided.rows(np.flatnonzero(changed & decided.lives)))
            every = np.ones(fresh.rows.num_rows, dtype=np.bool_)

            def replacement() -> Replacement:
                return rows.replace(
                    rivals, leaves, len(every), lambda kept: self._stage_rows(held, bucket, kept, fresh, every)
                )

            return verdict, self._staged(bucket, held, new, outcome, needed, replacement)

    def _outcome(self, decided: PartContest, wins: Mask, changed: Mask, had: Mask) -> BucketOutcome:
        """Return the outcome of each new row and deletion: of a key, one counts as applied if its row changes."""
        keys, deleted = decided.key[decided.held :], decided.deleted[decided.held :]
        rows = wins & ~deleted & changed[keys]
        by_row = np.zeros(decided.keys, dtype=np.bool_)
        by_row[keys[rows]] = True
        deletions = deleted & changed[keys] & ~by_row[keys]
        remembered = wins & deleted
        won = rows | deletions | (remembered & ~by_row[keys])
        return BucketOutcome(won, deleted, rows | deletions, remembered, deletions & (had & ~decided.lives)[keys])


def _met(held: pa.Table, new: pa.Table, layout: Layout) -> Int64s:
    """Return the positions of the held rows of which a new one has the key."""
    rivals = np.unique(contest(held, new, layout).rival)
    return rivals[rivals >= 0]


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
        outcome = BucketOutcome.of(won, deleted, won & (~deleted | effective), remembered)
        verdict = MergeVerdict(won, outcome.applied, lost)
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
        count = self._layout.history.count or 1
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
