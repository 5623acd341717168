"""The sink's dead letters: late rows, rows that lost in a conflict, and rows with text that is not UTF-8."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.feedback.reports import BATCH_PROPERTY, task_property
from ...core.rows.event_times import recorded_bound
from ...core.rows.exact_integers import Mask
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import DELETED
from ...core.rows.text import readable
from ...delta_format.append_table import DEAD_LETTERS, dead_letter_table, letters_of
from ...delta_format.latest_table import NOTHING_YET, ORDERS, recorded_under
from ...storage.folder import TableFolder
from ..figures.summary import last_commit
from ..spec.options import CONFLICTS, LATE, TEXT, SinkTarget
from ..table.files import DataFiles

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ..spec.layout import Layout
    from .batch_rows import BatchRows


OUTPUTS_KEY = "upstreamDeadLetters"
"""Where a commit's metadata names the files of its dead letters."""

_REASONS = {LATE: "late", CONFLICTS: "in conflict with a newer row", TEXT: "text that is not UTF-8"}
_APP_PREFIX = "upstream-output-"
_NEVER, _ALWAYS = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
_ROWS_AT_ONCE = 1_000_000


@dataclasses.dataclass(frozen=True)
class SideRows:
    """The dead-letter rows of a task, or a batch."""

    conflicts: int = 0  # pairs of rows that conflict
    late: int | None = None  # None if they are not written
    files: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)  # by path the size and the rows
    texts: int | None = None  # rows with text that is not UTF-8; None if they are not written

    @classmethod
    def together(cls, parts: Iterable[SideRows]) -> SideRows:
        parts = list(parts)
        looked = [part.late for part in parts if part.late is not None]
        read = [part.texts for part in parts if part.texts is not None]
        files = {path: written for part in parts for path, written in part.files.items()}
        conflicts = sum(part.conflicts for part in parts)
        return cls(conflicts, sum(looked) if looked else None, files, sum(read) if read else None)


@dataclasses.dataclass(frozen=True)
class Outputs:
    """The table of a query's dead letters, and the low-watermarks that decide which rows are late.

    Late and conflicting rows are copies; rows of other text are in no other table. Tasks stage files, the main table's
    commit names them, and then they are appended, once. If a process dies in between, the repeated batch appends the
    files that its commit named.
    """

    target: SinkTarget  # the main table's
    layout: Layout  # the main table's
    schema: pa.Schema  # of the main table's data files
    # by input partition the watermark committed before this batch; None if it had ended
    promised: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def folder(self) -> TableFolder:
        return dataclasses.replace(self.target.folder, location=self.target.dead_letters)

    @property
    def files(self) -> DataFiles:
        return DataFiles(dataclasses.replace(self.target, location=self.target.dead_letters), DEAD_LETTERS)

    def named(self, put: SideRows) -> dict[str, Any]:
        """Return the main table's record of a batch's files, and of the location of their table.

        So they arrive there even if the options change first. The table is also found where only the query's operators
        have dead letters.
        """
        return {"location": self.target.dead_letters, "files": dict(put.files)} if self.target.dead_letters else {}

    def check(self) -> None:
        """Refuse a table that cannot take the rows."""
        if self.target.dead_letter_rows and self.target.dead_letters:
            dead_letter_table(self.folder).load()

    def discard(self, put: SideRows, kept: Container[str] = ()) -> None:
        """Remove the staged files, except those that a commit of the main table has named."""
        if put.files:
            self.files.remove(path for path in put.files if path not in kept)


