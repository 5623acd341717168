"""On-demand timestamps for any DataFrames on Spark: a join of a busy one and a silent one goes on by the clock."""

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
from upstream.conf.errors import OptionError
from upstream.core.feedback.checkpoint_layout import joins_folder
from upstream.core.feedback.join_reports import JoinReport
from upstream.core.feedback.report_files import read_reports

pytestmark = pytest.mark.spark


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def send(home: Path, side: str, *rows: tuple[int, int]) -> None:
    """A file of rows (ms, v) of one key, there at once."""
    made = home / f"{time.time_ns()}.part"
    made.write_text("".join(f"k,{ms},{v}\n" for ms, v in rows))
    made.rename(home / side / f"{made.stem}.csv")


def streams(spark: SparkSession, home: Path, watermark: us.Watermark, **idle: Any) -> list[us.UpdateStream]:
    stamped = watermark.policy == "heartbeat"
    return [
        us.UpdateStream.from_dataframe(
            spark.readStream.schema("k STRING, ms BIGINT, v BIGINT").csv(str(home / name)),
            key="k", event_time="came" if stamped else "ms", time_format=None if stamped else "epoch_ms",
            watermark=watermark, shards=2, name=name, **idle,
        )
        for name in ("busy", "silent")
    ]  # fmt: skip


def start(home: Path, busy: us.UpdateStream, silent: us.UpdateStream) -> StreamingQuery:
    near = us.interval(before="1 hour", after="1 hour")
    both = busy.join(silent, on="k", within=near, time_format="epoch_ms", output_order="event_time", shards=2)
    writer = both.write(
        str(home / "table"), checkpoint=str(home / "checkpoint"), key=("k", "left_row", "right_row"), buckets=1
    )
    return writer.trigger(processingTime="0 seconds").start()


def pairs(home: Path) -> list[tuple[int, int]]:
    if not (home / "table" / "_delta_log").is_dir():
        return []
    found = deltalake.DeltaTable(str(home / "table")).to_pyarrow_table(columns=["v", "v_right"])
    return sorted(zip(*found.to_pydict().values(), strict=True))


def reports(home: Path) -> list[JoinReport]:
    return read_reports(joins_folder(str(home / "checkpoint")), JoinReport)


def ticks(home: Path) -> list[dict[str, Any]]:
    """The promises that Spark journaled with the offsets of its batches."""
    folder = home / "checkpoint" / "offsets"
    lines = [line for file in folder.iterdir() if file.name.isdigit() for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith('{"tick"') and '"tick": 0' not in line]


def test_what_waits_for_a_silent_dataframe_leaves_and_then_nothing_runs(spark: SparkSession, tmp_path: Path) -> None:
    watermark = us.Watermark.ordered().guarded(confirmations=1)
    idle: dict[str, Any] = {"idle": "ets", "ets_delay": "200 ms"}
    for side in ("busy", "silent"):
        (tmp_path / side).mkdir()
    begin = now_ms() - 5000
    send(tmp_path, "silent", (begin, 0))
    send(tmp_path, "busy", (begin, 1), (begin + 4000, 2))
    query = start(tmp_path, *streams(spark, tmp_path, watermark, **idle))
    wait_for(lambda: pairs(tmp_path) == [(1, 0), (2, 0)], query.exception)
    wait_for(lambda: all(each.needs is None for each in reports(tmp_path)), query.exception)
    assert stays_idle(query, tmp_path / "checkpoint", 0.6), "nothing waits, and batches run"
    assert [each["promises"].keys() for each in ticks(tmp_path)] != []
    # What comes next goes the same way, after a restart, too.
    query.stop()
    query = start(tmp_path, *streams(spark, tmp_path, watermark, **idle))
    send(tmp_path, "busy", (now_ms(), 3))
    wait_for(lambda: pairs(tmp_path) == [(1, 0), (2, 0), (3, 0)], query.exception)
    assert sum(each.left_late + each.right_late + each.late_results for each in reports(tmp_path)) == 0
    query.stop()


def test_a_window_over_stamped_rows_closes_by_the_clock(spark: SparkSession, tmp_path: Path) -> None:
    for side in ("busy", "silent"):
        (tmp_path / side).mkdir()
    send(tmp_path, "busy", (1, 1), (2, 2))
    busy, _ = streams(spark, tmp_path, us.Watermark.arrival(), idle="ets")
    counted = busy.window("1 second", output="all", shards=2).agg(n=us.count())
    writer = counted.write(str(tmp_path / "table"), checkpoint=str(tmp_path / "checkpoint"), buckets=1)
    query = writer.trigger(processingTime="0 seconds").start()

    def closed() -> bool:
        if not (tmp_path / "table" / "_delta_log").is_dir():
            return False
        return deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table(columns=["n"])["n"].to_pylist() == [2]

    wait_for(closed, query.exception)
    assert [list(each["promises"]) for each in ticks(tmp_path)][:1] == [["busy"]]
    query.stop()


def test_without_them_the_join_waits(spark: SparkSession, tmp_path: Path) -> None:
    for side in ("busy", "silent"):
        (tmp_path / side).mkdir()
    begin = now_ms() - 5000
    send(tmp_path, "silent", (begin, 0))
    send(tmp_path, "busy", (begin + 1000, 1), (begin + 4000, 2))
    watermark = us.Watermark.ordered().guarded(confirmations=1)
    query = start(tmp_path, *streams(spark, tmp_path, watermark))
    wait_for(lambda: sum(each.left_rows + each.right_rows for each in reports(tmp_path)) == 3, query.exception)
    assert stays_idle(query, tmp_path / "checkpoint", 0.6)
    assert pairs(tmp_path) == []
    assert sum(each.held for each in reports(tmp_path)) == 2
    query.stop()


def test_what_makes_no_sense_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "busy").mkdir()
    for watermark, idle, match in (
        (us.Watermark.none(), {"idle": "ets"}, "without a watermark"),
        (us.Watermark.ordered(), {"idle": "advance"}, "idle='advance'"),
        (us.Watermark.ordered(), {"ets_delay": "1 s"}, "with idle='wait'"),
        (us.Watermark.ordered(), {"idle": "ets", "ets_delay": "soon"}, "ets_delay='soon'"),
    ):
        with pytest.raises(OptionError, match=match):
            streams(spark, tmp_path, watermark, **idle)
