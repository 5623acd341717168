"""The same batches into a table of the sink's own and, through Delta's MERGE, into an ordinary one: the same rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from kit.tables import read_by_key
from kit.waiting import wait_for
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from upstream import write_batch, write_latest
from upstream.conf.errors import OptionError, SchemaError, TableError
from upstream.core.rows.system_column import SYSTEM_DDL
from upstream.sink.commit.batch_name import BatchName
from upstream.sink.foreign.delta_merge import check_merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


DDL = f"k BIGINT, t BIGINT, v STRING, {SYSTEM_DDL}"
PLAIN = "k BIGINT, t BIGINT, v STRING"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
CONFS = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion", USER_METADATA)

Row = tuple[int, int, str | None]


@pytest.fixture
def ordinary(tmp_path):
    path = str(tmp_path / "ordinary")
    columns = [("t", pa.int64()), ("v", pa.string()), ("k", pa.int64()), ("more", pa.string())]
    DeltaTable.create(path, pa.schema(columns))
    return path


def write_rows(sink: Any, folder: Path, number: int, rows: Sequence[Row]) -> None:
    folder.mkdir(exist_ok=True)
    batch = sink.rows(rows, seq=100 * number, deleted=[row[2] is None for row in rows])
    pq.write_table(pa.Table.from_batches([batch]), folder / f"{number}.parquet")


# Batches of rows (key, time, value; no value deletes the key), and what the table holds after them.
TIMED: list[list[Row]] = [
    [(1, 10, "a"), (2, 10, "b"), (1, 5, "older"), (11, 10, "a"), (12, 10, "b"), (13, 10, "c")],
    [
        *((1, 9, "late"), (2, 11, "b2"), (3, 1, "c"), (3, 1, "tie")),
        *((11, 11, None), (12, 9, None), (13, 11, None), (13, 12, "alive"), (14, 1, None)),
    ],
]
ARRIVAL: list[list[Row]] = [[(1, 10, "a"), (1, 5, "later")], [(2, 1, "b"), (1, 1, "last")]]


@pytest.mark.parametrize(
    ("time", "batches", "holds"),
    [
        ("t", TIMED, {1: (10, "a"), 2: (11, "b2"), 3: (1, "tie"), 12: (10, "b"), 13: (12, "alive")}),
        ("", ARRIVAL, {1: (1, "last"), 2: (1, "b")}),
    ],
    ids=["newer wins, and deletions", "arrival"],
)
def test_the_same_table_either_way(spark, make_sink, ordinary, tmp_path, time, batches, holds):
    sink = make_sink(eventTime=time)
    feed = tmp_path / "feed"
    for number, rows in enumerate(batches):
        sink.batch(number, [sink.rows(rows, seq=100 * number, deleted=[row[2] is None for row in rows])])
        write_rows(sink, feed, number, rows)
        df = spark.read.schema(DDL).parquet(str(feed / f"{number}.parquet"))
        write_batch(df, ordinary, key="k", event_time=time or None, engine="merge", txnAppId="test", txnVersion=number)
    assert sink.latest() == holds
    assert read_by_key(ordinary, "k", "t", "v") == holds
    assert [spark.conf.get(name, None) for name in CONFS] == [None, None, None]


def test_a_query_exactly_once(spark, make_sink, ordinary, tmp_path):
    sink, feed = make_sink(), tmp_path / "feed"
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        df = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(feed))
        writer = write_latest(df, ordinary, key="k", event_time="t", engine="merge", checkpoint=str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    write_rows(sink, feed, 0, ((1, 10, "a"), (2, 10, "b")))
    run()
    # A column that the stream does not have is left alone.
    spark.sql(f"UPDATE delta.`{ordinary}` SET more = 'kept' WHERE k = 2")
    write_rows(sink, feed, 1, ((2, 11, "b2"), (3, 1, "c")))
    run()
    assert read_by_key(ordinary, "k", "t", "v") == {1: (10, "a"), 2: (11, "b2"), 3: (1, "c")}
    assert DeltaTable(ordinary).to_pyarrow_table(filters=[("k", "=", 2)]).column("more").to_pylist() == ["kept"]
    # The process dies after the table's commit and before Spark's: the batch is run again.
    spark.sql(f"DELETE FROM delta.`{ordinary}` WHERE k = 3")
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run()
    assert read_by_key(ordinary, "k", "t", "v").keys() == {1, 2}  # had it been applied again, 3 would be back
    # A row without a key is refused by name, and what was named for Delta is not left behind.
    write_rows(sink, feed, 2, ((None, 1, "no key"),))  # pyright: ignore[reportArgumentType]
    with pytest.raises(StreamingQueryException, match="a row has no key in the column 'k'"):
        run()
    assert [spark.conf.get(name, None) for name in CONFS] == [None, None, None]


def merge(df: DataFrame, path: str, **name: Any) -> None:
    write_batch(df, path, key="k", event_time="t", engine="merge", **name)


def held_back(folder: Path) -> Callable[..., Any]:
    """A function of a column that says when it is reached, and waits until it may go on."""
    started, go = str(folder / "started"), str(folder / "go")

    def wait(value: str) -> str:
        Path(started).touch()
        end = time.monotonic() + 300
        while not Path(go).exists() and time.monotonic() < end:
            time.sleep(0.05)
        return value

    return F.udf(wait, "string", useArrow=False)


def test_the_name_of_a_write_reaches_no_other_write_of_the_session(spark, ordinary, tmp_path):
    """While one thread merges, another one does, and a third write knows nothing of either."""
    second, plain = str(tmp_path / "second"), str(tmp_path / "plain")
    DeltaTable.create(second, DeltaTable(ordinary).schema())
    rows = spark.createDataFrame([(1, 1, "a")], PLAIN).coalesce(1)
    with ThreadPoolExecutor(1) as pool:
        slow = rows.withColumn("v", held_back(tmp_path)("v"))
        first = pool.submit(merge, slow, ordinary, txnAppId="first", txnVersion=5)
        try:
            wait_for((tmp_path / "started").exists)
            during = [spark.conf.get(name, None) for name in CONFS]
            rows.write.format("delta").save(plain)
            merge(rows, second, txnAppId="second", txnVersion=7)
        finally:
            (tmp_path / "go").touch()
        first.result()
    names = ("upstream-first", "upstream-second")
    made = [[DeltaTable(path).transaction_version(name) for name in names] for path in (ordinary, second, plain)]
    assert made == [[5, None], [None, 7], [None, None]]
    assert during == [None, None, None]


def test_names_of_the_user_stay(spark, ordinary):
    given_confs = dict(zip(CONFS, ("mine", "3", '{"job": "nightly"}'), strict=True))
    try:
        for name, value in given_confs.items():
            spark.conf.set(name, value)
        merge(spark.createDataFrame([(1, 1, "a")], PLAIN), ordinary, queryId="query", batchId=0)
        assert {name: spark.conf.get(name, None) for name in CONFS} == given_confs
        user_metadata = json.loads(str(DeltaTable(ordinary).history(1)[0]["userMetadata"]))
        assert user_metadata["job"] == "nightly"
        spark.conf.set(USER_METADATA, "by hand")
        merge(spark.createDataFrame([(1, 1, "a")], PLAIN), ordinary, queryId="query", batchId=1)
        user_metadata = json.loads(str(DeltaTable(ordinary).history(1)[0]["userMetadata"]))
        assert user_metadata["userMetadata"] == "by hand"
    finally:
        for name in CONFS:
            spark.conf.unset(name)


def test_a_batch_that_is_no_repeat_is_refused(spark, ordinary):
    rows = spark.createDataFrame([(1, 1, "a")], PLAIN)
    others = spark.createDataFrame([(2, 1, "lost without this")], PLAIN)

    def apply(df: DataFrame, number: int, *, call: int = 0, offsets: str | None = "aa", deletes: bool = False) -> None:
        df, sink = check_merge(df, ordinary, "k", "t", {}, "v = 'gone'" if deletes else None)
        sink.merge(df, BatchName("query", number, of_query=True, call=call, offsets=offsets))

    apply(rows, 4)
    # Others commit in between.
    for number in range(3):
        write_deltalake(ordinary, pa.table({"t": [1], "v": ["b"], "k": [10 + number], "more": [""]}), mode="append")
    spark.sql(f"DELETE FROM delta.`{ordinary}` WHERE k = 1")
    before = read_by_key(ordinary, "k", "t", "v")
    apply(rows, 4)
    apply(others, 4, offsets=None)  # there is nothing to compare
    assert read_by_key(ordinary, "k", "t", "v") == before
    with pytest.raises(TableError, match=r"batch 4 of this query is in the table .* with other input"):
        apply(others, 4, offsets="bb")
    with pytest.raises(TableError, match="batch 3 comes after batch 4 of the same query") as caught:
        apply(others, 3)
    assert "restore the checkpoint to its state after batch 4" in caught.value.hint
    with pytest.raises(TableError, match="batch 3 comes after batch 4"):
        merge(others, ordinary, queryId="query", batchId=3)
    # Named by Delta's words it is as Delta has it: no number below the last is written.
    merge(others, ordinary, txnAppId="query", txnVersion=3)
    assert read_by_key(ordinary, "k", "t", "v") == before
    apply(rows, 5)
    apply(rows, 5, call=1, deletes=True)
    with pytest.raises(TableError, match=r"writes to the table .* in another order"):
        apply(rows, 5, deletes=True)
    assert read_by_key(ordinary, "k", "t", "v").keys() == before.keys() | {1}


def test_deletions_by_a_condition(spark, ordinary):
    write_deltalake(ordinary, pa.table({"t": [1, 1], "v": ["a", "b"], "k": [1, 2], "more": ["", ""]}), mode="append")
    df = spark.createDataFrame([(1, 2, "gone"), (2, 0, "gone")], "k BIGINT, t BIGINT, v STRING")
    write_batch(
        df, ordinary, key="k", event_time="t", engine="merge", delete_when="v = 'gone'", txnAppId="test", txnVersion=0
    )
    assert read_by_key(ordinary, "k", "t", "v") == {2: (1, "b")}


def test_what_is_refused(spark, make_sink, ordinary, tmp_path):
    df = spark.createDataFrame([(1, 1, "a")], "k BIGINT, t BIGINT, v STRING")
    with pytest.raises(TableError, match="there is no Delta table"):
        write_batch(df, tmp_path / "none", key="k", engine="merge")
    sink = make_sink()
    sink.batch(0, [sink.rows([(1, 1, "a")])])
    with pytest.raises(TableError, match="one of the sink's own"):
        write_batch(df, sink.path, key="k", engine="merge")
    with pytest.raises(SchemaError, match="has no column x"):
        write_batch(df.withColumn("x", df["k"]), ordinary, key="k", engine="merge")
    with pytest.raises(OptionError, match="has no option buckets, metricsLocation"):
        write_batch(df, ordinary, key="k", engine="merge", buckets=4, metrics_location="m")
    with pytest.raises(PySparkException, match="a row has no time"):
        write_batch(
            df.selectExpr("k", "CAST(NULL AS BIGINT) t", "v"), ordinary, key="k", event_time="t", engine="merge"
        )
