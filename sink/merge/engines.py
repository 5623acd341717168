"""The engines by which rows leave a bucket: a rewrite or deletion vectors; the choice, and the files to merge."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ...core.rows.exact_integers import Int64s, Mask
from ...delta_format.deletion_vectors import DeletionVector, encode_vector
from ..spec.layout import Layout
from ..table import table
from ..table.files import BucketReader, DataFiles, StagedFile, conform
from ..table.key_index import KeyIndex, key_hashes
from ..table.table import BucketFiles

if TYPE_CHECKING:
    from ..spec.options import SinkTarget


StageWith = Callable[[pa.Table], "StagedFile | None"]
"""Writes the rows that are kept, and the fresh ones after them, into one file; None if there are none."""


class MergeCandidates(NamedTuple):
    """A bucket's candidate rows, among which are all that have one of some keys."""

    rows: pa.Table  # the deciding columns
    files: Int64s  # index among the bucket's files
    positions: Int64s  # row number in the file


class Mark(NamedTuple):
    """A file with a new deletion vector."""

    path: str
    vector: bytes  # all of its dead rows, encoded
    cardinality: int  # number of dead rows
    rows: int  # number of rows in the file


@dataclasses.dataclass(frozen=True)
class Replacement:
    """A batch's changes to a bucket's files."""

    rows: StagedFile | None = None  # a new file
    replaced: tuple[str, ...] = ()  # files without live rows
    marks: tuple[Mark, ...] = ()  # files with more dead rows

    def parts_of(self, held: Sequence[str]) -> bool:
        """Return True if some of the bucket's files or rows leave and others stay."""
        return bool(self.marks) or (bool(self.replaced) and set(self.replaced) != set(held))

    def newly_dead(self, vectors: Mapping[str, DeletionVector]) -> int:
        """Return the number of rows that the marks add to the files' vectors."""
        return sum(
            mark.cardinality - (vectors[mark.path].cardinality if mark.path in vectors else 0) for mark in self.marks
        )


def counts_of(held: BucketFiles, files: DataFiles) -> list[int]:
    """Return the row counts of a bucket's files, dead rows included, by the log or else by the footers."""
    return [files.count(path) if count is None else count for path, count in zip(held.rows, held.counts, strict=True)]


class HeldRows(Protocol):
    """The rows that a bucket holds, as an engine finds and replaces them."""

    def rivals(self, rows: pa.Table) -> MergeCandidates:
        """Return the held rows that may have a key of some rows, which come with their deciding columns."""
        ...

    def whole(self, rivals: MergeCandidates, chosen: Int64s) -> pa.Table:
        """Return all columns of some rivals, by their positions in `rivals`, in that order."""
        ...

    def replace(self, rivals: MergeCandidates, lost: Mask, fresh: int, stage: StageWith) -> Replacement:
        """Remove the rivals that lost, and add `fresh` new rows."""
        ...


_FREE_SHARE = 16
_FREE_ROWS = 4096
_BIG_SHARE = 4


def files_to_fold(live: Sequence[int], rows: Sequence[int], fresh: int, *, turn: bool) -> list[int]:
    """Return the positions of the files to rewrite together with the `fresh` new rows.

    Small files are rewritten with any batch, up to a bound that follows the batch's size, so that one small
    file grows. The others wait for the bucket's turn; buckets take turns, so that no batch has to rewrite many.
    In its turn, a file no larger than all smaller ones together joins them, so sizes grow geometrically. A file
    is also rewritten if it has lost a quarter of its rows, or if smaller files have a quarter as many.
    """
    order = sorted(range(len(live)), key=live.__getitem__)
    free = _FREE_SHARE * fresh + _FREE_ROWS
    gathered, chosen = fresh, 0
    for place, at in enumerate(order, start=1):
        joins = live[at] <= gathered if turn else gathered + live[at] <= free
        gathered += live[at]
        if joins or (turn and _BIG_SHARE * (gathered - live[at]) >= live[at]):
            chosen = place
        elif not turn:
            break
    folded = order[:chosen]
    if turn:
        folded += [at for at in order[chosen:] if _BIG_SHARE * (rows[at] - live[at]) >= rows[at]]
    # One file alone, and nothing to join it, stays as it is unless it is to be rid of dead rows.
    if (
        len(folded) == 1
        and not fresh
        and not (turn and _BIG_SHARE * (rows[folded[0]] - live[folded[0]]) >= rows[folded[0]])
    ):
        return []
    return sorted(folded)


# Nearly all buckets are rewritten: of so few rows, a second read costs more than one that is in vain.
_FEW_ROWS = 8_192


