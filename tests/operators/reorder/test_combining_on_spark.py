"""Streams put together and in order, on Spark: into tables and windows, in parts, over restarts."""

import random

import deltalake
import polars as pl
import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from kit.tables import read_frame, read_letters

import upstream
from upstream import aggregates as agg
from upstream.conf.errors import CheckpointError, OptionError, SchemaError
from upstream.core.feedback.checkpoint_layout import operator_folder, read_steps
from upstream.core.feedback.reports import ReorderReport, read_reports
from upstream.storage.folder import TableFolder

pytestmark = pytest.mark.spark

DELAY_MS = 60


def write_feed(folder, name, files, per_file=80, seed=1):
    """Files of rows (key, ms, value), out of order by less than the delay; keys and times of all feeds often meet."""
    chance = random.Random(f"{name}{seed}")
    found = []
    for number in range(files):
        rows = []
        for at in range(per_file):
            ms = 1000 + (number * per_file + at) // 2 - chance.randrange(DELAY_MS - 10)
            row = (f"k{chance.randrange(4)}", ms, f"{name}-{number * per_file + at}")
            found.append((name, *row))
            rows.append(row)
        write_csv(folder / f"{name}-{number:03d}.csv", "key,ms,value", rows)
    return found


def feed(spark, folder, name, **options):
    given = {"watermark": "bounded", "watermarkDelay": f"{DELAY_MS} ms", "maxFilesPerTrigger": 1, **options}
    rows = csv_feed(spark, f"{folder}/{name}-*.csv", "key STRING, ms BIGINT, value STRING", **given)
    return upstream.UpdateStream(rows, key="key", event_time="ms")


def reports_of(place, number=0):
    return read_reports(operator_folder(str(place / "checkpoint"), "reorder", number), ReorderReport)


def test_the_preferred_rows_of_a_union_are_in_the_table_whichever_came_first(spark, tmp_path):
    rows = write_feed(tmp_path / "feed", "a", 3) + write_feed(tmp_path / "feed", "b", 5)
    left, right = (feed(spark, tmp_path / "feed", name) for name in "ab")
    both = left.union(right, names=("ours", "theirs"), prefer="ours", shards=2)
    with pytest.raises(SchemaError, match=r"merge\(…, prefer=…\)"):
        both.window("10 ms")
    with pytest.raises(SchemaError, match=r"key value"):
        left.merge(upstream.UpdateStream(right.df, key="value", event_time="ms"))
    with pytest.raises(SchemaError, match=r"'value'.*type string"):
        upstream.UpdateStream(left.df, key="key", event_time="value").ordered()
    write_to_end(both, tmp_path / "table", tmp_path / "checkpoint", key=("key", "ms"), eventTime="ms")
    newest = {}
    for name in "ba":  # whatever of a there is takes the place of what b has
        newest.update({(key, ms): value for source, key, ms, value in rows if source == name})
    found = {(row["key"], row["ms"]): row["value"] for row in read_frame(tmp_path / "table").to_dicts()}
    assert found == newest
    reports = reports_of(tmp_path)
    assert sum(report.rows for report in reports) == len(rows)
    assert sum(report.repeats for report in reports) > 0
    assert {feed.partition("/")[0] for report in reports for feed in report.bounds} == {"ours", "theirs"}
    # A table with the key of the stream needs no row that is older than one of its key that has passed.
    assert sum(report.superseded for report in reports) == 0
    place = tmp_path / "again"
    write_to_end(
        left.union(right, names=("ours", "theirs"), prefer="ours", shards=2), place / "table", place / "checkpoint"
    )
    last = {key: (ms, value) for (key, ms), value in sorted(newest.items())}
    assert {row["key"]: (row["ms"], row["value"]) for row in read_frame(place / "table").to_dicts()} == last
    assert sum(report.superseded for report in reports_of(place)) > 0


