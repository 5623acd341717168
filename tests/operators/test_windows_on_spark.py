"""Windows on Spark, from files to a Delta table, and their late rows as a stream of their own in a second query."""

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import run_to_end, write_to_end
from kit.tables import read_frame, read_letters, read_table
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import upstream
from upstream.conf.errors import SchemaError
from upstream.operators.aggregates.functions import count, max_, sum_

from . import sums

pytestmark = pytest.mark.spark

DELAY_MS = 100
FIRST_MS = 1_700_000_000_000
LENGTH, SLIDE = 100, 50

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


def feed(spark: SparkSession, folder: Path) -> upstream.UpdateStream:
    """The files as a stream: one a batch, several tasks each."""
    given = {"maxFilesPerTrigger": 1, "minPartitions": 2, "splitBytes": "2 KB", "lastLine": "complete"}
    rows = csv_feed(spark, folder, watermarkDelay=f"{DELAY_MS} ms", **given)
    return upstream.UpdateStream(rows, key="key", event_time="ms")


def table_of(path: Path, order: str, columns: str = "*", where: str = "true") -> Rows:
    """A Delta table read by DuckDB."""
    table = deltalake.DeltaTable(str(path)).to_pyarrow_dataset()
    found = duckdb.from_arrow(table).filter(where).project(columns).order(order)
    return found.to_arrow_table().to_pylist()


def expected(folder: Path) -> Rows:
    """What DuckDB finds: every window of the files that is complete at the last low-watermark."""
    query = f"""
        WITH rows AS (SELECT * FROM read_csv('{folder}/*.csv')),
        placed AS (SELECT key, value, unnest(range(ms // {SLIDE}, (ms + {LENGTH}) // {SLIDE})) AS window_id FROM rows)
        SELECT key, window_id, (window_id + 1) * {SLIDE} AS ends, count(*) AS n, sum(value)::BIGINT AS total,
            max(value) AS top
        FROM placed WHERE ends <= (SELECT max(ms) - {DELAY_MS} FROM rows) GROUP BY ALL ORDER BY key, window_id
    """
    return duckdb.sql(query).to_arrow_table().to_pylist()


OF_WINDOWS = "key, window_id, epoch_ms(window_end) AS ends, n, total, top"


def test_a_query_goes_on_corrects_what_it_gave_and_puts_late_rows_aside(spark, tmp_path):
    """Early results and corrections take the place of what was given before them, across a restart too."""
    folder, checkpoint, table = (tmp_path / name for name in ("feed", "checkpoint", "table"))

    def run() -> None:
        windows = feed(spark, folder).window(
            f"{LENGTH} ms", f"{SLIDE} ms", emit=upstream.Emission("all", early=True),
            lateness=upstream.Lateness("400 ms", dead_letters=True), shards=4,
        )  # fmt: skip
        results = windows.agg(n=count(), total=sum_("value"), top=max_("value"))
        write_to_end(results, table, checkpoint, key=("key", "window_id"), event_time="window_end", buckets=4)

    for number in range(2):
        write_feed(folder, number)
    run()
    final = table_of(table, "key, window_id", OF_WINDOWS, "final")
    assert final == expected(folder)
    assert table_of(table, "key", where="NOT final"), "the windows that are open by now"

    # Behind the low-watermark, by less than the allowed lateness; and one row beyond it, which is in no window any
    # more.
    behind = FIRST_MS + 2 * 300 - DELAY_MS
    write_csv(folder / "part-2.csv", "key,ms,value", [(f"k{at % 20}", behind - 10 * at, 1000 + at) for at in range(20)])
    write_feed(folder, 3)
    run()
    assert table_of(table, "key, window_id", OF_WINDOWS, "final") == expected(folder)
    assert not (checkpoint / "dead_letters").exists()
    write_csv(folder / "part-4.csv", "key,ms,value", [("k1", FIRST_MS, 7), ("k2", FIRST_MS + 1, 8)])
    before = table_of(table, "key, window_id", OF_WINDOWS)
    run()
    assert table_of(table, "key, window_id", OF_WINDOWS) == before
    aside = sorted((row["key"], row["ms"], row["value"]) for row in read_letters(checkpoint / "dead_letters"))
    assert aside == [("k1", FIRST_MS, 7), ("k2", FIRST_MS + 1, 8)]


