"""Joins on Spark: into tables, over restarts, in a row, before and after other steps."""

from __future__ import annotations

import random

import pytest
from kit.feeds import csv_feed, write_csv
from kit.join_pairs import expected
from kit.queries import write_to_end
from kit.tables import read_frame

import upstream as us
from upstream.conf.errors import CheckpointError, OptionError, SchemaError
from upstream.core.feedback.checkpoint_layout import joins_folder
from upstream.core.feedback.join_reports import JoinReport
from upstream.core.feedback.report_files import read_reports

pytestmark = pytest.mark.spark

DELAY_MS = 60
NEAR = us.interval(before=20, after=30)


def near(one, two):
    return -20 <= two[1] - one[1] <= 30


def write_feed(folder, name, files, per_file=60, keys=4):
    """Files of rows (key, ms, value), out of order by less than the delay; rows are (key, ms, position)."""
    chance = random.Random(name)
    found = []
    for number in range(files):
        rows = []
        for _ in range(per_file):
            at = len(found)
            row = (f"k{chance.randrange(keys)}", 1000 + at * 2 - chance.randrange(DELAY_MS - 10), at)
            found.append(row)
            rows.append(row)
        write_csv(folder / f"{name}-{number:03d}.csv", "key,ms,value", rows)
    return found


def feed(spark, folder, name, **options):
    given = {"progress": "bounded", "progressDelay": f"{DELAY_MS} ms", "maxFilesPerTrigger": 1, **options}
    rows = csv_feed(spark, f"{folder}/{name}-*.csv", "key STRING, ms BIGINT, value BIGINT", **given)
    return us.UpdateStream(rows, key="key", event_time="ms")


def pairs_in(table, left="value", right="value_right"):
    rows = read_frame(table).select(left, right).rows()
    return sorted((-1 if one is None else one, -1 if two is None else two) for one, two in rows)


def test_a_full_join_gives_each_pair_and_each_row_without_one_over_restarts(spark, tmp_path):
    left = write_feed(tmp_path / "feed", "a", 2)
    right = write_feed(tmp_path / "feed", "b", 1, keys=6)
    place = tmp_path / "checkpoint"

    def query(at_end):
        streams = [feed(spark, tmp_path / "feed", name, atEnd=at_end) for name in "ab"]
        return streams[0].join(streams[1], on="key", within=NEAR, how="full", shards=3)

    both = query("keep")
    assert both.schema.names == [
        "key", "ms", "value", "ms_right", "value_right", "join_time", "left_row", "right_row", "_upstream",
    ]  # fmt: skip
    assert (both.key, both.event_time, both.shards) == (("key",), "join_time", 3)
    write_to_end(both, tmp_path / "table", place, key=("key", "left_row", "right_row"))
    early = pairs_in(tmp_path / "table")
    assert 0 < len(early) < len(expected(left, right, near, "full"))
    assert set(early) <= set(expected(left, right, near, "full"))
    described = both.describe(place)
    assert [feed.feed.partition("/")[0] for feed in described.places[-1].feeds] == ["left", "right"]
    assert described.places[-1].held > 0

    left += [(key, ms + 240, at + 120) for key, ms, at in write_feed(tmp_path / "more", "a", 2)]
    write_csv(tmp_path / "feed" / "a-900.csv", "key,ms,value", left[120:])
    right = right + [(key, ms + 120, at + 60) for key, ms, at in write_feed(tmp_path / "more", "b", 3, keys=6)]
    write_csv(tmp_path / "feed" / "b-900.csv", "key,ms,value", right[60:])
    other = [feed(spark, tmp_path / "feed", name) for name in "ab"]
    wider = other[0].join(other[1], on="key", within=us.interval(before=20, after=31), how="full", shards=3)
    with pytest.raises(CheckpointError, match=r"within '20 before to 31 after'.*and had '20 before to 30 after'"):
        wider.dataframe(place)
    write_to_end(query("close"), tmp_path / "table", place, key=("key", "left_row", "right_row"))
    assert pairs_in(tmp_path / "table") == expected(left, right, near, "full")
    reports = read_reports(joins_folder(str(place)), JoinReport)
    assert sum(each.left_rows for each in reports) == len(left)
    assert sum(each.left_kept + each.right_kept for each in reports) == 0
    assert sum(each.left_late + each.right_late for each in reports) == 0


