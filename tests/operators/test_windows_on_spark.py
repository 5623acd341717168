"""Windows on Spark, from files to a Delta table, against DuckDB over the same files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from pyspark.sql import SparkSession

import upstream
from upstream.conf.errors import CheckpointError, SchemaError
from upstream.core.feedback.checkpoint_layout import windows_folder
from upstream.core.feedback.report_files import read_reports
from upstream.core.feedback.window_reports import WindowReport
from upstream.operators.aggregates.functions import count, max_, sum_

pytestmark = pytest.mark.spark

DELAY_MS = 100
FIRST_MS = 1_700_000_000_000
AGGREGATES: dict[str, Any] = {"n": count(), "total": sum_("value"), "top": max_("value")}

Rows = list[dict[str, Any]]


def write_feed(folder: Path, number: int, rows: int = 300, keys: int = 20) -> None:
    """One file of rows in some disorder, less than the delay; files follow each other in time."""
    chance = random.Random(number)
    begin = FIRST_MS + number * rows
    found = [
        (f"k{chance.randrange(keys)}", begin + at - chance.randrange(DELAY_MS), chance.randrange(-50, 50))
        for at in range(rows)
    ]
    write_csv(folder / f"part-{number}.csv", "key,ms,value", found)


def write_feeds(folder: Path, files: int = 4) -> None:
    """Several of them."""
    for number in range(files):
        write_feed(folder, number)


def feed(spark: SparkSession, folder: Path, **options: Any) -> upstream.UpdateStream:
    """The files as a stream: one a batch, several tasks each."""
    given = {"maxFilesPerTrigger": 1, "minPartitions": 2, "splitBytes": "2 KB", "lastLine": "complete", **options}
    rows = csv_feed(spark, folder, progressDelay=f"{DELAY_MS} ms", **given)
    return upstream.UpdateStream(rows, key="key", event_time="ms")


def write_every_window(results: upstream.UpdateStream, path: Path, checkpoint: Path) -> None:
    """A table that keeps the windows of a key apart."""
    keyed = upstream.UpdateStream(results.df, key=("key", "window_id"), event_time="window_end")
    write_to_end(keyed, path, checkpoint, buckets=4)


def table_of(path: Path, order: str, columns: str = "*", where: str = "true") -> Rows:
    """A Delta table read by DuckDB."""
    table = deltalake.DeltaTable(str(path)).to_pyarrow_dataset()
    found = duckdb.from_arrow(table).filter(where).project(columns).order(order)
    return found.to_arrow_table().to_pylist()


def windows_of(folder: Path, length: int, slide: int, where: str = "true") -> str:
    """SQL: every window of the files that is complete at the last low-watermark, in milliseconds."""
    return f"""
        WITH rows AS (SELECT * FROM read_csv('{folder}/*.csv')),
        placed AS (
            SELECT key, value, unnest(range(ms // {slide}, (ms + {length}) // {slide})) AS window_id
            FROM rows WHERE {where}
        )
        SELECT key, window_id, (window_id + 1) * {slide} AS ends, count(*) AS n, sum(value)::BIGINT AS total,
            max(value) AS top
        FROM placed WHERE ends <= (SELECT max(ms) - {DELAY_MS} FROM rows) GROUP BY ALL
    """


def expected(sql: str) -> Rows:
    """What DuckDB finds."""
    return duckdb.sql(sql).to_arrow_table().to_pylist()


OF_RESULTS = ("key", "window_id", "window_start", "window_end", "window_time", "final")
OF_WINDOWS = "key, window_id, epoch_ms(window_end) AS ends, n, total, top"


@pytest.mark.parametrize("method", ["paned", "wid", "adaptive", "buffering"])
def test_every_window_is_in_the_table_whatever_the_method(spark: SparkSession, tmp_path: Path, method: Any) -> None:
    write_feeds(tmp_path / "feed")
    checkpoint = tmp_path / "checkpoint"
    results = (
        feed(spark, tmp_path / "feed")
        .window(
            "100 ms",
            "30 ms",
            output="all",
            method=method,
            shards=4,
            time_format="epoch_ms",
            checkpoint_location=checkpoint,
        )
        .agg(**AGGREGATES)
    )
    assert results.df.columns == [*OF_RESULTS, *AGGREGATES, "_upstream"]
    write_every_window(results, tmp_path / "table", checkpoint)
    got = table_of(
        tmp_path / "table",
        "key, window_id",
        OF_WINDOWS,
        "final AND epoch_ms(window_end) - epoch_ms(window_start) = 100",
    )
    wanted = expected(windows_of(tmp_path / "feed", 100, 30) + "ORDER BY key, window_id")
    assert len(wanted) > 500
    assert got == wanted
    reports = read_reports(windows_folder(str(checkpoint)), WindowReport)
    assert len(reports) == 4
    assert sum(report.late for report in reports) == 0
    assert len(upstream.LatestTable(tmp_path / "table").history()) >= 4


def test_the_latest_window_of_each_key_filtered_before_and_after(spark: SparkSession, tmp_path: Path) -> None:
    write_feeds(tmp_path / "feed")
    checkpoint = tmp_path / "checkpoint"

    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pc.multiply(batch.column("value"), 2)], ["value"])

    def mean(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch(
            [pc.divide(batch.column("total").cast("double"), batch.column("n")), batch.column("n")], ["mean", "n"]
        )

    latest = (
        feed(spark, tmp_path / "feed")
        .where("value % 5 <> 0")
        .map(doubled, "value BIGINT")
        .window("60 ms", "20 ms", time_format="epoch_ms", shards=4, checkpoint_location=checkpoint)
        .agg(n=count(), total=sum_("value"))
        .map(mean, "mean DOUBLE, n BIGINT")
        .where("n % 2 = 1", on_leave="delete")
    )
    assert (latest.key, latest.event_time) == (("key",), "window_time")
    write_to_end(latest, tmp_path / "table", checkpoint)
    got = table_of(tmp_path / "table", "key", "key, (epoch_us(window_time) + 1) // 1000 AS ends, mean")
    every = windows_of(tmp_path / "feed", 60, 20, "value % 5 <> 0")
    wanted = expected(
        f"""SELECT key, ends, 2 * total / n AS mean FROM ({every}) QUALIFY window_id = max(window_id) OVER (PARTITION BY
        key) AND n % 2 = 1 ORDER BY key"""
    )
    assert 0 < len(wanted) < 20
    assert got == wanted
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").history()]
    assert sum(each.deleted for each in summaries) > 0
    assert summaries[-1].low_watermark is not None


def test_windows_over_windows_close_by_the_punctuation_of_the_first(spark: SparkSession, tmp_path: Path) -> None:
    write_feeds(tmp_path / "feed")
    checkpoint = tmp_path / "checkpoint"
    given: dict[str, Any] = {"output": "all", "shards": 4, "checkpoint_location": checkpoint}
    peaks = (
        feed(spark, tmp_path / "feed")
        .window("30 ms", time_format="epoch_ms", **given)
        .agg(total=sum_("value"))
        .window("120 ms", "60 ms", **given)
        .agg(windows=count(), top=max_("total"))
    )
    assert peaks.windows == 2
    write_every_window(peaks, tmp_path / "table", checkpoint)
    got = table_of(tmp_path / "table", "key, window_id", "key, window_id, windows, top")
    # A window that ends at 60 ms is in the one up to 60 ms, which closes with it.
    wanted = expected(
        f"""WITH firsts AS ({windows_of(tmp_path / "feed", 30, 30)}),
        bound AS (SELECT ((max(ms) - {DELAY_MS}) // 30 + 1) * 30 AS bound FROM read_csv('{tmp_path}/feed/*.csv')),
        placed AS (SELECT key, total, unnest(range((ends - 1) // 60, (ends - 1 + 120) // 60)) AS window_id FROM firsts)
        SELECT key, window_id, count(*) AS windows, max(total) AS top FROM placed, bound
        WHERE (window_id + 1) * 60 < bound GROUP BY ALL ORDER BY key, window_id"""
    )
    assert len(wanted) > 200
    assert got == wanted


def test_results_wait_in_a_queue_and_newer_windows_supersede_older_ones(spark: SparkSession, tmp_path: Path) -> None:
    write_feeds(tmp_path / "feed")
    checkpoint = tmp_path / "checkpoint"
    queued = (
        feed(spark, tmp_path / "feed")
        .window("60 ms", "20 ms", output="all", time_format="epoch_ms", shards=4, checkpoint_location=checkpoint)
        .agg(**AGGREGATES)
        .queue(policy="in-place", budget=12, shards=4, checkpoint_location=checkpoint)
    )
    write_to_end(queued, tmp_path / "table", checkpoint)
    got = table_of(tmp_path / "table", "key", OF_WINDOWS)
    every = windows_of(tmp_path / "feed", 60, 20)
    wanted = expected(
        f"SELECT * FROM ({every}) QUALIFY window_id = max(window_id) OVER (PARTITION BY key) ORDER BY key"
    )
    assert len(wanted) == 20
    assert got == wanted
    summaries = [summary for _, summary in upstream.LatestTable(tmp_path / "table").history()]
    assert max(each.rows for each in summaries) <= 12
    assert sum(each.updates for each in summaries) == len(expected(every)), (
        "a result is delivered, or stood for by a newer one"
    )
    assert sum(each.delivered for each in summaries) < len(expected(every))


def test_a_query_goes_on_corrects_what_it_gave_and_puts_late_rows_aside(spark: SparkSession, tmp_path: Path) -> None:
    """Early results and corrections take the place of what was given before them, across a restart too."""
    folder, checkpoint, table, late = (tmp_path / name for name in ("feed", "checkpoint", "table", "late"))

    def run(**other: Any) -> None:
        given: dict[str, Any] = {
            "slide": "50 ms",
            "shards": 4,
            "output": "all",
            "early": True,
            "allowed_lateness": "400 ms",
            **other,
        }
        aggregates = given.pop("aggregates", AGGREGATES)
        windows = feed(spark, folder).window(
            "100 ms", time_format="epoch_ms", checkpoint_location=checkpoint, late_location=late, **given
        )
        write_every_window(windows.agg(**aggregates), table, checkpoint)

    write_feeds(folder, 2)
    run()
    final = table_of(table, "key, window_id", OF_WINDOWS, "final")
    assert final == expected(windows_of(folder, 100, 50) + "ORDER BY key, window_id")
    assert table_of(table, "key", where="NOT final"), "the windows that are open by now"

    # Behind the low-watermark, by less than the allowed lateness; and one row beyond it, which is in no window any
    # more.
    behind = FIRST_MS + 2 * 300 - DELAY_MS
    write_csv(folder / "part-2.csv", "key,ms,value", [(f"k{at % 20}", behind - 10 * at, 1000 + at) for at in range(20)])
    write_feed(folder, 3)
    run()
    assert table_of(table, "key, window_id", OF_WINDOWS, "final") == expected(
        windows_of(folder, 100, 50) + "ORDER BY key, window_id"
    )
    assert not late.exists()
    write_csv(folder / "part-4.csv", "key,ms,value", [("k1", FIRST_MS, 7), ("k2", FIRST_MS + 1, 8)])
    before = table_of(table, "key, window_id", OF_WINDOWS)
    run()
    assert table_of(table, "key, window_id", OF_WINDOWS) == before
    aside = pa.concat_tables([pq.read_table(file) for file in sorted(late.glob("late-*.parquet"))])
    assert sorted(zip(*(aside.column(name).to_pylist() for name in ("key", "ms", "value")), strict=True)) == [
        ("k1", FIRST_MS, 7),
        ("k2", FIRST_MS + 1, 8),
    ]
    for other in (
        {"slide": "20 ms"},
        {"shards": 8},
        {"early": False},
        {"allowed_lateness": "1 s"},
        {"method": "wid"},
    ):
        with pytest.raises(CheckpointError, match=r"begun with another.*put them back, or start with a new"):
            run(**other)
    with pytest.raises(SchemaError, match=r"top is missing from the query.*mergeSchema"):
        run(aggregates={"n": count()})
    assert not spark.streams.active


def test_names_with_dots_pass_every_step(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(f"h{at % 3}", FIRST_MS + at, at) for at in range(400)]
    write_csv(tmp_path / "feed" / "a.csv", "id.orig_h,ms,a`b.c", rows)
    checkpoint = tmp_path / "checkpoint"
    df = (
        spark.readStream.format("upstream")
        .options(key="`id.orig_h`", time="ms", timeFormat="epoch_ms", progress="ordered", lastLine="complete")
        .load(str(tmp_path / "feed"))
    )

    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pc.multiply(batch.column("a`b.c"), 2)], ["twice.it"])

    results = (
        upstream.UpdateStream(df, key="id.orig_h", event_time="ms")
        .where("`id.orig_h` <> 'h2'")
        .map(doubled, "`twice.it` BIGINT")
        .window("100 ms", time_format="epoch_ms", shards=2, checkpoint_location=checkpoint)
        .agg(total=sum_("twice.it"))
        .queue(policy="in-place", budget=None, shards=2, checkpoint_location=checkpoint)
    )
    write_to_end(results, tmp_path / "table", checkpoint)
    got = table_of(tmp_path / "table", "1", '"id.orig_h" AS host, epoch_ms(window_end) AS ends, total')
    # The window that is open has the rows from 300 to 399.
    assert got == [
        {"host": f"h{host}", "ends": FIRST_MS + 300, "total": sum(2 * at for at in range(200, 300) if at % 3 == host)}
        for host in (0, 1)
    ]
