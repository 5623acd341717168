"""Joins by time on Spark, into tables and in the order of time, over restarts."""

import json
import os
import random

import polars as pl
import pytest
from kit.feeds import csv_feed, write_csv
from kit.join_pairs import expected
from kit.queries import run_to_end, write_to_end
from kit.tables import read_frame, read_letters

import upstream as us
from upstream.core.feedback.checkpoint_layout import operator_folder
from upstream.core.feedback.reports import JoinReport, read_reports

pytestmark = pytest.mark.spark

DELAY_MS = 60


def write_feed(folder, name, files, *, per_file=60, keys=4, after=None):
    """Files of rows (key, ms, position) after those that there are, out of order by less than the delay."""
    found = list(after or ())
    chance = random.Random(f"{name}{len(found)}")
    for _ in range(files):
        rows = [
            (f"k{chance.randrange(keys)}", 1000 + at * 2 - chance.randrange(DELAY_MS - 10), at)
            for at in range(len(found), len(found) + per_file)
        ]
        add_file(folder, f"{name}-{len(found):05d}", rows, len(found) // per_file)
        found += rows
    return found


def add_file(folder, name, rows, arrival_s=0):
    write_csv(folder / f"{name}.csv", "key,ms,value", rows)
    os.utime(folder / f"{name}.csv", (1_600_000_000 + arrival_s,) * 2)


def feeds(spark, folder, on_end, **options):
    given = {"watermark": "bounded", "watermarkDelay": f"{DELAY_MS} ms", "maxFilesPerTrigger": 1, "confirmations": 1}
    given |= {"onEnd": on_end, **options}
    paths = (f"{folder}/{name}-*.csv" for name in "ab")
    return [us.UpdateStream(csv_feed(spark, path, **given), key="key", event_time="ms") for path in paths]


def join_reports(place):
    return read_reports(operator_folder(str(place), "joins"), JoinReport)


def test_a_full_join_gives_each_pair_and_each_row_without_one_over_restarts(spark, tmp_path):
    left, right = write_feed(tmp_path / "feed", "a", 2), write_feed(tmp_path / "feed", "b", 1, keys=6)
    place = tmp_path / "checkpoint"

    def query(on_end):
        one, two = feeds(spark, tmp_path / "feed", on_end)
        both = one.join(two, on="key", within=us.Interval(before=20, after=30), how="full", shards=3)
        write_to_end(both, tmp_path / "table", place, key=("key", "left_row", "right_row"))
        rows = read_frame(tmp_path / "table").select(pl.col("value", "value_right").fill_null(-1)).rows()
        return both, sorted(rows)

    def pairs():
        return expected(left, right, lambda one, two: -20 <= two[1] - one[1] <= 30, "full")

    both, early = query("keep")
    assert 0 < len(early) < len(pairs())
    assert set(early) <= set(pairs())
    described = both.describe(place)
    assert [feed.feed.partition("/")[0] for feed in described.places[-1].feeds] == ["left", "right"]
    assert described.places[-1].held > 0

    left = write_feed(tmp_path / "feed", "a", 2, after=left)
    right = write_feed(tmp_path / "feed", "b", 3, keys=6, after=right)
    assert query("close")[1] == pairs()
    reports = join_reports(place)
    assert sum(each.left_rows for each in reports) == len(left)
    assert sum(each.left_kept + each.right_kept for each in reports) == 0
    assert sum(each.left_late + each.right_late for each in reports) == 0


def test_rows_are_there_at_once_and_again_with_a_better_partner_as_of_their_time_over_a_restart(spark, tmp_path):
    trades, quotes = write_feed(tmp_path / "feed", "a", 2), write_feed(tmp_path / "feed", "b", 1, per_file=30)

    def run():
        left, right = feeds(spark, tmp_path / "feed", "keep", maxFilesPerTrigger=9)
        valued = left.join_as_of(right, on="key", how="left", shards=2, emit=us.Emission(early=True))
        write_to_end(valued, tmp_path / "table", tmp_path / "checkpoint", key=("key", "left_row"))
        found = {}
        for key, ms, number in trades:
            known = [quote for quote in quotes if quote[0] == key and quote[1] <= ms]
            found[number] = max(known, key=lambda quote: quote[1:], default=(None, None, None))[2]
        assert dict(read_frame(tmp_path / "table").select("value", "value_right").rows()) == found
        return found

    first = run()
    # Quotes among the later trades, which the watermark has not passed.
    better = [(f"k{at % 4}", 1060 + 10 * at, 100 + at) for at in range(15)]
    add_file(tmp_path / "feed", "b-900", better, 900)
    quotes += better
    last = run()
    assert {number for number, quote in first.items() if quote is not None and last[number] != quote}


def collected(spark, folder, place, on_end, emit):
    """The results in order, as each shard gave them: time, numbers of both rows, and the shard."""
    found = []

    def take(batch, number):
        rows = batch.select("join_time", "value", "value_right", "_upstream.source", "_upstream.punctuation").collect()
        found.extend([row[:4] for row in rows if not row.punctuation])

    left, right = feeds(spark, folder, on_end)
    near = us.Interval(before="20 ms", after="20 ms")
    both = left.join(right, on="key", within=near, shards=2, emit=emit)
    writer = both.dataframe(place).writeStream.foreachBatch(take)
    run_to_end(writer.option("checkpointLocation", str(place)))
    return found


def test_the_way_to_the_order_changes_in_both_directions_and_is_journaled(spark, tmp_path):
    left, right, found, place = [], [], [], tmp_path / "checkpoint"
    # w is 20 ms, and some rows come in a second: each batch ends with rows or results that wait.
    for run, cost in enumerate((1e6, 1e-12, 1e6)):
        left = write_feed(tmp_path / "feed", "a", 2, per_file=40, after=left)
        right = write_feed(tmp_path / "feed", "b", 2, per_file=40, after=right)
        on_end = "close" if run == 2 else "keep"
        found += collected(spark, tmp_path / "feed", place, on_end, us.OrderedRelease("adaptive", cost=cost, alpha=0.3))
        reports = join_reports(place)
        assert {each.release for each in reports} == {"sync" if run == 1 else "filter"}
        if run < 2:
            assert sum(each.queued if run == 1 else each.held for each in reports) > 0
    pairs = sorted((one, two) for _, one, two, _ in found)
    assert pairs == expected(left, right, lambda one, two: abs(two[1] - one[1]) <= 20, "inner")
    shards = {source for *_, source in found}
    assert len(shards) == 2
    for shard in shards:
        times = [time for time, *_, source in found if source == shard]
        assert times == sorted(times)
    assert sum(each.queued + each.held + each.late_results for each in reports) == 0
    names = sorted((name for name in os.listdir(place / "offsets") if name.isdigit()), key=int)
    lines = [line for name in names for line in (place / "offsets" / name).read_text().splitlines()]
    modes = [json.loads(line)["mode"] for line in lines if line.startswith('{"tick"')]
    assert [mode for at, mode in enumerate(modes) if not at or modes[at - 1] != mode] == ["sync", "filter"] * 2


def test_late_results_are_set_aside_and_read(spark, tmp_path):
    files = {"a-0": [(1015, 0), (1090, 1)], "b-0": [(1090, 0)], "b-1": [(1010, 1), (1035, 2)]}
    place, found = tmp_path / "checkpoint", []
    # Both sides have come to 1090 - 60 before a row at 1010 meets one that is still kept.
    for names, on_end in ((("a-0", "b-0"), "keep"), (("b-1",), "close")):
        for name in names:
            add_file(tmp_path / "feed", name, [("k", *row) for row in files[name]], int(name[-1]))
        found += collected(spark, tmp_path / "feed", place, on_end, us.OrderedRelease(dead_letters=True))
    assert [row[:3] for row in found] == [(1035, 0, 2), (1090, 1, 0)]
    (late,) = read_letters(place / "dead_letters")
    assert (late["join_time"], late["value"], late["value_right"]) == (1015, 0, 1)
    assert sum(each.late_results for each in join_reports(place)) == 1
