"""The sink under Spark: real streaming queries, every type, read back by other engines."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from kit.queries import run_to_end, write_to_end
from kit.sink import Sink
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import upstream as us
from upstream.conf.errors import OptionError, TableError
from upstream.core.pushdown.source_steps import ArrowStep
from upstream.core.rows.system_column import SYSTEM_DDL, TIMESTAMP
from upstream.operators.runtime.steps import map_in_arrow
from upstream.sink.figures.summary import CommitSummary, read_summaries
from upstream.sink.write_latest import write_latest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType


UTC = dt.timezone.utc
T0 = dt.datetime(2024, 1, 1, tzinfo=UTC)
DDL = f"k STRING, t TIMESTAMP, n BIGINT, {SYSTEM_DDL}"
COLUMNS = pa.schema([("k", pa.string()), ("t", TIMESTAMP), ("n", pa.int64())])


class Feed:
    """A folder of Parquet files, each of which is one micro-batch of a streaming DataFrame."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.count = 0
        self.seq = 0

    def add(self, rows: list[tuple[str | None, int | None, int | None]], *, punctuation: bool = False) -> None:
        """Rows of key, seconds after T0, payload."""
        timed = [(k, None if second is None else T0 + dt.timedelta(seconds=second), n) for k, second, n in rows]
        arrival = [int(T0.timestamp() * 1e6)] * len(rows)
        batch = Sink(self.folder.parent, COLUMNS).rows(timed, seq=self.seq, arrival_us=arrival, punctuation=punctuation)
        self.seq += len(rows)
        self.put(pa.Table.from_batches([batch]))

    def put(self, table: pa.Table) -> None:
        pq.write_table(table, self.folder / f"{self.count:05d}.parquet")
        self.count += 1

    def stream(self, spark: SparkSession, schema: str | StructType = DDL) -> DataFrame:
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.folder))


@pytest.fixture
def feed(tmp_path):
    return Feed(tmp_path / "feed")


@pytest.fixture
def place(tmp_path):
    return {"path": str(tmp_path / "table"), "checkpointLocation": str(tmp_path / "checkpoint")}


def test_a_table_stays_out_of_what_is_read(spark, feed, place, tmp_path):
    feed.add([("a", 1, 1)])

    def with_letters(place: Path | str) -> us.UpdateStream:
        given = {"schema": "k STRING, t TIMESTAMP", "fileFormat": "parquet", "deadLetters": place}
        return us.read(spark, feed.folder, key="k", event_time="t", **given)

    stream = with_letters(tmp_path / "letters")
    write = {"checkpoint": tmp_path / "checkpoint", "metrics_location": tmp_path / "metrics"}
    for refused in (
        lambda: write_latest(feed.stream(spark), feed.folder / "in", key="k", checkpoint=tmp_path / "c"),
        lambda: write_latest(stream.df, tmp_path, key="k", checkpoint=tmp_path.parent / "c"),
        lambda: stream.write(**{**write, "table": place["path"], "metrics_location": feed.folder / "metrics"}),
        lambda: with_letters(feed.folder).write(table=place["path"], **write),
        lambda: with_letters(place["path"]).write(table=place["path"], **{**write, "deadLetters": tmp_path / "other"}),
    ):
        with pytest.raises(OptionError, match="a folder of its own for each table"):
            refused()


@dataclasses.dataclass
class InArrow:
    """A stream of which Spark does not hold the rows, so that they go to the sink in frames."""

    df: DataFrame
    key: tuple[str, ...] = ()
    time: str | None = None
    shards: int | None = None
    inputs: tuple[tuple[str, str], ...] = ()
    aside: tuple[tuple[str, str], ...] = ()

    @property
    def session(self) -> SparkSession:
        return self.df.sparkSession

    @property
    def schema(self) -> StructType:
        return self.df.schema

    @property
    def event_time(self) -> str | None:
        return self.time

    def bound(self, checkpoint: object, *, newest: bool = False) -> InArrow:
        return self

    def in_arrow(self, step: ArrowStep, schema: StructType) -> DataFrame:
        return map_in_arrow(self.df, step, schema)

    def record(self, checkpoint: str) -> None:
        """It has no steps."""


def as_it_is(df: DataFrame) -> DataFrame:
    return df


either_way = pytest.mark.parametrize("form", [as_it_is, InArrow], ids=["rows", "frames"])


def run(df: DataFrame | InArrow, place: dict[str, str], **more: Any) -> StreamingQuery:
    options = {"key": "k", "eventTime": "t", "buckets": 4, **more}
    return write_to_end(df, place["path"], place["checkpointLocation"], **options)


