"""A join of a busy source and a silent one on Spark: on-demand timestamps (idle=ets) let go of what waits for it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import deltalake
import pytest
from kit.queries import stays_idle
from kit.waiting import wait_for
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import upstream as us
from upstream.core.feedback.checkpoint_layout import joins_folder
from upstream.core.feedback.join_reports import JoinReport
from upstream.core.feedback.report_files import read_reports

pytestmark = pytest.mark.spark

ETS_DELAY_MS = 200


class Sides:
    """Two folders, each a source of its own, and a query that joins them."""

    def __init__(self, spark: SparkSession, home: Path, **how: Any) -> None:
        self.home, self.spark, self.how = home, spark, how
        self.checkpoint = home / "checkpoint"
        self.sent = 0
        for name in ("busy", "silent"):
            (home / name).mkdir()

    def send(self, side: str, *times_ms: int) -> None:
        """A file of rows, there at once."""
        first = self.sent
        self.sent += len(times_ms)
        made = self.home / f"{self.sent}.part"
        lines = [f"k,{each},{first + at}\n" for at, each in enumerate(times_ms)]
        made.write_text("key,ms,v\n" + "".join(lines))
        made.rename(self.home / side / f"{self.sent}.csv")

    def start(self, idle: str) -> StreamingQuery:
        busy, silent = (
            us.UpdateStream(
                self.spark.readStream.format("upstream")
                .schema(us.with_system_ddl("key STRING, ms BIGINT, v BIGINT"))
                .options(
                    path=str(self.home / name), key="key", time="ms", timeFormat="epoch_ms", progress="ordered",
                    confirmations=1, lastLine="complete", idle=idle, etsDelay=f"{ETS_DELAY_MS} ms",
                    checkpointLocation=str(self.checkpoint),
                )
                .load(),
                key="key", event_time="ms",
            )
            for name in ("busy", "silent")
        )  # fmt: skip
        both = busy.join(
            silent, on="key", within=us.interval(before="1 second", after="1 second"), time_format="epoch_ms",
            shards=2, **self.how,
        )  # fmt: skip
        writer = both.write(
            str(self.home / "table"), checkpoint=str(self.checkpoint), key=("key", "left_row", "right_row"), buckets=1
        )
        return writer.trigger(processingTime="0 seconds").start()

    def results(self) -> list[tuple[int, int | None]]:
        """The pairs in the table, by the numbers of their rows."""
        if not (self.home / "table" / "_delta_log").is_dir():
            return []
        found = deltalake.DeltaTable(str(self.home / "table")).to_pyarrow_table(columns=["v", "v_right"])
        return sorted(zip(*found.to_pydict().values(), strict=True))

    def reports(self) -> list[JoinReport]:
        return read_reports(joins_folder(str(self.checkpoint)), JoinReport)

    def taken(self) -> int:
        return sum(each.left_rows + each.right_rows for each in self.reports())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


WAYS = {
    "a left row without a partner": {"how": "left"},
    "results in order": {"output_order": "event_time", "release": "filter"},
    "rows in order": {"output_order": "event_time", "release": "sync"},
}


@pytest.mark.parametrize("how", WAYS.values(), ids=[*WAYS])
def test_what_waits_for_a_silent_source_leaves_and_then_nothing_runs(
    spark: SparkSession, tmp_path: Path, how: dict[str, Any]
) -> None:
    sides = Sides(spark, tmp_path, **how)
    begin = now_ms() - 5000
    # The silent side's row meets the busy side's second one; nothing meets the first and the last.
    sides.send("silent", begin + 1500)
    sides.send("busy", begin, begin + 2000, begin + 4000)
    query = sides.start("ets")
    wanted = [(1, None), (2, 0), (3, None)] if "how" in how else [(2, 0)]
    wait_for(lambda: sides.results() == wanted, query.exception)
    wait_for(lambda: all(each.needs is None for each in sides.reports()), query.exception)
    assert stays_idle(query, sides.checkpoint, 3 * ETS_DELAY_MS / 1000), "nothing waits, and batches run"
    silent = json.loads(query.lastProgress.sources[1].endOffset)["progress"][str(tmp_path / "silent")]  # type: ignore[union-attr,arg-type]
    assert silent["received"] == 1
    assert silent["bound"] > silent["own"], "the silent source's own row is not what let go"
    query.stop()


def test_without_them_results_wait_for_the_silent_source_to_speak(spark: SparkSession, tmp_path: Path) -> None:
    sides = Sides(spark, tmp_path, output_order="event_time")
    begin = now_ms() - 5000
    sides.send("silent", begin + 1500)
    sides.send("busy", begin, begin + 2000, begin + 4000)
    query = sides.start("wait")
    wait_for(lambda: sides.taken() == 4, query.exception)
    query.processAllAvailable()  # the batch that has just reported is still to be committed
    (held,) = [each for each in sides.reports() if each.held]
    assert held.needs == (begin + 2000) * 1000
    assert [feed.partition("/")[0] for feed, bound in held.bounds.items() if bound * 1000 < held.needs] == ["right"]
    assert stays_idle(query, sides.checkpoint, 3 * ETS_DELAY_MS / 1000)
    assert sides.results() == []
    sides.send("silent", begin + 4000)
    wait_for(lambda: (2, 0) in sides.results(), query.exception)
    query.stop()
