"""Feeds to which rows are sent, and batches of them, each planned by a process that knows nothing but the journal."""

import dataclasses
from typing import Any

import pyarrow as pa
from kit.journal import through_json
from kit.memory_connector import MemoryConnector

from upstream.core.feedback.checkpoint_layout import operator_folder
from upstream.core.feedback.reports import WindowReport, write_report
from upstream.core.rows.key import Key
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.options import SourceOptions
from upstream.datasource.planner import BatchPlanner, Offset
from upstream.datasource.schema import leaving_schema, shape_of

SCHEMA = pa.schema([("k", pa.string()), ("us", pa.int64())])
NUMBERED = pa.schema([("k", pa.string()), ("ms", pa.int64()), ("v", pa.int64())])
S = 1_000_000
BASE = 1_700_000_000 * S


def table_of(rows: Any) -> pa.Table:
    """Rows of a key, a time in milliseconds and a number."""
    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[], [], []], schema=NUMBERED)


class DearConnector(MemoryConnector):
    """Reading twice is dear, so that tasks look at the times; a feed is read by one task or by several."""

    tasks_report = True
    smallest_task = 5


class Driver:
    """Plans batches; `now` is the clock."""

    def __init__(self, *feeds: str, connector: type[MemoryConnector] = MemoryConnector, **changes: Any) -> None:
        stamped = changes.get("progress") == "arrival"
        base: dict[str, Any] = {
            "key": Key(("k",)), "time": "at" if stamped else "us", "time_format": None if stamped else "epoch_us",
            "progress": "ordered", "confirmations": 1, "max_jump_us": 3600 * S,
        }  # fmt: skip
        self.options = SourceOptions(**{**base, **changes})
        self.shape = shape_of(leaving_schema(SCHEMA, self.options), self.options)
        self.connector = connector({feed: SCHEMA.empty_table() for feed in feeds})
        self.offset: Offset = BatchPlanner.initial()
        self.now = BASE
        self.batches = 0

    def send(self, feed: str, *times: int, key: str | None = "x") -> None:
        rows = pa.table([[key] * len(times), list(times)], schema=SCHEMA)
        self.connector.tables[feed] = pa.concat_tables([self.connector.tables[feed], rows])

    def holds(self, needs: int | None, operator: int = 0) -> None:
        """What a window operator says below the checkpoint."""
        numbers = {field.name: 0 for field in dataclasses.fields(WindowReport) if field.type == "int"}
        report: Any = {**numbers, "shard": 0, "bound": None, "plan": {}, "needs": needs}
        assert self.options.checkpoint_location is not None
        write_report(operator_folder(self.options.checkpoint_location, "windows", operator), WindowReport(**report))

    def tasks(self, limit: int | None = None, *, frozen: bool = False) -> list[Any] | None:
        """The tasks of the next batch; None if there is none."""
        planner = BatchPlanner(self.connector, self.options, self.shape, clock=lambda: self.now, new_id=lambda: "t")
        if frozen:
            planner.freeze()
        start, end = self.offset, through_json(planner.plan(self.offset, Limit(rows=limit)))
        if end == start:
            return None
        self.offset = end
        self.batches += 1
        return planner.tasks(start, end)

    def look(self, seconds: float = 0, limit: int | None = None, *, frozen: bool = False) -> dict[str, int] | None:
        """What is promised at a look, so much later; None if there is no batch."""
        self.now += round(seconds * S)
        tasks = self.tasks(limit, frozen=frozen)
        return None if tasks is None else dict(tasks[-1].punctuation) if tasks else {}

    def state(self, feed: str) -> dict[str, Any]:
        return self.offset["progress"][feed]