def latest(path: str) -> dict[str, tuple[float, int]]:
    rows = DeltaTable(path).to_pyarrow_table()
    return {row["k"]: ((row["t"] - T0).total_seconds(), row["n"]) for row in rows.to_pylist()}


def summaries(path: str) -> list[CommitSummary]:
    return [summary for _, summary in read_summaries(path)]


@either_way
def test_batches_punctuation_and_progress(spark, feed, place, form):
    feed.add([(f"key {i % 50}", i, i) for i in range(200)])
    feed.add([("key 3", 5, -1), ("new", 1, -2)])
    feed.add([(None, 100, None)], punctuation=True)
    query = run(form(feed.stream(spark)), place)
    expected = {f"key {i % 50}": (float(i), i) for i in range(200)} | {"new": (1.0, -2)}
    assert latest(place["path"]) == expected
    first, second, third = summaries(place["path"])
    assert (first.rows, first.applied, first.superseded, first.keys, first.stray_buckets) == (200, 50, 150, 50, 0)
    assert (second.applied, second.older, second.keys) == (1, 1, 51)
    assert (third.rows, third.applied, third.low_watermark) == (0, 0, "2024-01-01T00:01:40.000000Z")
    assert first.query_id == str(query.id)
    assert first.staleness is not None
    given = map(us.LatestTable(place["path"]).batch_metrics, query.recentProgress)
    seen = [metrics for metrics in given if metrics is not None]
    arrived = int(T0.timestamp() * 1e6)
    figures = [(m.batch_id, m.rows, m.updates, m.oldest_arrival_us) for m in seen]
    assert figures == [(0, 200, 200, arrived), (1, 2, 2, arrived), (2, 0, 0, None)]
    assert seen[2].bounds is not None
    assert seen[0].duration_s > 0


def test_every_row_lies_in_sparks_bucket_and_readers_prune(spark, feed, place):
    feed.add([(f"key {i}", i, i) for i in range(300)])
    run(feed.stream(spark), place, buckets=16)
    table = spark.read.format("delta").load(place["path"])
    assert table.where("_upstream_bucket <> pmod(hash(k), 16)").count() == 0
    one = table.where("_upstream_bucket = pmod(hash('key 7'), 16) AND k = 'key 7'")
    assert len(one.inputFiles()) == 1
    assert [row.n for row in one.collect()] == [7]


@either_way
def test_a_batch_that_spark_repeats(spark, feed, place, form):
    feed.add([("a", 1, 1)])
    feed.add([("a", 2, 2), ("b", 1, 1)])
    run(form(feed.stream(spark)), place)
    version = DeltaTable(place["path"]).version()
    noted = Path(place["checkpointLocation"], "commits")
    (noted / "1").unlink()
    (noted / ".1.crc").unlink(missing_ok=True)
    query = run(form(feed.stream(spark)), place)
    assert [progress.batchId for progress in query.recentProgress if progress.numInputRows] == [1]
    assert DeltaTable(place["path"]).version() == version
    assert latest(place["path"]) == {"a": (2.0, 2), "b": (1.0, 1)}
    live = DeltaTable(place["path"]).file_uris()
    lying = list(Path(place["path"]).glob("_upstream_bucket=*/*.parquet"))
    assert len(lying) == len(live) + 1, "of batch 0, replaced by batch 1; the repeat left nothing"
    feed.add([("a", 3, 3)])
    run(form(feed.stream(spark)), place)
    assert latest(place["path"])["a"] == (3.0, 3)
    assert [summary.batch_id for summary in summaries(place["path"])] == [0, 1, 2]


def test_errors_reach_the_user(spark, feed, place):
    feed.add([("a", 1, 1)])
    with pytest.raises(OptionError, match="is not a stream"):
        write_latest(spark.range(3), place["path"], key="id")
    run(feed.stream(spark), place)
    with pytest.raises(TableError, match="has buckets 4"):
        write_latest(feed.stream(spark), place["path"], key="k", event_time="t", buckets=5)
    feed.add([(None, 1, 1)])
    for form in (as_it_is, InArrow):
        with pytest.raises(StreamingQueryException, match="1 of 1 rows have a null in the key column 'k'"):
            run(form(feed.stream(spark)), place)
    aggregated = feed.stream(spark).groupBy("k").agg(F.max("n").alias("n"))
    options = {"key": "k", "path": place["path"] + "2", "checkpointLocation": place["checkpointLocation"] + "2"}
    complete = aggregated.writeStream.format("upstream").options(**options).outputMode("complete")
    with pytest.raises(StreamingQueryException, match="the output mode is complete"):
        run_to_end(complete)


