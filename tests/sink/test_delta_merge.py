"""The same batches into a table of the sink's own and, through Delta's MERGE, into an ordinary one: the same rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException, StreamingQueryException

from upstream import write_batch, write_latest
from upstream.conf.errors import OptionError, SchemaError, TableError
from upstream.frames.system import SYSTEM_DDL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDL = f"k BIGINT, t BIGINT, v STRING, {SYSTEM_DDL}"
CONFS = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")

Row = tuple[int, int, str | None]


@dataclasses.dataclass(frozen=True)
class Case:
    """Batches of rows (key, time, value; no value deletes the key), and what the table holds after them."""

    batches: tuple[tuple[Row, ...], ...]
    holds: dict[int, tuple[int, str]]
    timed: bool = True


CASES = {
    "newer wins, and deletions": Case(
        (
            (*((1, 10, "a"), (2, 10, "b"), (1, 5, "older")), *((11, 10, "a"), (12, 10, "b"), (13, 10, "c"))),
            (
                *((1, 9, "late"), (2, 11, "b2"), (3, 1, "c"), (3, 1, "tie")),
                *((11, 11, None), (12, 9, None), (13, 11, None), (13, 12, "alive"), (14, 1, None)),
            ),
        ),
        {1: (10, "a"), 2: (11, "b2"), 3: (1, "tie"), 12: (10, "b"), 13: (12, "alive")},
    ),
    "arrival": Case(
        (((1, 10, "a"), (1, 5, "later")), ((2, 1, "b"), (1, 1, "last"))), {1: (1, "last"), 2: (1, "b")}, timed=False
    ),
}


@pytest.fixture
def ordinary(tmp_path: Path) -> str:
    """A table that somebody else has made."""
    path = str(tmp_path / "ordinary")
    columns = [("t", pa.int64()), ("v", pa.string()), ("k", pa.int64()), ("more", pa.string())]
    DeltaTable.create(path, pa.schema(columns))
    return path


def latest(path: str) -> dict[int, tuple[int, str]]:
    return {row["k"]: (row["t"], row["v"]) for row in DeltaTable(path).to_pyarrow_table().to_pylist()}


def write_rows(sink: Any, folder: Path, number: int, rows: tuple[Row, ...]) -> None:
    folder.mkdir(exist_ok=True)
    batch = sink.rows(rows, seq=100 * number, deleted=[row[2] is None for row in rows])
    pq.write_table(pa.Table.from_batches([batch]), folder / f"{number}.parquet")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_same_table_either_way(
    spark: SparkSession, make_sink: Any, ordinary: str, tmp_path: Path, case: Case
) -> None:
    time = "t" if case.timed else ""
    sink = make_sink(time=time)
    feed = tmp_path / "feed"
    for number, rows in enumerate(case.batches):
        sink.batch(number, [sink.rows(rows, seq=100 * number, deleted=[row[2] is None for row in rows])])
        write_rows(sink, feed, number, rows)
        df = spark.read.schema(DDL).parquet(str(feed / f"{number}.parquet"))
        write_batch(df, ordinary, key="k", time=time or None, engine="merge", txnAppId="test", txnVersion=number)
    assert sink.latest() == case.holds
    assert latest(ordinary) == case.holds
    assert [spark.conf.get(name, None) for name in CONFS] == [None, None]


def test_a_query_exactly_once(spark: SparkSession, make_sink: Any, ordinary: str, tmp_path: Path) -> None:
    sink, feed = make_sink(), tmp_path / "feed"
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        df = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(feed))
        writer = write_latest(df, ordinary, key="k", time="t", engine="merge", checkpointLocation=str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    write_rows(sink, feed, 0, ((1, 10, "a"), (2, 10, "b")))
    run()
    # A column that the stream does not have is left alone.
    spark.sql(f"UPDATE delta.`{ordinary}` SET more = 'kept' WHERE k = 2")
    write_rows(sink, feed, 1, ((2, 11, "b2"), (3, 1, "c")))
    run()
    assert latest(ordinary) == {1: (10, "a"), 2: (11, "b2"), 3: (1, "c")}
    assert DeltaTable(ordinary).to_pyarrow_table(filters=[("k", "=", 2)]).column("more").to_pylist() == ["kept"]
    # The process dies after the table's commit and before Spark's: the batch is run again.
    spark.sql(f"DELETE FROM delta.`{ordinary}` WHERE k = 3")
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run()
    assert latest(ordinary).keys() == {1, 2}  # had it been applied again, 3 would be back
    # A row without a key is refused by name, and what was named for Delta is not left behind.
    write_rows(sink, feed, 2, ((None, 1, "no key"),))  # pyright: ignore[reportArgumentType]
    with pytest.raises(StreamingQueryException, match="a row has no key in the column 'k'"):
        run()
    assert [spark.conf.get(name, None) for name in CONFS] == [None, None]


def test_deletions_by_a_condition(spark: SparkSession, ordinary: str) -> None:
    write_deltalake(ordinary, pa.table({"t": [1, 1], "v": ["a", "b"], "k": [1, 2], "more": ["", ""]}), mode="append")
    df = spark.createDataFrame([(1, 2, "gone"), (2, 0, "gone")], "k BIGINT, t BIGINT, v STRING")
    write_batch(df, ordinary, key="k", time="t", engine="merge", deleteWhen="v = 'gone'", txnAppId="test", txnVersion=0)
    assert latest(ordinary) == {2: (1, "b")}


def test_what_is_refused(spark: SparkSession, make_sink: Any, ordinary: str, tmp_path: Path) -> None:
    df = spark.createDataFrame([(1, 1, "a")], "k BIGINT, t BIGINT, v STRING")
    with pytest.raises(TableError, match="there is no Delta table"):
        write_batch(df, tmp_path / "none", key="k", engine="merge")
    sink = make_sink()
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    with pytest.raises(TableError, match="one of the sink's own"):
        write_batch(df, sink.path, key="k", engine="merge")
    with pytest.raises(SchemaError, match="has no column x"):
        write_batch(df.withColumn("x", df["k"]), ordinary, key="k", engine="merge")
    with pytest.raises(OptionError, match="does not know buckets, metricsLocation"):
        write_batch(df, ordinary, key="k", engine="merge", buckets=4, metricsLocation="m")
    with pytest.raises(PySparkException, match="a row has no time"):
        write_batch(df.selectExpr("k", "CAST(NULL AS BIGINT) t", "v"), ordinary, key="k", time="t", engine="merge")
