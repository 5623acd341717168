"""The engine ``vectors``: superseded rows are marked as dead in place, and fresh rows come in a small file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...delta_format.deletion_vectors import encode_vector
from ..spec.layout import Layout
from ..table.files import DataFiles, StagedFile, conform
from ..table.key_index import KeyIndex, key_hashes
from ..table.table import Held
from .held_rows import Mark, Replacement, Rivals, StageWith, counts_of
from .pending import Int64s, Mask
from .small_files import files_to_fold

__all__ = ["MarkedRows"]


class MarkedRows:
    """A bucket's rows, found through the indexes of its files; with `turn`, large files may be rewritten."""

    def __init__(self, layout: Layout, files: DataFiles, index: KeyIndex, held: Held, *, turn: bool) -> None:
        self._layout = layout
        self._files = files
        self._index = index
        self._held = held
        self._turn = turn
        self._counts = counts_of(held, files)
        self._dead: dict[int, Mask] = {}

    def rivals(self, rows: pa.Table) -> Rivals:
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
        return Rivals(pa.concat_tables(parts), np.concatenate([nowhere, *files]), np.concatenate([nowhere, *positions]))

    def whole(self, rivals: Rivals, chosen: Int64s) -> pa.Table:
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

    def replace(self, rivals: Rivals, lost: Mask, fresh: int, stage: StageWith) -> Replacement:
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
