"""Reading of a task's ranges: shape, coalesce, append punctuation; where malformed rows go. It needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ..conf.errors import MalformedRowError
from ..core.feedback.checkpoint_layout import times_folder
from ..core.feedback.lanes import NEWEST
from ..core.feedback.reports import BATCH_PROPERTY, RowSample, sample_folder, task_property, write_report
from ..core.rows.event_times import time_scalar
from ..core.rows.system_column import SYSTEM, system_array
from ..core.watermark.bounds import embedded_punctuation, times_of_bounds
from ..delta_format.append_table import DEAD_LETTERS, DeadLetterWriter
from ..storage.folder import TableFolder, folder_at
from .connectors.contract import Connector, MalformedRows
from .observed_times import SilentReceiver, TaskLook
from .options import SourceOptions
from .planner import Task
from .row_shaper import RowCondition, RowShaper, ShapedRows, coalesced
from .schema import FeedShape

# A line of a broken binary file can be long; what is kept of it is enough to recognise it.
_MOST_TEXT = 65_536
# What is held of malformed rows until it is written, so that memory does not grow with them.
_MOST_BYTES = 8 << 20


class FirstFailure:
    """Raises MalformedRowError on the first malformed row: with `onMalformed=fail`, or if no table takes it."""

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        raise MalformedRowError(
            f"malformed row at {place_of(place, line)}: {reason}; it reads {text[:200]!r}",
            hint="correct the row and restart. Or write such rows to a table, with onMalformed=quarantine and its "
            "location, deadLetters, or the query's checkpointLocation",
        )


class DeadRows:
    """A writer of one task's malformed rows to the table of dead letters."""

    def __init__(self, folder: TableFolder, task: Task) -> None:
        self._folder = folder
        self._task = task
        self._batch = task_property(BATCH_PROPERTY)
        self._writer: DeadLetterWriter | None = None
        self._held: list[tuple[str, str, str]] = []
        self._size = 0

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        row = (place_of(place, line), reason, text[:_MOST_TEXT])
        self._held.append(row)
        self._size += sum(map(len, row))
        if self._size >= _MOST_BYTES:
            self._write()

    def commit(self) -> int:
        """Append the rows to the table, and return their number. Without rows no table is made."""
        self._write()
        return 0 if self._writer is None else self._writer.commit()

    def _write(self) -> None:
        if not self._held:
            return
        if self._writer is None:
            stream, _, number = self._task.batch.rpartition("-")
            self._writer = DeadLetterWriter(self._folder, f"{stream}-{self._task.number}", int(number))
        # A name or a text of any bytes can be written.
        columns = [
            [each.encode("utf-8", "backslashreplace") for each in column] for column in zip(*self._held, strict=True)
        ]
        texts = [pa.array(column, pa.binary()).cast(pa.string()) for column in columns]
        batch = pa.repeat(pa.scalar(None if self._batch is None else int(self._batch), pa.int64()), len(self._held))
        self._writer.write(pa.table([batch, *texts], schema=DEAD_LETTERS))
        self._held, self._size = [], 0


def place_of(place: str, line: int | None) -> str:
    """Return the place of a malformed row for people."""
    return place if line is None else f"{place}, line {line}"


# Rows per Arrow batch handed to the JVM: large enough to cost nothing, small enough to bound its buffers.
_ROWS_PER_BATCH = 100_000


class Reading:
    """A reader of a batch's tasks. `dead_letters` is the table for malformed rows, if there is one."""

    def __init__(
        self, options: SourceOptions, shape: FeedShape, connector: Connector, dead_letters: str | TableFolder | None
    ) -> None:
        self.options = options
        self.shape = shape
        self.connector = connector
        self.dead_letters = dead_letters
        # Bound here, on the driver: tasks parse nothing.
        self.condition = RowCondition(options.where, shape.user, options.time_zone) if options.where else None

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        malformed: MalformedRows = FirstFailure()
        if task.lane == "every":  # another task has reported them
            malformed = SilentReceiver()
        elif self.options.on_malformed == "quarantine" and self.dead_letters is not None:
            malformed = DeadRows(folder_at(self.dead_letters), task)
        marks: list[ShapedRows] = []
        look = TaskLook(self.options, task.states)
        rows = self._rows(task, malformed, marks, look)
        # By the same order: in a feed, later rows have greater sequence numbers.
        by_time = not self.options.sequence and NEWEST.get() == (tuple(self.options.key), self.options.time)
        if self.options.coalesce or by_time:
            rows = coalesced(rows, self.options.key, self.options.sequence)
        wanted = 0 if task.sample is None else task.sample[1]
        head: list[pa.RecordBatch] = []
        for each in rows:
            for batch in self._batches(each):
                if wanted > len(head):
                    head += [batch.take([at]) for at in range(min(batch.num_rows, wanted - len(head)))]
                yield batch
        self._sample(task, head)
        if isinstance(malformed, DeadRows):
            malformed.commit()
        if self.options.checkpoint is not None:
            look.report(times_folder(self.options.checkpoint), f"{task.batch}-{task.number:04d}.json")
        if self.options.punctuation:
            for each in marks:
                yield from self._batches(each, punctuation=True)
            yield from self._punctuation(task)

    def _sample(self, task: Task, head: list[pa.RecordBatch]) -> None:
        if task.sample is None or not head or self.options.checkpoint is None:
            return
        version, count = task.sample
        batch = task_property(BATCH_PROPERTY)
        place = sample_folder(self.options.checkpoint, f"source/{task.batch.rpartition('-')[0]}")
        number = -1 if batch is None else int(batch)
        write_report(place, RowSample.of(task.number, version, number, pa.Table.from_batches(head), count))

    def _rows(
        self, task: Task, malformed: MalformedRows, marks: list[ShapedRows], look: TaskLook
    ) -> Iterator[ShapedRows]:
        shaper = RowShaper(self.shape, self.options, self.condition)
        for first_seq, part in task.ranges:
            for chunk in self.connector.read(part, None, malformed):
                rows = shaper.shape(
                    chunk,
                    part,
                    first_seq=first_seq,
                    malformed=malformed,
                    look=look,
                    entered_us=task.entered.get(first_seq),
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
