"""The window operator on Spark: `transformWithState` with one group for each shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ...frames.window_reports import write_window_report
from .frames import from_frame, to_frame
from .late import write_late
from .row_window_shard import RowWindowShard
from .spark_store import MapStore, batch_id, open_map
from .window_plan import WindowPlan
from .window_shard import WindowShard

__all__ = ["WindowProcessor", "window_unpack"]

_STATE = "upstream_windows_v1"


class WindowProcessor(StatefulProcessor):
    """Runs each shard's batch against Spark's state store.

    Parameters
    ----------
    plan : WindowPlan
    slots : sequence of int
        What each shard is grouped by.
    folder : str
        Where the shards leave their reports.
    late_location : str or None
        Where late rows go.

    Notes
    -----
    Guarantee: Spark keeps the state of a batch with the batch, so a batch that is run again starts from the same state and gives the same
    results, and writes the same late rows to the same files.
    """

    def __init__(self, plan: WindowPlan, slots: Sequence[int], folder: str, late_location: str | None) -> None:
        self._plan = plan
        self._shard_of = {slot: number for number, slot in enumerate(slots)}
        self._folder = folder
        self._late_location = late_location
        self._state: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = open_map(handle, _STATE)

    def handleInputRows(  # pyright: ignore[reportIncompatibleMethodOverride] Spark names pandas frames, and gives rows
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803 Spark's name
    ) -> Iterator[Row]:
        """One batch of one shard."""
        del timerValues
        frames = [bytes(row.frame) for row in rows if row.frame is not None]
        kind = RowWindowShard if self._plan.by_rows else WindowShard
        shard = kind(self._shard_of[int(key[0])], self._plan, MapStore(self._state))
        result, report = shard.run(frames, batch_id())
        if self._late_location is not None and shard.late is not None:
            write_late(self._late_location, report.batch_id, report.shard, shard.late)
        write_window_report(self._folder, report)
        if result is not None:
            yield Row(frame=bytearray(to_frame(result)))

    def close(self) -> None:
        """Nothing is held open."""


def window_unpack(schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for ``mapInArrow``: the rows of frames, in their order."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for frame in batch.column("frame"):
                yield from from_frame(frame.as_buffer()).cast(schema).combine_chunks().to_batches(max_chunksize=10_000)

    return run
