"""The choice of how rows leave a bucket: by a rewrite, or by deletion vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

import pyarrow as pa

from ..table import engine_choice
from ..table.key_index import KeyIndex
from .held_rows import HeldRows
from .rewrite_engine import BesideRows, RewrittenRows
from .vectors_engine import MarkedRows

if TYPE_CHECKING:
    from ..spec.layout import Layout
    from ..spec.options import SinkTarget
    from ..table.files import DataFiles
    from ..table.table import Held

__all__ = ["Engine"]

# A bucket with fewer rows is written anew in no time, and one of more files is read more slowly.
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
    def held_rows(self, held: Held, new: pa.Table, *, turn: bool) -> Generator[HeldRows]:
        """Yield the rows of a bucket, for as long as its files are needed.

        `new` has the deciding columns. With `turn`, large files may be rewritten although they need not be.
        """
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

    def staged(self, held: Held, path: str, rows: pa.Table) -> None:
        """Index a new file of a bucket while its columns are at hand, if a later batch will look up its rows."""
        if self._marks(held):
            self._index.put(path, rows.select(self._layout.deciding))

    def done(self, named: set[str]) -> None:
        """Tidy the index after a task; `named` are the table's data files."""
        self._index.tidy(named)

    def _marks(self, held: Held) -> bool:
        return self._kind == "vectors" or (self._kind == "auto" and held.live >= engine_choice.WORTH_MARKING)
