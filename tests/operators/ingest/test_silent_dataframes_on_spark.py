"""On-demand timestamps for any DataFrames on Spark: a join of a busy one and a silent one goes on by the clock."""

import json
import time

import deltalake
import pytest
from kit.queries import stays_idle
from kit.waiting import wait_for

import upstream as us
from upstream.core.feedback.checkpoint_layout import operator_folder
from upstream.core.feedback.reports import JoinReport, read_reports

pytestmark = pytest.mark.spark


def now_ms():
    return time.time_ns() // 1_000_000


def send(home, side, *rows):
    """A file of rows (ms, v) of one key, there at once."""
    (home / side).mkdir(exist_ok=True)
    made = home / f"{time.time_ns()}.part"
    made.write_text("".join(f"k,{ms},{v}\n" for ms, v in rows))
    made.rename(home / side / f"{made.stem}.csv")


def start(spark, home):
    busy, silent = (
        us.UpdateStream.from_dataframe(
            spark.readStream.schema("k STRING, ms BIGINT, v BIGINT").csv(str(home / name)),
            key="k", event_time="ms", time_format="epoch_ms", shards=2, name=name,
            watermark=us.Watermark.ordered().guarded(confirmations=1), idle="ets", ets_delay="200 ms",
        )
        for name in ("busy", "silent")
    )  # fmt: skip
    near = us.Interval(before="1 hour", after="1 hour")
    both = busy.join(silent, on="k", within=near, shards=2, emit="ordered")
    writer = both.write(
        str(home / "table"), checkpoint=str(home / "checkpoint"), key=("k", "left_row", "right_row"), buckets=1
    )
    return writer.trigger(processingTime="0 seconds").start()


def pairs(home):
    if not (home / "table" / "_delta_log").is_dir():
        return []
    found = deltalake.DeltaTable(str(home / "table")).to_pyarrow_table(columns=["v", "v_right"])
    return sorted(zip(*found.to_pydict().values(), strict=True))


def reports(home):
    return read_reports(operator_folder(str(home / "checkpoint"), "joins"), JoinReport)


def ticks(home):
    """The promises that Spark journaled with the offsets of its batches."""
    folder = home / "checkpoint" / "offsets"
    lines = [line for file in folder.iterdir() if file.name.isdigit() for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith('{"tick"') and '"tick": 0' not in line]


def test_what_waits_for_a_silent_dataframe_leaves_and_then_nothing_runs(spark, tmp_path):
    begin = now_ms() - 5000
    send(tmp_path, "silent", (begin, 0))
    send(tmp_path, "busy", (begin, 1), (begin + 4000, 2))
    query = start(spark, tmp_path)
    wait_for(lambda: pairs(tmp_path) == [(1, 0), (2, 0)], query.exception)
    wait_for(lambda: all(each.needs is None for each in reports(tmp_path)), query.exception)
    assert stays_idle(query, tmp_path / "checkpoint", 0.6), "nothing waits, and batches run"
    assert any(each["promises"] for each in ticks(tmp_path))
    # What comes next goes the same way, after a restart, too.
    query.stop()
    query = start(spark, tmp_path)
    send(tmp_path, "busy", (now_ms(), 3))
    wait_for(lambda: pairs(tmp_path) == [(1, 0), (2, 0), (3, 0)], query.exception)
    assert sum(each.left_late + each.right_late + each.late_results for each in reports(tmp_path)) == 0
    query.stop()
