import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import SchemaError
from upstream.core.rows.buckets import bucket_of, integers_with_hash, spark_hash

UTC = datetime.timezone.utc
PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
# What `SELECT hash(…)` gives in Spark 4.2.
GOLDEN: list[tuple[str, pa.DataType, Any, int]] = [
    ("int", pa.int32(), 1, -559580957),
    ("long", pa.int64(), 1, -1712319331),
    ("byte", pa.int8(), -3, -1573329414),
    ("boolean", pa.bool_(), True, -559580957),
    ("string", pa.string(), "Spark", 228093765),
    ("string with a tail", pa.string(), "abcdefghijk", 731715327),
    ("large string", pa.large_string(), "abcdefghijk", 731715327),
    ("binary with signed bytes", pa.binary(), b"\xff\x80", -577813652),
    ("double", pa.float64(), 1.5, 1290763749),
    ("float", pa.float32(), 1.5, -221251528),
    ("negative zero", pa.float64(), -0.0, -1670924195),
    ("zero", pa.float64(), 0.0, -1670924195),
    ("NaN", pa.float64(), float("nan"), -1281358385),
    ("short decimal", pa.decimal128(9, 2), decimal.Decimal("1.50"), -2056712946),
    ("long decimal", pa.decimal128(38, 0), decimal.Decimal(-1234567890123456789012), 333635401),
    ("date", pa.date32(), datetime.date(2024, 1, 2), -21057580),
    ("timestamp", pa.timestamp("us", "UTC"), datetime.datetime(2024, 1, 2, 3, 4, 5, 678901, UTC), 1083108272),
    ("struct", PAIR, {"a": 1, "b": "x"}, -1305545736),
    ("null", pa.int32(), None, 42),
]


@pytest.mark.parametrize(("kind", "value", "expected"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN])
def test_golden_values(kind, value, expected):
    # Neighbours of other lengths, a slice and several chunks must not matter.
    column = pa.chunked_array([pa.array([None, value], kind), pa.array([value], kind)])
    assert spark_hash([column]).tolist() == [42, expected, expected]
    assert spark_hash([pa.array([None, value, None], kind)[1:2]]).tolist() == [expected]


def test_columns_are_chained():
    assert spark_hash([pa.array(["é漢"]), pa.array([7], pa.int16())]).tolist() == [-1232248742]


def test_no_rows():
    assert len(bucket_of([pa.array([], pa.string())], 16)) == 0
    assert len(bucket_of([pa.chunked_array([], pa.decimal128(30, 2))], 16)) == 0


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32()), pa.duration("us"), pa.uint32()]
)
def test_other_types_are_refused(kind):
    with pytest.raises(SchemaError, match="cannot be put into buckets"):
        bucket_of([pa.array([None], kind)], 16)


@given(st.lists(st.binary(max_size=40)), st.integers(1, 300))
def test_each_row_alone_hashes_as_among_others(keys, buckets):
    together = bucket_of([pa.array(keys, pa.binary())], buckets)
    assert together.tolist() == [int(bucket_of([pa.array([key])], buckets)[0]) for key in keys]
    assert ((together >= 0) & (together < buckets)).all()


SPARK_TYPES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(9,2)": st.decimals(-9999999, 9999999, places=2),
    "decimal(18,3)": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: decimal.Decimal(n).scaleb(-3)),
    "decimal(38,0)": st.integers(-(10**38) + 1, 10**38 - 1).map(decimal.Decimal),
    "decimal(20,0)": st.sampled_from(
        [s * (2**b) + d for b in range(0, 65, 8) for s in (1, -1) for d in (-1, 0, 1)]
    ).map(decimal.Decimal),
    "string": st.text(max_size=20),
    "binary": st.binary(max_size=20),
    "date": st.dates(),
    "timestamp": st.datetimes(datetime.datetime(1900, 1, 1), timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "struct<a:int,b:string>": st.tuples(st.none() | st.integers(0, 9), st.none() | st.text(max_size=5)),
}


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_integers_are_found_by_their_hash(wanted):
    assert spark_hash([pa.array(integers_with_hash(wanted), pa.int32())]).tolist() == wanted


@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_groups_are_dealt_out_to_tasks_in_turn(spark, tasks):
    from pyspark.sql import functions as F

    slots = [(slot,) for slot in integers_with_hash(range(16))]
    frame = spark.createDataFrame(slots, "slot INT").repartition(tasks, "slot")
    found = dict(frame.select("slot", F.spark_partition_id()).collect())
    assert [found[slot] for (slot,) in slots] == [number % tasks for number in range(16)]


def test_equal_to_sparks_hash(spark):
    from pyspark.sql import functions as F

    rng = np.random.default_rng(7)
    columns: list[list[Any]] = []
    for strategy in SPARK_TYPES.values():
        values = _examples(strategy, 60)
        columns.append([None if draw < 0.1 else values[int(draw * 1e6) % len(values)] for draw in rng.random(500)])
    ddl = ", ".join(f"c{i} {kind}" for i, kind in enumerate(SPARK_TYPES))
    names = [f"c{i}" for i in range(len(SPARK_TYPES))]
    frame = spark.createDataFrame(list(zip(*columns, strict=True)), ddl)
    hashes = [F.hash(name).alias("h_" + name) for name in names]
    table = frame.select(
        "*", *hashes, F.hash(*names).alias("all"), F.expr("pmod(hash(c11, c4), 16)").alias("bucket")
    ).toArrow()
    for name, kind in zip(names, SPARK_TYPES, strict=True):
        assert spark_hash([table[name]]).tolist() == table["h_" + name].to_pylist(), kind
    assert spark_hash([table[name] for name in names]).tolist() == table["all"].to_pylist()
    assert bucket_of([table["c11"], table["c4"]], 16).tolist() == table["bucket"].to_pylist()


def _examples(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    from hypothesis import Phase, settings

    found: list[Any] = []

    @settings(max_examples=count, database=None, derandomize=True, phases=[Phase.generate], deadline=None)
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found