def test_an_early_join_gives_what_it_takes_back_over_a_restart(spark, tmp_path):
    left = write_feed(tmp_path / "feed", "a", 2)
    right = write_feed(tmp_path / "feed", "b", 1)
    place = tmp_path / "checkpoint"

    def run(early=True):
        one, two = (feed(spark, tmp_path / "feed", name, maxFilesPerTrigger=9) for name in "ab")
        both = one.join(two, on="key", within=NEAR, how="full", early=early, shards=2)
        write_to_end(both, tmp_path / "table", place, key=("key", "left_row", "right_row"))
        return pairs_in(tmp_path / "table")

    # No watermark has passed most of them: they are there at once.
    first = run()
    assert first == expected(left, right, near, "full")
    right += [(key, ms + 120, at + 60) for key, ms, at in write_feed(tmp_path / "more", "b", 1)]
    write_csv(tmp_path / "feed" / "b-900.csv", "key,ms,value", right[60:])
    last = run()
    assert last == expected(left, right, near, "full")
    assert {pair for pair in first if -1 in pair} - set(last), "nothing was taken back"
    # Rows that wait were not given, and those that were given do not wait.
    with pytest.raises(CheckpointError, match=r"join \(upstream-joins/0\) has early '', and had 'yes'"):
        run(early=False)


def test_two_joins_in_a_row_then_a_filter_and_windows(spark, tmp_path):
    rows = [write_feed(tmp_path / "feed", name, files) for name, files in (("a", 2), ("b", 1), ("c", 2))]
    one, two, three = (feed(spark, tmp_path / "feed", name, atEnd="close") for name in "abc")
    first = one.join(two, on="key", within=NEAR, shards=2, condition="l.value <= r.value")
    last = first.join(three, on="key", within=NEAR, suffix="_third", shards=3).where("value_third > 5")
    assert "join_time_left" in last.schema.names
    windows = last.window("100 ms", output="all", time_format="epoch_ms", shards=2).agg(n=us.count())
    write_to_end(
        windows, tmp_path / "table", tmp_path / "checkpoint", key=("key", "window_id"), event_time="window_time"
    )
    counts = {}
    for key, ms, value in rows[0]:
        for other_key, other_ms, other in rows[1]:
            if key == other_key and -20 <= other_ms - ms <= 30 and value <= other:
                for third_key, third_ms, third in rows[2]:
                    if key == third_key and -20 <= third_ms - max(ms, other_ms) <= 30 and third > 5:
                        at = key, max(ms, other_ms, third_ms) // 100
                        counts[at] = counts.get(at, 0) + 1
    found = {
        (key, number): n for key, number, n in read_frame(tmp_path / "table").select("key", "window_id", "n").rows()
    }
    assert found == counts


def test_a_stream_meets_itself_and_the_table_keeps_the_newest_pair_of_each_key(spark, tmp_path):
    rows = write_feed(tmp_path / "feed", "a", 3)
    one, two = (feed(spark, tmp_path / "feed", "a", atEnd="close") for _ in range(2))
    later = one.join(two, on={"key": "key"}, within=us.interval(before=-1, after=30), output="latest", shards=2)
    with pytest.raises(SchemaError, match=r"count wrongly.*newest pair"):
        later.window("10 ms")
    write_to_end(later, tmp_path / "table", tmp_path / "checkpoint")
    newest = {}
    for left, right in expected(rows, rows, lambda one, two: 1 <= two[1] - one[1] <= 30, "inner"):
        order = rows[right][1], rows[left][1]
        newest[rows[left][0]] = max(newest.get(rows[left][0], order), order)
    found = {
        key: (join_time, ms)
        for key, join_time, ms in read_frame(tmp_path / "table").select("key", "join_time", "ms").rows()
    }
    assert found == newest


def test_punctuation_of_one_key_gives_the_rows_of_that_key_without_a_partner(spark, tmp_path):
    write_csv(tmp_path / "feed" / "a-1.csv", "key,ms,value", [("k1", 1000, 1), ("k2", 1000, 2), ("k1", 1400, 3)])
    # Rows without a value are the feed's own punctuation: of all keys up to 1010, of k1 alone up to 1200.
    marks = [("k1", 1200, ""), ("", 1010, "")]
    write_csv(tmp_path / "feed" / "b-1.csv", "key,ms,value", [("k1", 1205, 7), *marks])

    def query(left):
        one = feed(spark, tmp_path / "feed", "a", atEnd=left)
        rows = csv_feed(spark, f"{tmp_path}/feed/b-*.csv", progress="embedded", atEnd=left)
        two = us.UpdateStream(rows, key="key", event_time="ms").distinct("key", "value", shards=3)
        return one.join(two, on="key", within=NEAR, how="left", shards=2)

    # The table's key lacks that of the stream: the punctuation of k1 must not come to it as that of all keys.
    write_to_end(query("keep"), tmp_path / "table", tmp_path / "checkpoint", key=("left_row", "right_row"))
    assert pairs_in(tmp_path / "table") == [(1, -1)]
    write_to_end(query("close"), tmp_path / "table", tmp_path / "checkpoint", key=("left_row", "right_row"))
    assert pairs_in(tmp_path / "table") == [(1, -1), (2, -1), (3, -1)]