class SideRowWriter:
    """The side rows of one task: copies of its late and conflicting rows, and its rows of other text."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._held: list[pa.Table] = []
        self._staged: dict[str, tuple[int, int]] = {}
        self._conflicts = 0
        self._late = 0
        self._texts = 0
        self._kinds = outputs.target.dead_letter_rows
        self.looks_at_text = TEXT in self._kinds
        self._looks = LATE in self._kinds and outputs.layout.progress_time is not None
        self._bounds = self._of_feeds() if self._looks else {}

    def look(self, rows: pa.Table, system: pa.ChunkedArray, deleted: Mask | None) -> None:
        """Copy the late rows of a batch, in the data files' schema; `system` is their system column."""
        if not self._bounds:
            return
        times = rows.column(self._outputs.layout.progress_time)
        timed = np.flatnonzero(times.is_valid().to_numpy())
        sources = pc.fill_null(pc.struct_field(system, ["source"]), "").combine_chunks().dictionary_encode()
        bounds = np.array([self._bounds.get(feed, _NEVER) for feed in sources.dictionary.to_pylist()], dtype=np.int64)
        late = timed[ordered(times.drop_null()) < bounds[sources.indices.to_numpy()[timed]]]
        if len(late):
            self._late += len(late)
            chosen = pa.array(late)
            marks = None if deleted is None else deleted[late]
            self._take(LATE, rows.take(chosen), system.take(chosen), marks)

    def no_text(self, rows: pa.Table, system: pa.ChunkedArray | None, deleted: Mask | None) -> None:
        """Take rows with text that is not UTF-8."""
        self._texts += rows.num_rows
        self._take(TEXT, rows, system, deleted)

    def lost(self, rows: BatchRows) -> None:
        """Count rows that lost in a conflict, and copy them if the options keep them."""
        self._conflicts += rows.rows.num_rows
        if CONFLICTS in self._kinds:
            self._take(CONFLICTS, rows.rows, None, rows.deleted)

    def staged(self) -> SideRows:
        """Stage the rows taken so far, and return their counts and files."""
        self._stage()
        texts = self._texts if self.looks_at_text else None
        return SideRows(self._conflicts, self._late if self._looks else None, self._staged, texts)

    def discard(self) -> None:
        self._outputs.discard(SideRows(files=self._staged))

    def _take(self, kind: str, rows: pa.Table, system: pa.ChunkedArray | None, deleted: Mask | None) -> None:
        """Hold rows, with their feed (or the main table) as the origin, and a mark in those that delete their key."""
        if not rows.num_rows:
            return
        origin: Any = self._outputs.target.location
        if system is not None:
            origin = pc.fill_null(pc.struct_field(system, ["source"]), origin)
        marks = np.zeros(rows.num_rows, dtype=np.bool_) if deleted is None else deleted
        rows = rows.select([name for name in rows.column_names if name != ORDERS])
        batch = task_property(BATCH_PROPERTY)
        self._held.append(
            letters_of(
                readable(rows).append_column(DELETED, pa.array(marks)),
                batch=None if batch is None else int(batch),
                origin=origin,
                reason=_REASONS[kind],
            )
        )
        if sum(part.num_rows for part in self._held) >= _ROWS_AT_ONCE:
            self._stage()

    def _stage(self) -> None:
        if self._held:
            rows = pa.concat_tables(self._held)
            path, size = self._outputs.files.write_rows(rows)
            self._staged[path] = (size, rows.num_rows)
            self._held.clear()

    def _of_feeds(self) -> dict[str, int]:
        name = self._outputs.layout.progress_time
        assert name is not None
        kind = self._outputs.schema.field(name).type
        return {
            feed: _ALWAYS if bound is None else _number(bound, kind)
            for feed, bound in self._outputs.promised.items()
            if bound != NOTHING_YET
        }


def _number(bound: Any, kind: pa.DataType) -> int:
    return int(ordered(pa.chunked_array([recorded_bound(bound, kind)]))[0])


def files_named(commit_info: Mapping[str, Any]) -> set[str]:
    """Return the files of dead letters that a commit names."""
    return set((recorded_under(OUTPUTS_KEY, commit_info) or {"files": ()})["files"])


def write_outputs(outputs: Outputs, table: DeltaTable | None, query_id: str, near: int | None = None) -> None:
    """Append the dead letters of the query's last commit, unless they have been appended.

    One commit is enough: the next batch does not begin before this is done for the last one. `near` is the
    version of that commit in the query's checkpoint. If it fails, the restarted query appends first.
    """
    found = None if table is None else last_commit(table, query_id, near=near)
    named = None if found is None else recorded_under(OUTPUTS_KEY, found[1])
    if found is None or not named or not named["files"]:
        return
    summary = found[0]
    files = {path: (size, json.dumps({"numRecords": rows})) for path, (size, rows) in named["files"].items()}
    folder = dataclasses.replace(outputs.folder, location=named["location"])
    dead_letter_table(folder).append(files, _APP_PREFIX + query_id, summary.batch_id, summary.committed_at_us // 1000)