TYPES = pa.schema([
    ("id.orig_h", pa.string()),
    ("at", pa.timestamp("us", "UTC")),
    ("flag", pa.bool_()),
    ("i8", pa.int8()),
    ("i16", pa.int16()),
    ("i32", pa.int32()),
    ("f32", pa.float32()),
    ("f64", pa.float64()),
    ("short", pa.decimal128(9, 2)),
    ("wide", pa.decimal128(38, 10)),
    ("day", pa.date32()),
    ("raw", pa.binary()),
    ("text", pa.string()),
    ("list", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]))),
    ("map", pa.map_(pa.string(), pa.struct([("amount", pa.decimal128(20, 3))]))),
    ("nested", pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.timestamp("us", "UTC"))]))])),
])  # fmt: skip
FULL: dict[str, Any] = {
    "id.orig_h": "10.0.0.1",
    "at": dt.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
    "flag": True,
    "i8": -128,
    "i16": 32767,
    "i32": -(2**31),
    "f32": 1.5,
    "f64": -0.0,
    "short": decimal.Decimal("-1234567.89"),
    "wide": decimal.Decimal("1234567890123456789012345678.0123456789"),
    "day": dt.date(1969, 12, 31),
    "raw": b"\x00\xff",
    "text": "漢字 " + "long " * 20,
    "list": [{"x": 1, "y": ["a", None, ""]}, None, {"x": None, "y": []}],
    "map": [("k", {"amount": decimal.Decimal("1.250")}), ("none", None)],
    "nested": {"a": 1, "b": {"c": dt.datetime(1960, 1, 1, tzinfo=UTC)}},
}
EMPTY: dict[str, Any] = {**dict.fromkeys(FULL), "id.orig_h": "", "at": T0}
NOTHING: dict[str, Any] = {"text": "", "list": [], "map": [], "raw": b""}
ODD: dict[str, Any] = {**FULL, **NOTHING, "id.orig_h": "odd", "f32": math.inf, "f64": math.nan}


@either_way
def test_types_survive_and_other_engines_agree(spark, feed, place, form):
    feed.put(pa.Table.from_pylist([FULL, EMPTY, ODD], TYPES))
    run(form(feed.stream(spark, from_arrow_schema(TYPES))), place, key="id.orig_h", eventTime="at")
    # A second batch moves the untouched rows of its bucket once more.
    newer = {**EMPTY, "at": T0 + dt.timedelta(seconds=1)}
    feed.put(pa.Table.from_pylist([newer], TYPES))
    run(form(feed.stream(spark, from_arrow_schema(TYPES))), place, key="id.orig_h", eventTime="at", buckets=4)
    path = place["path"]
    expected, names = [FULL, newer, ODD], TYPES.names
    found = DeltaTable(path).to_pyarrow_table().select(names)
    assert found.schema.equals(TYPES)
    assert _by_key(found.to_pylist(), *names) == _by_key(expected, *names)
    dataset = DeltaTable(path).to_pyarrow_dataset()  # noqa: F841 DuckDB finds it by its name
    by_duckdb = duckdb.sql('SELECT "id.orig_h", wide, list FROM dataset').to_arrow_table().to_pylist()
    assert _by_key(by_duckdb, "wide", "list") == _by_key(expected, "wide", "list")
    in_polars = ("at", "short", "wide", "day", "raw", "text", "nested")
    by_polars = pl.scan_delta(path).select("id.orig_h", *in_polars).collect().to_dicts()
    assert _by_key(by_polars, *in_polars) == _by_key(expected, *in_polars)
    by_spark = spark.read.format("delta").load(path)
    of_spark = by_spark.select(*[f"`{name}`" for name in names])
    assert [(field.name, field.dataType) for field in of_spark.schema] == [
        (field.name, field.dataType) for field in from_arrow_schema(TYPES)
    ]
    assert _by_key(of_spark.toArrow().cast(TYPES).to_pylist(), *names) == _by_key(expected, *names)
    # Skipping by statistics must not lose rows.
    assert by_spark.where("f64 > 1e300").count() == 1  # NaN is above all numbers in Spark
    assert by_spark.where("at = timestamp'2024-02-29 23:59:59.999999'").count() == 2
    assert by_spark.where(F.col("text") == FULL["text"]).count() == 1
    assert by_spark.where("wide = 1234567890123456789012345678.0123456789BD").count() == 2
    assert by_spark.where("`id.orig_h` = ''").count() == 1
    assert by_spark.where("nested.b.c < timestamp'1970-01-01'").count() == 2


def _by_key(rows: list[dict[str, Any]], *names: str) -> dict[str, list[Any]]:
    """Some values of each row; NaN equal to itself, -0.0 distinct from 0.0."""
    found = {row["id.orig_h"]: [row[name] for name in names] for row in rows}
    return {key: [repr(each) if isinstance(each, float) else each for each in row] for key, row in found.items()}