def test_names_with_dots_pass_every_step(spark, tmp_path):
    rows = [(f"h{at % 3}", FIRST_MS + at, at) for at in range(400)]
    write_csv(tmp_path / "feed" / "a.csv", "id.orig_h,ms,a`b.c", rows)
    checkpoint = tmp_path / "checkpoint"
    df = (
        spark.readStream.format("upstream")
        .options(key="`id.orig_h`", eventTime="ms", timeFormat="epoch_ms", watermark="ordered", lastLine="complete")
        .load(str(tmp_path / "feed"))
    )

    def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pc.multiply(batch.column("a`b.c"), 2)], ["twice.it"])

    results = (
        upstream.UpdateStream(df, key="id.orig_h", event_time="ms")
        .where("`id.orig_h` <> 'h2'")
        .map(doubled, "`twice.it` BIGINT")
        .window("100 ms", shards=2)
        .agg(total=sum_("twice.it"))
        .queue(policy="in-place", budget=None, shards=2)
    )
    write_to_end(results, tmp_path / "table", checkpoint)
    got = table_of(tmp_path / "table", "1", '"id.orig_h" AS host, epoch_ms(window_end) AS ends, total')
    # The window that is open has the rows from 300 to 399.
    assert got == [
        {"host": f"h{host}", "ends": FIRST_MS + 300, "total": sum(2 * at for at in range(200, 300) if at % 3 == host)}
        for host in (0, 1)
    ]


@pytest.mark.parametrize("duration", ["10 s", "10 rows"])
def test_windows_over_a_source_that_leaves_out_superseded_rows(spark, tmp_path, duration):
    write_csv(tmp_path / "feed" / "a.csv", "key,ms,value", [("k", FIRST_MS, 1)])
    coalesced = upstream.latest(spark, str(tmp_path / "feed"), key="key", event_time="ms", timeFormat="epoch_ms")
    coalesced = coalesced.where("value > 0 OR _upstream.punctuation")
    whole = upstream.UpdateStream(coalesced.withColumn("more", coalesced["value"] + 1), key="key", event_time="ms")
    bare = upstream.UpdateStream.from_dataframe(
        coalesced.drop("_upstream"), key="key", event_time="ms", time_format="epoch_ms", name="bare"
    )
    for stream in (whole, whole.select("more"), bare):
        with pytest.raises(SchemaError, match="coalesces"):
            stream.window(duration).agg(n=count())


def main_query(spark: SparkSession, feed: Path) -> upstream.UpdateStream:
    counted = sums.read(spark, feed).window(
        "1 second", shards=2, emit="all", lateness=upstream.Lateness(dead_letters=True)
    )
    return counted.agg(n=count())


def count_late(stream: upstream.UpdateStream, place: Path) -> dict[tuple[int, int], int]:
    """How often each late row has come."""
    late = stream.late_rows(place / "checkpoint", watermark=upstream.Watermark.bounded("1 day"))
    assert (late.key, late.event_time) == (("k",), "ms")
    counted = late.window("1 ms", by=("k", "v"), shards=2, emit=upstream.Emission("all", early=True))
    writer = counted.agg(n=count()).write(
        place / "late_table", key=("k", "v", "window_id"), checkpoint=place / "late_checkpoint"
    )
    run_to_end(writer)
    found = read_frame(place / "late_table")
    return dict(zip(found.select("k", "v").rows(), found["n"].to_list(), strict=True))


def run_again(checkpoint: Path) -> Path:
    """Let the last batch seem not to have been committed, as after a crash between the table and Spark's own log."""
    last = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    for each in (checkpoint / "commits" / str(last), checkpoint / "commits" / f".{last}.crc"):
        each.unlink()
    return checkpoint / "commits" / str(last)


def test_each_late_row_comes_once(spark, tmp_path):
    feed, place = tmp_path / "feed", tmp_path / "place"
    sums.add(feed, "a", [(key, 5000, 100 + key) for key in range(5)])
    stream = main_query(spark, feed)
    more: dict[str, Any] = {"key": ("k", "window_id"), "event_time": "window_time"}
    sums.finish(stream, place, **more)
    sums.add(feed, "b", [(key, 1000, key) for key in range(4)])
    sums.finish(main_query(spark, feed), place, **more)
    assert count_late(stream, place) == {(key, key): 1 for key in range(4)}
    again = run_again(place / "checkpoint")
    sums.add(feed, "c", [(key, 1500, 10 + key) for key in range(3)])
    sums.finish(main_query(spark, feed), place, **more)
    assert again.exists(), "the batch ran again"
    assert count_late(stream, place) == {(key, key): 1 for key in range(4)} | {(key, 10 + key): 1 for key in range(3)}