def test_windows_over_a_merge_count_each_key_and_time_once(spark, tmp_path):
    files = {name: write_feed(tmp_path / "feed", name, count, seed=2) for name, count in (("a", 3), ("b", 4))}
    streams = []
    for name in "ab":
        rows = spark.readStream.schema("key STRING, ms BIGINT, value STRING").option("header", True)
        df = rows.csv(f"{tmp_path}/feed/{name}-*.csv")
        streams.append(
            upstream.UpdateStream.from_dataframe(
                df, key="key", event_time="ms", time_format="epoch_ms", name=name,
                watermark=upstream.Watermark.bounded(f"{DELAY_MS} ms").guarded(max_jump="1 day"),
            )
        )  # fmt: skip
    left, right = streams
    with pytest.raises(OptionError, match=r"two branches .* one operator: read a DataFrame as 'a'.*another name"):
        left.merge(left).dataframe(tmp_path / "checkpoint")
    merged = left.merge(right.select("value"), prefer="right", shards=2)
    windows = merged.window("20 ms", shards=2, emit="all")
    key = {"key": ("key", "window_id"), "event_time": "window_end"}
    write_to_end(windows.agg(n=agg.count()), tmp_path / "table", tmp_path / "checkpoint", **key)

    rows = [row for found in files.values() for row in found]
    bound = min(max(ms for _, _, ms, _ in found) for found in files.values()) - DELAY_MS
    # Of the preferred input each row counts; of the other those of which it has none.
    own = {(key, ms) for source, key, ms, _ in rows if source == "b"}
    counted = pl.DataFrame(
        [(key, ms // 20) for source, key, ms, _ in rows if source == "b" or (key, ms) not in own],
        schema=["key", "window_id"], orient="row",
    )  # fmt: skip
    expected = (
        counted.filter((pl.col("window_id") + 1) * 20 <= bound).group_by("key", "window_id").agg(pl.len().alias("n"))
    )
    found = read_frame(tmp_path / "table").select("key", "window_id", "n")
    # What is promised on is the time of the first row that is still held, or the low-watermark: all these are complete.
    assert found.sort(pl.all()).equals(expected.cast({"n": pl.Int64}).sort(pl.all()))
    assert sum(report.refused for report in reports_of(tmp_path)) == 0
    described = windows.agg(n=agg.count()).describe(tmp_path / "checkpoint")
    assert [place.name for place in described.places] == ["input a", "input b", "reordering 0", "windows 0"]
    assert described.columns["window_start"] == described.columns["window_time"] == "bounded"
    newest = {name: max(row[2] for row in found) for name, found in files.items()}
    assert described.places[2].apart == newest["b"] - newest["a"]
    steps = read_steps(TableFolder(str(tmp_path / "checkpoint"))) or []
    assert [each["kind"] for each in steps] == ["input", "input", "step", "operator", "operator"]
    assert [each["folder"] for each in steps[3:]] == ["upstream-reorder/0", "upstream-windows/0"]


def test_slow_flush_gives_all_in_small_batches_and_stops(spark, tmp_path):
    rows = write_feed(tmp_path / "feed", "a", 2)
    stream = feed(spark, tmp_path / "feed", "a").ordered(flush="slow", flush_rows=20, shards=2)
    write_to_end(stream, tmp_path / "table", tmp_path / "checkpoint", key=("key", "ms", "value"))
    reports = reports_of(tmp_path)
    bound = max(ms for _, _, ms, _ in rows) - DELAY_MS
    found = read_frame(tmp_path / "table")
    assert sorted(found["value"].to_list()) == sorted(value for _, _, ms, value in rows if ms <= bound)
    assert sum(report.due for report in reports) == 0
    assert sum(report.held for report in reports) == sum(ms > bound for _, _, ms, _ in rows)
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").commits()]
    assert max(summary.rows for summary in summaries) <= 20
    assert len([summary for summary in summaries if summary.rows]) > 4
    # Nothing waits for its turn, so nothing happens any more.
    before = deltalake.DeltaTable(str(tmp_path / "table")).version()
    write_to_end(stream, tmp_path / "table", tmp_path / "checkpoint", key=("key", "ms", "value"))
    assert deltalake.DeltaTable(str(tmp_path / "table")).version() == before
    # Spark numbers the input that starts these batches: it stays for the life of the checkpoint.
    at_once = feed(spark, tmp_path / "feed", "a").ordered(shards=2)
    with pytest.raises(CheckpointError, match="had flush='slow'"):
        write_to_end(at_once, tmp_path / "table", tmp_path / "checkpoint", key=("key", "ms", "value"))
    # Of the next file some rows are below what was promised by then.
    (tmp_path / "feed" / "a-900.csv").write_text("key,ms,value\nk1,1001,too late\nk1,1200,in time\n")
    again = feed(spark, tmp_path / "feed", "a").ordered(flush="slow", flush_rows=20, shards=2, dead_letters=True)
    write_to_end(again, tmp_path / "table", tmp_path / "checkpoint", key=("key", "ms", "value"))
    assert [row["value"] for row in read_letters(tmp_path / "checkpoint" / "dead_letters")] == ["too late"]
    described = again.describe(tmp_path / "checkpoint")
    assert dict(described.columns) == {"key": "update key", "ms": "ordered", "value": "", "_upstream": ""}
    source, reordering = described.places
    assert (source.name, reordering.name) == ("source 0", "reordering 0")
    assert [feed.bound for feed in source.feeds] == [(1200 - DELAY_MS) * 1000]  # microseconds
    assert [feed.bound for feed in reordering.feeds] == [1200 - DELAY_MS]  # in the terms of the time column
