"""Expressions drawn at random, evaluated by Spark and by us: equal in type and value, or an error of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from upstream.conf.errors import QueryError
from upstream.queries.expressions.compile import CompiledColumns, compiled

from .pairs import SCHEMA, Drawn, Pair, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS, _AT_ONCE = 40, 60
_OUR_LIMITS = ("outside the years", "without a date", "fits no BIGINT")
"""Errors where Spark has a value: years that the tables cannot hold, the date of today, a DIV that wraps around."""


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark without generated code, which takes seconds to compile for wide selects."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.sparkContext.setLogLevel("WARN")
    for name, value in before.items():
        spark.conf.set(name, str(value))


class _Ours:
    """What we make of an expression: the values, and the rows in which it is an error."""

    def __init__(self, pair: Pair, frame: pl.DataFrame) -> None:
        evaluated = compiled(pair.ours, SCHEMA)
        self.failed: list[int] = []
        self.values: dict[int, Any] = {}
        kept = frame
        if evaluated._columns._failures:
            kept = self._without_failures(evaluated._columns, frame)
            for row in self.failed[:1]:
                with pytest.raises(QueryError):
                    evaluated.evaluate(frame.filter(pl.col("row") == row))
        if kept.height:
            found = evaluated.evaluate(kept).to_arrow().cast(pair.ours.type).to_pylist()
            self.values = dict(zip(kept["row"].to_list(), found, strict=True))

    def _without_failures(self, columns: CompiledColumns, frame: pl.DataFrame) -> pl.DataFrame:
        marks = [each.where.alias(str(at)) for at, each in enumerate(columns._failures)]
        found = columns._rows(frame).select("row", *marks).collect()
        ours = [
            str(at) for at, each in enumerate(columns._failures) if any(limit in each.reason for limit in _OUR_LIMITS)
        ]
        limited = found.select(pl.any_horizontal(pl.lit(value=False), *ours)).to_series()
        failed = found.select(pl.any_horizontal(pl.exclude("row"))).to_series()
        self.failed = found["row"].filter(failed & ~limited).to_list()
        return frame.filter(~failed)


def _same(ours: Any, sparks: Any, sql: str) -> bool:
    if not isinstance(ours, float) or not isinstance(sparks, float):
        return ours == sparks
    if math.isnan(ours) or math.isnan(sparks):
        return math.isnan(ours) and math.isnan(sparks)
    if "power(" in sql and not math.isinf(ours):  # Java's and C's differ in the last bit
        return math.isclose(ours, sparks, rel_tol=1e-15)
    return ours == sparks and math.copysign(1, ours) == math.copysign(1, sparks)


def _compare(spark: SparkSession, pairs: Sequence[Pair], table: pa.Table, failures: int) -> list[int]:
    """Compare all values, and up to so many failures. Return how many of each there were."""
    frame = pl.DataFrame(pl.from_arrow(table))
    ours = [_Ours(pair, frame) for pair in pairs]
    spark.createDataFrame(table).coalesce(1).createOrReplaceTempView("given")
    counts = [0, 0]
    for start in range(0, len(pairs), _AT_ONCE):
        some = [at for at in range(start, min(start + _AT_ONCE, len(pairs))) if ours[at].values]
        columns = [_guarded(pairs[at].sql, ours[at].values, table.num_rows) + f" AS c{at}" for at in some]
        found = spark.sql(f"SELECT row, {', '.join(columns)} FROM given").toArrow()
        order = found.column("row").to_pylist()
        for at in some:
            sql, column = pairs[at].sql, found.column(f"c{at}")
            assert column.type == pairs[at].ours.type, sql
            sparks = dict(zip(order, column.to_pylist(), strict=True))
            for row, value in ours[at].values.items():
                given = {name: value for name, value in table.slice(row, 1).to_pylist()[0].items() if name in sql}
                assert _same(value, sparks[row], sql), f"{sql} of {given}: ours {value!r}, Spark's {sparks[row]!r}"
                counts[0] += 1
    failing = [(pair.sql, each.failed[0]) for pair, each in zip(pairs, ours, strict=True) if each.failed]
    for sql, row in failing[:: max(1, len(failing) // failures)]:
        assert _fails(spark, sql, row), f"{sql} has a value in Spark for {table.slice(row, 1).to_pylist()[0]}"
        counts[1] += 1
    return counts


def _fails(spark: SparkSession, sql: str, row: int) -> bool:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        spark.sql(f"SELECT {sql} FROM given WHERE row = {row}").toArrow()
    except (PySparkException, Py4JJavaError) as error:
        return type(error).__name__ not in ("AnalysisException", "ParseException")
    return False


def _guarded(sql: str, values: dict[int, Any], rows_: int) -> str:
    """The expression for the rows in which it has a value."""
    if len(values) == rows_:
        return sql
    return f"CASE WHEN row IN ({', '.join(map(str, values))}) THEN {sql} END"


def test_every_function_and_cast_is_that_of_spark(interpreted: SparkSession) -> None:
    values, failures = _compare(interpreted, Drawn(1).every(), rows(_ROWS, 1), failures=20)
    assert values > 6_000
    assert failures >= 20


def test_nested_expressions_are_those_of_spark(interpreted: SparkSession) -> None:
    values, failures = _compare(interpreted, Drawn(2).pairs(80, 3), rows(_ROWS, 2), failures=10)
    assert values > 2_000
    assert failures >= 10


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_more(interpreted: SparkSession, seed: int) -> None:
    _compare(interpreted, Drawn(seed).pairs(300, 1 + seed % 4), rows(60, seed), failures=20)
