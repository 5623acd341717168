"""The shard operator on Spark: `transformWithState` with one group for each shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ...frames.reports import write_report
from .frames import to_frame
from .messages import Control, ShardPlan
from .queue_shard import QueueShard
from .spark_store import MapStore, batch_id, open_map

__all__ = ["QueueProcessor"]

_STATE = "upstream_queue_v1"


class QueueProcessor(StatefulProcessor):
    """Runs each shard's batch against Spark's state store.

    Parameters
    ----------
    plan : ShardPlan
    slots : sequence of int
        What each shard is grouped by.
    folder : str
        Where the shards leave their reports.

    Notes
    -----
    Guarantee: Spark keeps the state of a batch with the batch, so rows that wait survive any crash, and a batch that is run again
    starts from the same state and gives the same rows.
    """

    def __init__(self, plan: ShardPlan, slots: Sequence[int], folder: str) -> None:
        self._plan = plan
        self._shard_of = {slot: number for number, slot in enumerate(slots)}
        self._folder = folder
        self._state: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state: one map of binary values by kind and page."""
        self._state = open_map(handle, _STATE)

    def handleInputRows(  # pyright: ignore[reportIncompatibleMethodOverride] Spark names pandas frames, and gives rows
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803 Spark's name
    ) -> Iterator[Row]:
        """One batch of one shard."""
        del timerValues
        frames: list[bytes] = []
        control: Control | None = None
        for row in rows:
            if row.frame is not None:
                frames.append(bytes(row.frame))
            if row.control is not None:
                control = Control.from_json(row.control)
        shard = QueueShard(self._shard_of[int(key[0])], self._plan, MapStore(self._state))
        result, report = shard.run(frames, control)
        write_report(self._folder, dataclasses.replace(report, batch_id=batch_id()))
        if result is not None:
            yield Row(frame=bytearray(to_frame(result)))

    def close(self) -> None:
        """Nothing is held open."""
