"""A table with all that metrics are made of: input partitions, a queue, a target, a journal, reports of operators."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from kit.sink import Sink

from upstream.conf.process_identity import Process
from upstream.core.feedback.ages import Ages
from upstream.core.feedback.checkpoint_layout import dead_letters_folder, operator_folder, queue_folder
from upstream.core.feedback.reports import QueueReport, WindowReport, write_report
from upstream.delta_format.append_table import DEAD_LETTERS, DeadLetterWriter
from upstream.sink.commit.lease import TableLease
from upstream.storage.folder import TableFolder

COLUMNS = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("v", pa.string())])


class ObservedTable:
    """Commits batches at the times that a test gives, in epoch microseconds."""

    def __init__(self, folder: Path, target: str = "p99 < 10 s") -> None:
        self.sink = Sink(
            folder, COLUMNS, {"key": "k", "eventTime": "t", "buckets": "2", **({"target": target} if target else {})}
        )
        self.batches = 0
        self._letters = 0

    def commit(
        self,
        at_us: int,
        lags_s: Mapping[str, float | None] | None = None,
        *,
        ages_s: tuple[float, ...] = (0.5,),
        pending: int | None = None,
        oldest_s: float = 0.0,
        **counts: int,
    ) -> None:
        """Commit a batch whose input partitions lag by so many seconds; None ends one."""
        sink, number = self.sink, self.batches
        self.batches += 1
        sink.now_us = at_us
        if pending is not None:
            self._report_queue(number, at_us, pending, oldest_s)
        progress = {"received": 10 * (number + 1), "late": 0, "late_idle": 0, "suspects": 0, **counts}
        offset = {"looked": True, "progress": {"vehicles/1": progress}}
        self._journal("offsets", number, f'v1\n{{"batchTimestampMs":{number}}}\n{json.dumps(offset)}')
        keys = [(number * len(ages_s) + each, at_us, "a") for each in range(len(ages_s))]
        arrival = np.array([at_us - round(age * 1e6) for age in ages_s])
        marks = [
            sink.punctuation(None if lag is None else at_us - round(lag * 1e6), feed=name)
            for name, lag in (lags_s or {"vehicles/1": 5.0}).items()
        ]
        assert sink.batch(number, [sink.rows(keys, seq=10 * number, arrival_us=arrival), *marks]) is not None
        self._journal("commits", number, "v1\n{}")

    def plan(self, at_us: int, arrived_us: int) -> None:
        """Journal a batch of rows that arrived at a time, and leave it without a commit."""
        part = {"feed": "vehicles/1", "place": {}, "span": 5_000, "arrival_us": arrived_us}
        offset = {"looked": True, "progress": {}, "now_us": at_us, "ranges": [part]}
        head = json.dumps({"batchTimestampMs": at_us // 1000})
        self._journal("offsets", self.batches, f"v1\n{head}\n{json.dumps(offset)}")

    def hold_lease(self, now_us: int, process: Process) -> None:
        TableLease(TableFolder(str(self.sink.path))).hold("query-1", process, 60_000_000, now_us)

    def write_dead_letters(self, rows: int) -> None:
        self._letters += 1
        letters = pa.table([[0] * rows, ["feed"] * rows, ["no key"] * rows, ["{}"] * rows], schema=DEAD_LETTERS)
        writer = DeadLetterWriter(TableFolder(dead_letters_folder(self.sink.checkpoint)), "query-1", self._letters)
        writer.write(letters)
        writer.commit()

    def report_windows(self, written: int, entries: int) -> None:
        for shard in range(2):
            report = WindowReport(shard, state_bytes=written, entries=entries)
            write_report(operator_folder(str(self.sink.checkpoint), "windows", 0), report)

    def _report_queue(self, number: int, at_us: int, pending: int, oldest_s: float) -> None:
        figures: dict[str, Any] = {"applied": 5, "arrived": 10, "ages": Ages.of(np.array([1_000_000]))}
        report = QueueReport(
            0,
            batch_id=number,
            now_us=at_us - 200_000,
            waiting=pending,
            oldest_us=at_us - round(oldest_s * 1e6),
            **figures,
        )
        write_report(queue_folder(str(self.sink.checkpoint)), report)

    def _journal(self, folder: str, number: int, text: str) -> None:
        place = self.sink.checkpoint / folder
        place.mkdir(exist_ok=True)
        (place / str(number)).write_text(text)
