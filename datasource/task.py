"""Reading of a task's ranges: shape, coalesce, append punctuation. It needs no Spark, and is pickled to the tasks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ..core.feedback.checkpoint_layout import times_folder
from ..core.rows.event_times import time_scalar
from ..core.rows.system_column import SYSTEM, system_array
from ..core.watermark.bounds import times_of_bounds
from ..core.watermark.embedded import embedded_punctuation
from ..storage.folder import TableFolder
from .coalesce import coalesced
from .connectors.contract import Connector, MalformedRows
from .observed_times import TaskLook
from .options import SourceOptions
from .planner import Task
from .quarantine import Failing, Quarantine
from .row_shaper import Rows, RowShaper
from .schema import Shape

__all__ = ["Reading"]

# Rows per Arrow batch handed to the JVM: large enough to cost nothing, small enough to bound its buffers.
_ROWS_PER_BATCH = 100_000


class Reading:
    """A reader of a batch's tasks. `quarantine` is the folder for malformed rows."""

    def __init__(
        self, options: SourceOptions, shape: Shape, connector: Connector, quarantine: str | TableFolder
    ) -> None:
        self.options = options
        self.shape = shape
        self.connector = connector
        self.quarantine = quarantine
        RowShaper(shape, options)  # a wrong condition is refused here, on the driver

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        malformed: MalformedRows = Failing()
        if self.options.on_malformed == "quarantine":
            malformed = Quarantine(self.quarantine, f"{task.batch}-{task.number:04d}.jsonl")
        marks: list[Rows] = []
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

    def _rows(self, task: Task, malformed: MalformedRows, marks: list[Rows], look: TaskLook) -> Iterator[Rows]:
        shaper = RowShaper(self.shape, self.options)
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

    def _without_marks(self, rows: Rows, marks: list[Rows]) -> Rows:
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

    def _batches(self, rows: Rows, *, punctuation: bool = False) -> Iterator[pa.RecordBatch]:
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
