"""Reading of a task's ranges: shape, coalesce, append punctuation; where malformed rows go. It needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ..conf.errors import MalformedRowError, UpstreamError
from ..core.feedback.checkpoint_layout import times_folder
from ..core.rows.event_times import time_scalar
from ..core.rows.system_column import SYSTEM, system_array
from ..core.watermark.bounds import embedded_punctuation, times_of_bounds
from ..storage.atomic_write import write_whole
from ..storage.folder import TableFolder, folder_at
from .connectors.contract import Connector, MalformedRows
from .observed_times import TaskLook
from .options import SourceOptions
from .planner import Task
from .row_shaper import RowCondition, RowShaper, ShapedRows, coalesced
from .schema import FeedShape

# A line of a broken binary file can be long; what is kept of it is enough to recognise it.
_MOST_TEXT = 65_536
_BLOCK = 1 << 20
# What is held of malformed rows until it is written, so that memory does not grow with them.
_MOST_BYTES = 8 << 20


class FirstFailure:
    """Raises MalformedRowError on the first malformed row (`onMalformed=fail`)."""

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        where = place + (f", line {line}" if line is not None else "")
        raise MalformedRowError(
            f"malformed row at {where}: {reason}; it reads {text[:200]!r}",
            hint="mend the row and restart, or set onMalformed=quarantine to put such rows aside",
        )


class Quarantine:
    """A writer of one task's malformed rows, in files of some megabytes.

    All machines of a cluster share the folder. A replay uses the same names for the same rows and replaces the files,
    so each row is there once. `name` is the first file's; the next are numbered.
    """

    def __init__(self, folder: str | TableFolder, name: str) -> None:
        self._folder = folder_at(folder)
        self._name = name
        self._lines: list[bytes] = []
        self._size = 0
        self._files = 0
        self._rows = 0

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        row = {"place": place, "line": line, "reason": reason, "text": text[:_MOST_TEXT]}
        # A name or a text of any bytes can be written.
        self._lines.append((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))
        self._size += len(self._lines[-1])
        self._rows += 1
        if self._size >= _MOST_BYTES:
            self._put()

    def write(self) -> int:
        """Write the rest atomically, and return the number of rows. Without rows there is no file."""
        if self._lines:
            self._put()
        return self._rows

    def _put(self) -> None:
        name = self._name if not self._files else f"{self._name.removesuffix('.jsonl')}-{self._files:04d}.jsonl"
        lines = self._lines
        try:
            with self._folder.guarded():
                write_whole(self._folder, name, lambda stream: stream.write(b"".join(lines)))
        except OSError as error:
            raise UpstreamError(
                f"{len(lines)} malformed rows cannot be written to {self._folder.location}: {error}",
                hint="set quarantineLocation to a folder that every worker can write to, or onMalformed=fail",
            ) from error
        self._lines, self._size, self._files = [], 0, self._files + 1


def count_quarantined(folder: TableFolder) -> int:
    """Return the number of rows in a quarantine folder."""
    names = [name for name in folder.names("") if name.endswith(".jsonl")]
    return sum(folder.each(lambda name: _lines(folder, name), names))


def _lines(folder: TableFolder, name: str) -> int:
    lines = low = 0
    while block := folder.read_range(name, low, _BLOCK):
        lines, low = lines + block.count(b"\n"), low + len(block)
    return lines


# Rows per Arrow batch handed to the JVM: large enough to cost nothing, small enough to bound its buffers.
_ROWS_PER_BATCH = 100_000


class Reading:
    """A reader of a batch's tasks. `quarantine` is the folder for malformed rows."""

    def __init__(
        self, options: SourceOptions, shape: FeedShape, connector: Connector, quarantine: str | TableFolder
    ) -> None:
        self.options = options
        self.shape = shape
        self.connector = connector
        self.quarantine = quarantine
        # Bound here, on the driver: tasks parse nothing.
        self._condition = RowCondition(options.where, shape.user, options.time_zone) if options.where else None

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        malformed: MalformedRows = FirstFailure()
        if self.options.on_malformed == "quarantine":
            malformed = Quarantine(self.quarantine, f"{task.batch}-{task.number:04d}.jsonl")
        marks: list[ShapedRows] = []
        look = TaskLook(self.options, task.states)
        rows = self._rows(task, malformed, marks, look)
        if self.options.coalesce:
            rows = coalesced(rows, self.options.key, self.options.sequence)
        for each in rows:
            yield from self._batches(each)
        if isinstance(malformed, Quarantine):
            malformed.write()
        if self.options.checkpoint is not None:
            look.report(times_folder(self.options.checkpoint), f"{task.batch}-{task.number:04d}.json")
        if self.options.punctuation:
            for each in marks:
                yield from self._batches(each, punctuation=True)
            yield from self._punctuation(task)

    def _rows(
        self, task: Task, malformed: MalformedRows, marks: list[ShapedRows], look: TaskLook
    ) -> Iterator[ShapedRows]:
        shaper = RowShaper(self.shape, self.options, self._condition)
        for first_seq, part in task.ranges:
            for chunk in self.connector.read(part, None, malformed):
                rows = shaper.shape(
                    chunk,
                    part,
                    first_seq=first_seq,
                    malformed=malformed,
                    look=look,
                    entered_us=task.entered.get(part.feed),
                )
                if self.options.progress == "embedded":
                    rows = self._without_marks(rows, marks)
                yield rows

    def _without_marks(self, rows: ShapedRows, marks: list[ShapedRows]) -> ShapedRows:
        # The feed's own punctuation: that for all keys is the planner's, that for some keys passes as it is.
        mask = embedded_punctuation(rows.table, self.options.key, self.options.time, rows.deleted)
        if not mask.any():
            return rows
        keyed = np.zeros(len(mask), dtype=np.bool_)
        for name in self.options.key:
            keyed |= rows.table.column(name).is_valid().to_numpy()
        keyed &= mask
        if keyed.any():
            marks.append(rows.take(keyed))
        return rows.take(~mask)

    def _batches(self, rows: ShapedRows, *, punctuation: bool = False) -> Iterator[pa.RecordBatch]:
        system = rows.system(punctuation=punctuation)
        columns = [system if name == SYSTEM else rows.table.column(name) for name in self.shape.leaving.names]
        yield from pa.table(columns, schema=self.shape.leaving).to_batches(max_chunksize=_ROWS_PER_BATCH)

    def _time_of(self, bound: int) -> pa.Scalar:
        assert self.options.time is not None
        return time_scalar(
            bound, self.shape.leaving.field(self.options.time).type, self.options.time_format, self.options.time_zone
        )

    def _punctuation(self, task: Task) -> Iterator[pa.RecordBatch]:
        last = task.ranges[-1] if task.ranges else None
        seq = np.array([last[0] + last[1].span - 1 if last else 0])
        for feed, bound in task.punctuation.items():
            columns: list[pa.Array] = []
            for field in self.shape.leaving:
                if field.name == SYSTEM:
                    clock = np.array([task.clock_us])
                    columns.append(system_array(source=feed, seq=seq, arrival_us=clock, punctuation=True))
                elif field.name == self.options.time:
                    columns.append(times_of_bounds([bound], field.type, self._time_of))
                else:
                    columns.append(pa.nulls(1, field.type))
            yield pa.RecordBatch.from_arrays(columns, schema=self.shape.leaving)
