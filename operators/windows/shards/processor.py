"""The window operator and the numbers of rows, on Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Row

from ....core.feedback.reports import write_report
from ...runtime.dead_letters import DeadLetterRows
from ...runtime.shard_processor import ShardProcessor, batch_id
from ...state.store import Store
from ..sessions import SessionWindows
from .plan import WindowPlan
from .row_shard import RowWindowShard
from .session_shard import SessionShard
from .shard import WindowShard
from .stream_numbers import NumberingPlan, NumberingShard


def window_shard(number: int, plan: WindowPlan, store: Store) -> WindowShard | RowWindowShard | SessionShard:
    """Return a shard of the windows: over time, over rows, or sessions."""
    if isinstance(plan.windows, SessionWindows):
        return SessionShard(number, plan, store)
    return (RowWindowShard if plan.by_rows else WindowShard)(number, plan, store)


class WindowProcessor(ShardProcessor):
    """The stateful processor of each shard's windows; the shards report to `folder`, and `late` writes late rows.

    Guarantee: Spark keeps the state of a batch with the batch. A repeated batch starts from the same state, yields the
    same results, and writes the same late rows to the same files.
    """

    state = "upstream_windows_v1"

    def __init__(self, plan: WindowPlan, folder: str, late: DeadLetterRows | None) -> None:
        self._plan = plan
        self._folder = folder
        self._late = late

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        frames = [bytes(row.frame) for row in rows if row.frame is not None]
        windows = window_shard(shard, self._plan, store)
        result, report = windows.run(frames, batch_id())
        if self._late is not None and windows.late is not None:
            self._late.write(report.batch_id, report.shard, windows.late)
        write_report(self._folder, report)
        return result


class NumberingProcessor(ShardProcessor):
    """The stateful processor that numbers rows; its shard reports to `folder`."""

    state = "upstream_numbering_v1"

    def __init__(self, plan: NumberingPlan, folder: str) -> None:
        self._plan = plan
        self._folder = folder

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        del shard
        result, report = NumberingShard(self._plan, store).run([bytes(row.frame) for row in rows], batch_id())
        write_report(self._folder, report)
        return result
