"""Evaluate expressions by Spark and by us, and compare: types, values, and the rows in which they are errors.

Two differences are permitted, and looked for where values differ:

- Java writes a floating-point number otherwise. Which digits it writes depends on its version: before 19 often one more
  than is needed. Its powers, logarithms and functions of angles may differ in the last bit.
- Spark's optimizer leaves a part out, so an error in it does not happen; or it evaluates the first operand of BETWEEN
  and NULLIF in all rows, so an error in it happens where none needs it. Without the optimizer's rules, Spark gives
  what we give.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from upstream.conf.errors import QueryError
from upstream.expressions.compile import CompiledColumns, compiled, compiled_columns
from upstream.expressions.kinds import DOUBLE, FLOAT, LOCAL_TIMESTAMP, TEXT, TIMESTAMP, is_decimal
from upstream.expressions.nodes import Call, Expression, walk
from upstream.expressions.types import cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Pair", "compare", "fails", "listed", "settings", "without_rules"]

_AT_ONCE = 60
_OUR_LIMITS = ("base 64", "not UTF-8", "outside the years", "without a date", "fits no BIGINT")
"""Errors where Spark has a value: years that the tables cannot hold, the date of today, a DIV that wraps around."""
_RULES = (
    *("BooleanSimplification", "ConstantFolding", "LikeSimplification", "NullDownPropagation", "NullPropagation"),
    *("OptimizeIn", "PushFoldableIntoBranches", "ReorderAssociativeOperator", "ReplaceNullWithFalseInPredicate"),
    *("SimplifyBinaryComparison", "SimplifyCasts", "SimplifyConditionals", "SimplifyConditionalsInPredicate"),
    "UnwrapCastInBinaryComparison",
)
_JAVA = {"power": "pow", "exp": "exp", "ln": "log", "log10": "log10"}
_JAVA |= {
    name: name for name in ("cbrt", "expm1", "hypot", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2")
}


@dataclasses.dataclass(frozen=True)
class Pair:
    """One expression: as Spark reads it, and as we do."""

    sql: str
    ours: Expression


@contextmanager
def without_rules(spark: SparkSession) -> Iterator[None]:
    """Spark's optimizer without the rules that leave parts of expressions out."""
    rules = ",".join(f"org.apache.spark.sql.catalyst.optimizer.{each}" for each in _RULES)
    with settings(spark, {"spark.sql.optimizer.excludedRules": rules, "spark.sql.alwaysInlineCommonExpr": "true"}):
        yield


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    """Set configurations of a session for a while."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, str(value))


def listed(texts: str) -> list[str]:
    """Expressions with semicolons between them."""
    return " ".join(texts.split()).split("; ")


class _Ours:
    """What we make of an expression: the values, and the rows in which it is an error."""

    def __init__(self, pair: Pair, frame: pl.DataFrame, schema: pa.Schema) -> None:
        self.pair = pair
        evaluated = compiled(pair.ours, schema)
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


def compare(spark: SparkSession, pairs: Sequence[Pair], table: pa.Table, failures: int) -> list[int]:
    """Compare all values, and up to so many failures. Return how many of each there were."""
    return _Comparison(spark, pairs, table).run(failures)


class _Comparison:
    def __init__(self, spark: SparkSession, pairs: Sequence[Pair], table: pa.Table) -> None:
        self._spark, self._table = spark, table
        self._frame = pl.DataFrame(pl.from_arrow(table))
        self._ours = [_Ours(pair, self._frame, table.schema) for pair in pairs]
        local = [each.name for each in table.schema if each.type == LOCAL_TIMESTAMP]
        given = spark.createDataFrame(table).coalesce(1)
        given.withColumns({name: given[name].cast("timestamp_ntz") for name in local}).createOrReplaceTempView("given")

    def run(self, failures: int) -> list[int]:
        some = [each for each in self._ours if each.values]
        values = sum(self._values(some[at : at + _AT_ONCE]) for at in range(0, len(some), _AT_ONCE))
        failing = [(each.pair.sql, each.failed[0]) for each in self._ours if each.failed]
        chosen = failing[:: max(1, len(failing) // failures)]
        for sql, row in chosen:
            if not fails(self._spark, sql, row):
                with without_rules(self._spark):
                    assert fails(self._spark, sql, row), f"{sql} has a value in Spark for {self._given(sql, row)}"
        return [values, len(chosen)]

    def _values(self, some: Sequence[_Ours]) -> int:
        """Compare the values of some expressions at once; of each by itself if one is an error."""
        try:
            found = self._sparks(some)
        except _errors():
            if len(some) > 1:
                half = len(some) // 2
                return self._values(some[:half]) + self._values(some[half:])
            with without_rules(self._spark):
                found = self._sparks(some)
        order = found.column("row").to_pylist()
        for at, each in enumerate(some):
            column = found.column(f"c{at}")
            if each.pair.ours.type == TIMESTAMP and pa.types.is_timestamp(column.type) and column.type.tz is not None:
                column = column.cast(TIMESTAMP)  # Spark names the session's zone
            assert column.type == each.pair.ours.type, each.pair.sql
            sparks = dict(zip(order, column.to_pylist(), strict=True))
            wrong = [row for row, value in each.values.items() if not _same(value, sparks[row])]
            if wrong:
                self._judge(each, sparks, wrong)
        return sum(len(each.values) for each in some)

    def _sparks(self, some: Sequence[_Ours]) -> pa.Table:
        columns = [_guarded(each.pair.sql, each.values, self._table.num_rows) for each in some]
        named = ", ".join(f"{column} AS c{at}" for at, column in enumerate(columns))
        return self._spark.sql(f"SELECT row, {named} FROM given").toArrow()

    def _judge(self, ours: _Ours, sparks: dict[int, Any], rows: Sequence[int]) -> None:
        """Fail if a difference is none of the permitted ones."""
        sql = ours.pair.sql
        with without_rules(self._spark):
            found = self._sparks([ours])
        plain = dict(zip(found.column("row").to_pylist(), found.column("c0").to_pylist(), strict=True))
        for row in rows:
            value = ours.values[row]
            permitted = _same(value, plain[row]) or self._otherwise_in_java(ours.pair.ours, row)
            assert permitted, f"{sql} of {self._given(sql, row)}: ours {value!r}, Spark's {sparks[row]!r}"

    def _given(self, sql: str, row: int) -> dict[str, Any]:
        return {name: value for name, value in self._table.slice(row, 1).to_pylist()[0].items() if name in sql}

    def _otherwise_in_java(self, expression: Expression, row: int) -> bool:
        """Whether a part is a number that Java writes otherwise, or a function that Java computes otherwise."""
        frame = self._frame.filter(pl.col("row") == row)
        java = self._spark._jvm.java.lang  # pyright: ignore[reportOptionalMemberAccess] Spark runs
        for part in walk(expression):
            if not isinstance(part, Call):
                continue
            written = part.type == TEXT or is_decimal(part.type)
            if part.function.removeprefix("try_") == "cast" and part.arguments[0].type in (FLOAT, DOUBLE) and written:
                number, text = _parts(self._table.schema, frame, [part.arguments[0], cast(part.arguments[0], TEXT)])
                single = part.arguments[0].type == FLOAT and part.type == TEXT
                written_by = java.Float.toString if single else java.Double.toString
                if number is not None and text != written_by(number):
                    return True
            if part.function in _JAVA:
                *numbers, found = _parts(self._table.schema, frame, [*part.arguments, part])
                if None in numbers:
                    continue
                # Spark takes one or the other. The processor's Math may differ from StrictMath in the last bit.
                made = [getattr(each, _JAVA[part.function])(*numbers) for each in (java.StrictMath, java.Math)]
                if not all(_same(found, each) for each in made):
                    assert all(_same(found, each) or math.isclose(found, each, rel_tol=1e-15) for each in made)
                    return True
        return False


def _parts(schema: pa.Schema, frame: pl.DataFrame, parts: Sequence[Expression]) -> list[Any]:
    """Parts of an expression in the only row; null where they fail."""
    columns = compiled_columns([(str(at), each) for at, each in enumerate(parts)], schema)
    return list(columns._rows(frame).select(columns._values).collect().row(0))


def _same(ours: Any, sparks: Any) -> bool:
    if not isinstance(ours, float) or not isinstance(sparks, float):
        return ours == sparks
    if math.isnan(ours) or math.isnan(sparks):
        return math.isnan(ours) and math.isnan(sparks)
    return ours == sparks and math.copysign(1, ours) == math.copysign(1, sparks)


def fails(spark: SparkSession, sql: str, row: int) -> bool:
    """Whether Spark has an error, and not one of a query that it does not take."""
    try:
        spark.sql(f"SELECT {sql} FROM given WHERE row = {row}").toArrow()
    except _errors() as error:
        return type(error).__name__ not in ("AnalysisException", "ParseException")
    return False


def _errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError


def _guarded(sql: str, values: dict[int, Any], rows: int) -> str:
    """The expression for the rows in which it has a value."""
    if len(values) == rows:
        return sql
    return f"CASE WHEN row IN ({', '.join(map(str, values))}) THEN {sql} END"