def test_results_of_windows_meet_those_of_a_frame_of_sparks_own(spark, tmp_path):
    left = write_feed(tmp_path / "feed", "a", 2)
    right = write_feed(tmp_path / "other", "b", 2)
    own = feed(spark, tmp_path / "feed", "a", atEnd="close")
    frame = spark.readStream.schema("key STRING, ms BIGINT, value BIGINT").option("header", True).csv(
        str(tmp_path / "other")
    )  # fmt: skip
    any_frame = us.UpdateStream.from_dataframe(
        frame, key="key", event_time="ms", time_format="epoch_ms", watermark=us.Watermark.bounded(f"{DELAY_MS} ms")
    )
    one, two = (
        each.window("100 ms", output="all", time_format="epoch_ms", shards=2).agg(n=us.count())
        for each in (own, any_frame)
    )
    same = one.join(two, on="key", within=us.interval(), shards=2)
    into = {"key": ("key", "window_id"), "event_time": "join_time"}
    write_to_end(same, tmp_path / "table", tmp_path / "checkpoint", **into)
    # The frame's progress counts from the next batch on: this row shows that all windows before it are over.
    write_csv(tmp_path / "other" / "b-9.csv", "key,ms,value", [("z", 9000, 0)])
    for last in (9000, 9100):
        write_csv(tmp_path / "other" / f"c-{last}.csv", "key,ms,value", [("z", last, 0)])
        write_to_end(same, tmp_path / "table", tmp_path / "checkpoint", **into)
    counts = [{}, {}]
    for rows, found in zip((left, right), counts, strict=True):
        for key, ms, _ in rows:
            found[key, ms // 100] = found.get((key, ms // 100), 0) + 1
    expected_counts = {at: (n, counts[1][at]) for at, n in counts[0].items() if at in counts[1]}
    table = read_frame(tmp_path / "table").select("key", "window_id", "n", "n_right").rows()
    assert {(key, number): (n, other) for key, number, n, other in table} == expected_counts


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_rows_of_the_left_with_and_without_a_partner(spark, tmp_path, how):
    left = write_feed(tmp_path / "feed", "a", 2)
    right = write_feed(tmp_path / "feed", "b", 1, keys=2)
    streams = [feed(spark, tmp_path / "feed", name, atEnd="close") for name in "ab"]
    found = streams[0].join(streams[1], on="key", tumbling=7, how=how, shards=2)
    assert found.schema == streams[0].schema
    assert (found.event_time, found.key) == ("ms", ("key",))
    write_to_end(found, tmp_path / "table", tmp_path / "checkpoint", key=("key", "value"))
    numbers = sorted((value, -1) for value in read_frame(tmp_path / "table")["value"].to_list())
    assert numbers == expected(left, right, lambda one, two: one[1] // 7 == two[1] // 7, how)


def test_joins_that_make_no_sense_are_refused_where_they_are_written(spark, tmp_path):
    write_feed(tmp_path / "feed", "a", 1)
    one, two = (feed(spark, tmp_path / "feed", "a") for _ in range(2))
    for problem, match in (
        ({}, "without a bound in time"),
        ({"within": NEAR, "tumbling": 5}, "both within and tumbling"),
        ({"within": us.interval(before=-5, after=4)}, "no time is that far"),
        ({"within": us.interval(before="1 minute")}, r"time_format='epoch_ms'"),
        ({"within": NEAR, "how": "outer"}, "inner, left, right, full, semi, anti"),
        ({"within": NEAR, "how": "semi", "output": "latest"}, "output='latest' with how='semi'"),
        ({"within": NEAR, "condition": "value > 3"}, "column of both sides"),
        ({"within": NEAR, "condition": "l.value + 1 > r.value"}, "not computed in a join"),
        ({"within": NEAR, "condition": "l.speed > 3"}, "no column of a side"),
        ({"within": NEAR, "condition": "l.value >"}, "no SQL"),
        ({"within": NEAR, "shards": 0}, "shards=0"),
        ({"tumbling": 0}, "at least one unit"),
    ):
        with pytest.raises(OptionError, match=match):
            one.join(two, **{"on": "key", **problem})
    with pytest.raises(OptionError, match=r"on=\[\]"):
        one.join(two, on=[], within=NEAR)
    with pytest.raises(SchemaError, match="which the right stream has not"):
        one.join(two, on={"key": "route"}, within=NEAR)
    with pytest.raises(SchemaError, match="type string and value of type int64"):
        one.join(two, on={"key": "value"}, within=NEAR)
    with pytest.raises(SchemaError, match=r"would miss pairs.*queue"):
        one.join(two.queue(), on="key", within=NEAR)
    with pytest.raises(SchemaError, match="would miss pairs"):
        one.join(feed(spark, tmp_path / "feed", "a", coalesce="true"), on="key", within=NEAR)
    with pytest.raises(OptionError, match="right stream without an event time"):
        one.join(us.UpdateStream(two.df, key="key"), on="key", within=NEAR)
    with pytest.raises(OptionError, match="promises nothing"):
        one.join(feed(spark, tmp_path / "feed", "a", progress="latent"), on="key", within=NEAR)
    with pytest.raises(SchemaError, match="would be called 'ms_right'"):
        one.join(two, on="key", within=NEAR).join(feed(spark, tmp_path / "feed", "a"), on="key", within=NEAR)
