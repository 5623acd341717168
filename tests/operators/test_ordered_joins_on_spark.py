"""Joins whose results leave in the order of time, on Spark: each way to it, and switches between them over restarts."""

from __future__ import annotations

import json
import os
import random

import polars as pl
import pytest
from kit.feeds import csv_feed, write_csv
from kit.join_pairs import expected
from kit.queries import run_to_end

import upstream as us
from upstream.core.feedback.checkpoint_layout import joins_folder
from upstream.core.feedback.join_reports import JoinReport
from upstream.core.feedback.report_files import read_reports

pytestmark = pytest.mark.spark

DELAY_MS = 60


def write_feed(folder, name, arrivals_s, per_file=40):
    """Files of rows (key, ms, value) with the times at which they came; times are out of order within the delay."""
    chance = random.Random(name)
    found = []
    for number, arrival_s in enumerate(arrivals_s):
        rows = []
        for _ in range(per_file):
            at = len(found)
            row = (f"k{chance.randrange(4)}", 1000 + at * 2 - chance.randrange(DELAY_MS - 10), at)
            found.append(row)
            rows.append(row)
        file = folder / f"{name}-{number:03d}.csv"
        write_csv(file, "key,ms,value", rows)
        os.utime(file, (arrival_s, arrival_s))
    return found


def joined(spark, folder, at_end="close", **given):
    options = {"progress": "bounded", "progressDelay": f"{DELAY_MS} ms", "maxFilesPerTrigger": 1, "atEnd": at_end}
    options["confirmations"] = 1
    left, right = (
        us.UpdateStream(csv_feed(spark, f"{folder}/{name}-*.csv", **options), key="key", event_time="ms")
        for name in "ab"
    )
    near = us.interval(before="20 ms", after="20 ms")
    return left.join(right, on="key", within=near, time_format="epoch_ms", output_order="event_time", shards=2, **given)


def collected(stream, checkpoint):
    """The results, in the order in which each shard gave them."""
    found = []

    def take(batch, number):
        rows = batch.select("join_time", "value", "value_right", "_upstream.source", "_upstream.punctuation").collect()
        found.extend([(number, *row[:4]) for row in rows if not row.punctuation])

    writer = stream.dataframe(checkpoint).writeStream.foreachBatch(take)
    run_to_end(writer.option("checkpointLocation", str(checkpoint)))
    return found


def check(found, left, right):
    pairs = sorted((one, two) for _, _, one, two, _ in found)
    assert pairs == expected(left, right, lambda one, two: abs(two[1] - one[1]) <= 20, "inner")
    shards = {source for *_, source in found}
    assert len(shards) == 2
    for shard in shards:
        times = [row[1] for row in found if row[4] == shard]
        assert times == sorted(times)


def choices(checkpoint):
    """The choices that Spark journaled with the offsets of its batches, each that differs from the one before."""
    names = sorted((name for name in os.listdir(checkpoint / "offsets") if name.isdigit()), key=int)
    lines = [line for name in names for line in (checkpoint / "offsets" / name).read_text().splitlines()]
    modes = [json.loads(line)["mode"] for line in lines if line.startswith('{"tick"')]
    return [mode for at, mode in enumerate(modes) if not at or modes[at - 1] != mode]


def test_the_choice_changes_in_both_directions_and_is_journaled(spark, tmp_path):
    left, right, found = [], [], []
    place = tmp_path / "checkpoint"
    # w is 20 ms, and some rows come in a second: each batch ends with rows or results that wait.
    for run, cost in enumerate((1e6, 1e-12, 1e6)):
        for name, rows in (("a", left), ("b", right)):
            new = write_feed(tmp_path / f"more-{run}", name, [1_600_000_000 + 10 * run + at for at in range(2)])
            shifted = [(key, ms + 160 * run, value + 80 * run) for key, ms, value in new]
            rows.extend(shifted)
            for number in range(2):
                file = tmp_path / "feed" / f"{name}-{run}-{number}.csv"
                write_csv(file, "key,ms,value", shifted[40 * number : 40 * number + 40])
                os.utime(file, (1_600_000_000 + 10 * run + number,) * 2)
        stream = joined(
            spark, tmp_path / "feed", "close" if run == 2 else "keep", release="adaptive", cost=cost, alpha=0.3
        )
        found += collected(stream, place)
        reports = read_reports(joins_folder(str(place)), JoinReport)
        assert {each.release for each in reports} == {"sync" if run == 1 else "filter"}
        if run < 2:
            assert sum(each.queued if run == 1 else each.held for each in reports) > 0
    check(found, left, right)
    assert choices(place) == ["sync", "filter", "sync", "filter"]
    assert sum(each.queued + each.held + each.late_results for each in reports) == 0


def test_late_results_are_set_aside_as_files(spark, tmp_path):
    files = {"a-0": [(1015, 0), (1090, 1)], "b-0": [(1090, 0)], "b-1": [(1010, 1), (1035, 2)]}
    place, found = tmp_path / "checkpoint", []
    # Both sides have come to 1090 - 60 before a row at 1010 meets one that is still kept.
    for names, at_end in ((("a-0", "b-0"), "keep"), (("b-1",), "close")):
        for name in names:
            file = tmp_path / "feed" / f"{name}.csv"
            write_csv(file, "key,ms,value", [("k", *row) for row in files[name]])
            os.utime(file, (1_600_000_000 + int(name[-1]),) * 2)
        stream = joined(spark, tmp_path / "feed", at_end, late_location=str(tmp_path / "late"))
        found += collected(stream, place)
    assert [row[1:4] for row in found] == [(1035, 0, 2), (1090, 1, 0)]
    late = pl.read_parquet(tmp_path / "late" / "*.parquet")
    assert late.select("join_time", "value", "value_right").rows() == [(1015, 0, 1)]
    reports = read_reports(joins_folder(str(place)), JoinReport)
    assert sum(each.late_results for each in reports) == 1