class RewrittenRows:
    """A bucket's rows, all of which are read and rewritten."""

    def __init__(self, layout: Layout, held: BucketFiles, reader: BucketReader) -> None:
        self._layout = layout
        self._held = held
        self._reader = reader
        self._base: pa.Table | None = None
        self._whole: pa.Table | None = None

    def rivals(self, rows: pa.Table) -> MergeCandidates:
        del rows
        if self._base is None and self._reader.rows <= _FEW_ROWS:
            self._whole = whole = self._reader.read(self._reader.schema.names)
            self._base = whole.select(self._layout.deciding)
        base = self._reader.read(self._layout.deciding) if self._base is None else self._base
        self._base, count = base, base.num_rows
        return MergeCandidates(base, np.zeros(count, dtype=np.int64), np.arange(count))

    def whole(self, rivals: MergeCandidates, chosen: Int64s) -> pa.Table:
        """Return all columns of some rows, and keep the bucket's other rows for the rewrite."""
        del rivals
        whole = self._reader.read(self._reader.schema.names) if self._whole is None else self._whole
        self._whole = whole
        return whole.take(pa.array(chosen))

    def replace(self, rivals: MergeCandidates, lost: Mask, fresh: int, stage: StageWith) -> Replacement:
        """Write the other rows and the fresh ones into one file."""
        del fresh
        names = self._reader.schema.names
        kept = rivals.rows if self._whole is None else self._whole
        # What decides has been read before.
        payload = [name for name in names if name not in kept.column_names]
        for name, column in zip(payload, self._reader.read(payload).columns if payload else [], strict=True):
            kept = kept.append_column(name, column)
        kept = kept.select(names)
        return Replacement(stage(kept.filter(pa.array(~lost)) if lost.any() else kept), self._held.rows)


class BesideRows:
    """A bucket's rows, none of which has the key of a new row; they stay as they are.

    With `fold`, small files are merged with the new rows. Their sizes grow geometrically, so a row is rewritten
    a number of times that is the logarithm of the bucket's rows.
    """

    def __init__(self, layout: Layout, files: DataFiles, held: BucketFiles, *, fold: bool) -> None:
        self._files = files
        self._held = held
        self._fold = fold
        self._none = files.schema.empty_table()
        self._deciding = self._none.select(layout.deciding)

    def rivals(self, rows: pa.Table) -> MergeCandidates:
        del rows
        none = np.empty(0, dtype=np.int64)
        return MergeCandidates(self._deciding, none, none)

    def whole(self, rivals: MergeCandidates, chosen: Int64s) -> pa.Table:
        del rivals, chosen
        return self._none

    def replace(self, rivals: MergeCandidates, lost: Mask, fresh: int, stage: StageWith) -> Replacement:
        """Write the fresh rows into a file of their own, or together with small files."""
        del rivals, lost
        if not self._fold:
            return Replacement(stage(self._none))
        counts = counts_of(self._held, self._files)
        live = [self._held.live_in(at, count) for at, count in enumerate(counts)]
        folded = files_to_fold(live, counts, fresh, turn=True)
        paths = [self._held.rows[at] for at in folded]
        kept = self._files.read_rows(paths, [self._held.vectors[at] for at in folded])
        return Replacement(stage(kept), tuple(paths))


