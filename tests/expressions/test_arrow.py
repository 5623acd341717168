"""Conditions over Arrow batches mean what they mean to Spark; what might not is left to Spark."""

import math
import pickle

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps

from upstream.expressions.bind import certain_condition

NAN = math.nan
ROWS = {
    "i": pa.array([1, 2, 3, None, -5], pa.int32()),
    "b": pa.array([1, 2**53 + 1, 3, None, -5], pa.int64()),
    "f": pa.array([0.1, 2.0, NAN, None, -0.0], pa.float32()),
    "d": pa.array([0.1, 2.0, NAN, None, -0.0], pa.float64()),
    "s": pa.array(["a", "b", "", None, "é"]),
    "yes": pa.array([True, False, True, None, False]),
    "Mixed": pa.array([1, 2, 3, 4, 5]),
    "day": pa.array([0, 1, 2, None, 4], pa.date32()),
    "money": pa.array([1, 2, 3, None, 5], pa.decimal128(10, 2)),
    "part": pa.array([{"x": 1}] * 5),
}
TABLE = pa.RecordBatch.from_pydict(ROWS)
T, F, N = True, False, None

MOVED = {
    "i > 1": [F, T, T, N, F],
    "1 < i": [F, T, T, N, F],
    "i >= 2 AND i <= 2": [F, T, F, N, F],
    "NOT (i = 2)": [T, F, T, N, T],
    "i <> 2": [T, F, T, N, T],
    "i != 2": [T, F, T, N, T],
    "i == -5": [F, F, F, N, T],
    "b > 9007199254740992": [F, T, F, N, F],
    "i IS NULL": [F, F, F, T, F],
    "i IS NOT NULL": [T, T, T, F, T],
    "i IS NULL OR i > 1": [F, T, T, T, F],
    "i > 1 AND s IS NULL": [F, F, F, N, F],
    "i > 1 OR yes": [T, T, T, N, F],
    "i IN (1, 3)": [T, F, T, N, F],
    "i NOT IN (1, 3)": [F, T, F, N, T],
    "i BETWEEN 1 AND 2": [T, T, F, N, F],
    "i NOT BETWEEN 1 AND 2": [F, F, T, N, T],
    "d > 1": [F, T, T, N, F],
    "d >= 0": [T, T, T, N, T],
    "d < 1": [T, F, F, N, T],
    "d = 0": [F, F, F, N, T],
    "d = 0.1": [T, F, F, N, F],
    "f = 0.1": [F, F, F, N, F],
    "f > 1e-3": [T, T, T, N, F],
    "d <> 2": [T, F, T, N, T],
    "s = 'a'": [T, F, F, N, F],
    "s > 'b'": [F, F, F, N, T],
    "s IN ('a', '')": [T, F, T, N, F],
    "yes": [T, F, T, N, F],
    "NOT yes": [F, T, F, N, T],
    "yes = false": [F, T, F, N, T],
    "mixed = 4": [F, F, F, T, F],
    "`I` = 2": [F, T, F, N, F],
    "day IS NULL": [F, F, F, T, F],
    "money IS NOT NULL AND i < 3": [T, T, F, F, T],
    "part.x = 1": [T, T, T, T, T],
}


@pytest.mark.parametrize("text", MOVED)
def test_a_condition_on_each_row(text):
    condition = certain_condition(text, TABLE.schema)
    assert condition is not None
    assert pickle.loads(dumps(condition))(TABLE).to_pylist() == MOVED[text]


LEFT = [
    "i + 1 > 2",  # may overflow, which is an error in Spark
    "i > 1.5",  # as decimals
    "i > '1'",  # by a cast
    "s > 1",
    "f > 16777217",  # as FLOAT
    "d > i",
    "day > '2024-01-01'",
    "money > 1",
    "upper(s) = 'A'",
    "i > 1 AND rand() > 0.5",
    "i = NULL",
    "i <=> NULL",
    "yes IS TRUE",
    "yes > false",
    "s LIKE 'a%'",
    's = "a"',  # a column, if the session says so
    r"s = 'a\n'",  # as it is written, if the session says so
    "i",
    "other = 1",
    "i > 99999999999999999999",
    "i IN (SELECT 1)",
    "i IN (1, NULL)",
    "i >",
    "",
]


@pytest.mark.parametrize("text", LEFT)
def test_what_could_differ_is_left_to_spark(text):
    assert certain_condition(text, TABLE.schema) is None


def test_a_name_that_two_columns_have_is_left_to_spark():
    schema = pa.schema([("a", pa.int64()), ("A", pa.int64())])
    assert certain_condition("a > 1", schema) is None


def test_spark_sees_the_same(spark):
    from pyspark.sql import functions as F

    df = spark.createDataFrame(pa.table(ROWS).append_column("row", pa.array(range(5))))
    seen = df.select("row", *[F.expr(text).alias(str(at)) for at, text in enumerate(MOVED)]).orderBy("row").collect()
    for at, (text, expected) in enumerate(MOVED.items()):
        assert [row[str(at)] for row in seen] == expected, text