def test_a_late_tombstone_stays_one(spark, tmp_path):
    """What an ordered release refuses may be a deletion: it deletes its key in a table of late rows, too."""
    feed, place = tmp_path / "feed", tmp_path / "place"
    sums.add(feed, "a", [(1, 1000, 5), *((key, 9000 + key, 6) for key in range(1, 9))])

    def released() -> upstream.UpdateStream:
        kept = sums.read(spark, feed).where("v > 0", on_leave="delete")
        return kept.ordered(shards=1, dead_letters=True)

    sums.finish(released(), place)
    sums.add(feed, "b", [(1, 2000, 7), (2, 2100, 8), (1, 3000, -1)])
    sums.finish(released(), place)
    run_to_end(
        released().late_rows(place / "checkpoint").write(place / "late_table", checkpoint=place / "late_checkpoint")
    )
    assert read_frame(place / "late_table").select("k", "ms", "v").rows() == [(2, 2100, 8)]
    assert len(read_letters(place / "checkpoint" / "dead_letters")) == 3


def test_every_value_of_a_late_row_comes_back(spark, tmp_path):
    feed, checkpoint = tmp_path / "feed", tmp_path / "checkpoint"
    feed.mkdir()
    day = dt.datetime(2024, 2, 29, 1, 2, 3, 456789)
    kinds: dict[str, tuple[Any, pa.DataType]] = {
        "k": (1, pa.int64()), "t": (day.replace(tzinfo=dt.timezone.utc), pa.timestamp("us", "UTC")),
        "b": (True, pa.bool_()), "i": (-128, pa.int8()), "l": (2**63 - 1, pa.int64()), "f": (0.1, pa.float32()),
        "d": (-1e-308, pa.float64()), "nan": (float("nan"), pa.float64()), "inf": (float("-inf"), pa.float32()),
        "s": ('é"\\\n', pa.string()), "x": (b"a\xff\\", pa.binary()), "day": (day.date(), pa.date32()),
        "n": (day, pa.timestamp("us")), "dec": (Decimal("-12345678901234567890.10"), pa.decimal128(38, 2)),
        "li": ([1, None], pa.list_(pa.int64())), "m": ([("a", 1.5)], pa.map_(pa.string(), pa.float64())),
        "st": ({"a b": day, "x": b"\0"}, pa.struct([("a b", pa.timestamp("us")), ("x", pa.binary())])),
        "null": (None, pa.string()),
    }  # fmt: skip
    late = pa.table({name: pa.array([value], kind) for name, (value, kind) in kinds.items()})
    ahead = late.set_column(1, "t", pc.add(late.column("t"), dt.timedelta(days=1)))
    schema = from_arrow_schema(late.schema, prefer_timestamp_ntz=True)
    columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in schema.fields)
    columns = columns.replace("a b:", "`a b`:")

    def released() -> upstream.UpdateStream:
        given: dict[str, Any] = {"schema": columns, "fileFormat": "parquet", "onEnd": "keep"}
        given["watermark"] = upstream.Watermark.bounded("1 hour").guarded(confirmations=1)
        return upstream.read(spark, feed, key="k", event_time="t", **given).ordered(shards=1, dead_letters=True)

    for number, rows in enumerate((ahead, late)):
        pq.write_table(rows, feed / f"{number}.parquet")
        run_to_end(released().write(tmp_path / "table", checkpoint=checkpoint))
    assert len(read_letters(checkpoint / "dead_letters")) == 1
    found = released().late_rows(checkpoint)
    assert [(each.name, each.dataType) for each in found.schema.fields[:-1]] == [
        (each.name, each.dataType) for each in schema.fields
    ]
    run_to_end(found.write(tmp_path / "late", checkpoint=tmp_path / "late_checkpoint"))
    written = read_table(tmp_path / "late").select(late.column_names)
    assert str(written.to_pylist()) == str(late.to_pylist())
