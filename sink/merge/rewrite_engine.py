"""The engine ``rewrite``: a changed bucket is rewritten, so that every reader of Delta can read it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..spec.layout import Layout
from ..table.files import BucketReader, DataFiles
from ..table.table import Held
from .held_rows import Replacement, Rivals, StageWith, counts_of
from .pending import Int64s, Mask
from .small_files import files_to_fold

__all__ = ["BesideRows", "RewrittenRows"]


# Nearly all buckets are rewritten: of so few rows, a second read costs more than one that is in vain.
_FEW_ROWS = 8_192


class RewrittenRows:
    """A bucket's rows, all of which are read and rewritten."""

    def __init__(self, layout: Layout, held: Held, reader: BucketReader) -> None:
        self._layout = layout
        self._held = held
        self._reader = reader
        self._base: pa.Table | None = None
        self._whole: pa.Table | None = None

    def rivals(self, rows: pa.Table) -> Rivals:
        del rows
        if self._base is None and self._reader.rows <= _FEW_ROWS:
            self._whole = whole = self._reader.read(self._reader.schema.names)
            self._base = whole.select(self._layout.deciding)
        base = self._reader.read(self._layout.deciding) if self._base is None else self._base
        self._base, count = base, base.num_rows
        return Rivals(base, np.zeros(count, dtype=np.int64), np.arange(count))

    def whole(self, rivals: Rivals, chosen: Int64s) -> pa.Table:
        """Return all columns of some rows, and keep the bucket's other rows for the rewrite."""
        del rivals
        whole = self._reader.read(self._reader.schema.names) if self._whole is None else self._whole
        self._whole = whole
        return whole.take(pa.array(chosen))

    def replace(self, rivals: Rivals, lost: Mask, fresh: int, stage: StageWith) -> Replacement:
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

    def __init__(self, layout: Layout, files: DataFiles, held: Held, *, fold: bool) -> None:
        self._files = files
        self._held = held
        self._fold = fold
        self._none = files.schema.empty_table()
        self._deciding = self._none.select(layout.deciding)

    def rivals(self, rows: pa.Table) -> Rivals:
        del rows
        none = np.empty(0, dtype=np.int64)
        return Rivals(self._deciding, none, none)

    def whole(self, rivals: Rivals, chosen: Int64s) -> pa.Table:
        del rivals, chosen
        return self._none

    def replace(self, rivals: Rivals, lost: Mask, fresh: int, stage: StageWith) -> Replacement:
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