class MarkedRows:
    """A bucket's rows, found through the indexes of its files; with `turn`, large files may be rewritten."""

    def __init__(self, layout: Layout, files: DataFiles, index: KeyIndex, held: BucketFiles, *, turn: bool) -> None:
        self._layout = layout
        self._files = files
        self._index = index
        self._held = held
        self._turn = turn
        self._counts = counts_of(held, files)
        self._dead: dict[int, Mask] = {}

    def rivals(self, rows: pa.Table) -> MergeCandidates:
        """Return the live rows whose key has the hash of one of the rows."""
        hashes = np.unique(key_hashes(rows, self._layout.key))
        none = self._files.schema.empty_table().select(self._layout.deciding)
        parts = [none]
        files: list[Int64s] = []
        positions: list[Int64s] = []
        for at in range(len(self._held.rows)):
            matches = self._index.lookup(self._held.rows[at], hashes, lambda at=at: self._deciding_columns(at))
            live = ~self._dead_of(at)[matches.positions]
            positions.append(matches.positions[live])
            files.append(np.full(len(positions[-1]), at, dtype=np.int64))
            # The index may be from before a column was made wider.
            parts.append(conform(matches.rows.filter(pa.array(live)), none.schema))
        nowhere = np.empty(0, dtype=np.int64)
        return MergeCandidates(
            pa.concat_tables(parts), np.concatenate([nowhere, *files]), np.concatenate([nowhere, *positions])
        )

    def whole(self, rivals: MergeCandidates, chosen: Int64s) -> pa.Table:
        """Read the rows from their row groups, file by file."""
        files, positions = rivals.files[chosen], rivals.positions[chosen]
        order = np.lexsort((positions, files))
        parts = [
            self._files.rows_at(self._held.rows[at], np.sort(positions[files == at]))
            for at in np.unique(files).tolist()
        ]
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables([self._files.schema.empty_table(), *parts]).take(pa.array(back))

    def replace(self, rivals: MergeCandidates, lost: Mask, fresh: int, stage: StageWith) -> Replacement:
        """Mark the rivals that lost; merge small files with the fresh rows."""
        files, positions = rivals.files[lost], rivals.positions[lost]
        touched = set(np.unique(files).tolist())
        for at in touched:
            self._dead[at] = self._dead_of(at).copy()
            self._dead[at][positions[files == at]] = True
        live = [self._live_of(at) for at in range(len(self._counts))]
        empty = {at for at in touched if live[at] == 0}
        others = [at for at in range(len(live)) if at not in empty]
        chosen = files_to_fold([live[at] for at in others], [self._counts[at] for at in others], fresh, turn=self._turn)
        folded = [others[each] for each in chosen]
        staged = self._stage(folded, stage)
        marks = [self._mark(at) for at in sorted(touched - empty - set(folded))]
        return Replacement(staged, tuple(self._held.rows[at] for at in sorted(empty.union(folded))), tuple(marks))

    def _stage(self, folded: list[int], stage: StageWith) -> StagedFile | None:
        dead = [self._dead_of(at) for at in folded]
        return stage(self._files.read_rows([self._held.rows[at] for at in folded], dead))

    def _mark(self, at: int) -> Mark:
        dead = self._dead[at]
        return Mark(self._held.rows[at], encode_vector(dead), int(np.count_nonzero(dead)), self._counts[at])

    def _live_of(self, at: int) -> int:
        if at in self._dead:
            return self._counts[at] - int(np.count_nonzero(self._dead[at]))
        return self._held.live_in(at, self._counts[at])

    def _dead_of(self, at: int) -> Mask:
        if at not in self._dead:
            self._dead[at] = self._files.dead(self._held.vectors[at], self._counts[at])
        return self._dead[at]

    def _deciding_columns(self, at: int) -> pa.Table:
        return self._files.read_rows([self._held.rows[at]], columns=self._layout.deciding)


# A bucket with fewer rows is rewritten in no time, and one of more files is read more slowly.
_WORTH_KEEPING = 10_000
_MOST_FILES = 16


class Engine:
    """The choice of an engine for each bucket.

    `entries` is True if the table's log takes our own entries; otherwise no single file can leave a bucket.
    `marks` is True if the table has deletion vectors; the engine `auto` never adds them. The engine `vectors`
    raises in an object store that cannot put a log entry.
    """

    def __init__(
        self, target: SinkTarget, layout: Layout, files: DataFiles, *, entries: bool = True, marks: bool = False
    ) -> None:
        options = target.options
        self._layout = layout
        self._files = files
        self._entries = entries
        self._index = KeyIndex(target.location, layout.key, options.index_location, options.index_limit)
        self._kind = options.engine
        # Marks need an entry of the log that delta-rs cannot write, and so a store that lets us put one.
        refusal = None if options.engine == "rewrite" else target.folder.puts_refused()
        if refusal is not None:
            if options.engine == "vectors":
                raise refusal
            self._kind = "rewrite"
        if self._kind == "auto" and not marks:
            self._kind = "rewrite"

    @contextlib.contextmanager
    def held_rows(self, held: BucketFiles, new: pa.Table, *, turn: bool) -> Generator[HeldRows]:
        """Yield a bucket's rows while its files are needed for `new`. With `turn`, large files may be rewritten."""
        if self._marks(held):
            yield MarkedRows(self._layout, self._files, self._index, held, turn=turn)
            return
        reader = self._files.open(held.rows, held.vectors)
        try:
            many = len(held.rows) >= _MOST_FILES
            beside = (
                (self._entries or not many)
                and reader.rows >= _WORTH_KEEPING
                and reader.apart_from(new, self._layout.key)
            )
            if beside:
                yield BesideRows(self._layout, self._files, held, fold=many)
            else:
                yield RewrittenRows(self._layout, held, reader)
        finally:
            reader.close()

    def staged(self, held: BucketFiles, path: str, rows: pa.Table) -> None:
        """Index a new file of a bucket while its columns are at hand, if a later batch will look up its rows."""
        if self._marks(held):
            self._index.put(path, rows.select(self._layout.deciding))

    def done(self, named: set[str]) -> None:
        """Tidy the index after a task; `named` are the table's data files."""
        self._index.tidy(named)

    def _marks(self, held: BucketFiles) -> bool:
        return self._kind == "vectors" or (self._kind == "auto" and held.live >= table.WORTH_MARKING)
