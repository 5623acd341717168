"""Calls of constants become constants, and no value and no failure changes."""

import random
from contextlib import suppress
from datetime import date, datetime
from typing import cast

import polars as pl
import pyarrow as pa
import pytest

from upstream.conf.errors import UpstreamError
from upstream.expressions.bind import OptionText, bind_value
from upstream.expressions.compile import compiled_columns, folded
from upstream.expressions.nodes import Call, Constant, Expression, fields, substituted, walk

from .sentences import SCHEMA, Sentences, rows


def _bound(sql: str, schema: pa.Schema = SCHEMA) -> Expression:
    return bind_value(OptionText(sql, "x"), schema)


def _tried(expression: Expression, frame: pl.DataFrame) -> tuple[pl.Series, list[bool]]:
    values, failed = compiled_columns([("x", expression)], SCHEMA).tried(frame)
    return values["x"], [*failed.get("x", [False] * frame.height)]


def _holds(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_random_expressions_have_the_same_values_and_failures(seed):
    table, draw, sentences, simpler = rows(12, seed), random.Random(seed), Sentences(seed), 0
    frame = pl.DataFrame(pl.from_arrow(table))
    for sql in sentences.some(400, 3):
        with suppress(UpstreamError):
            expression = _bound(sql)
            names = [each for each in sorted(fields(expression)) if draw.random() < 0.7]
            row = table.slice(draw.randrange(len(table)), 1).to_pylist()[0]
            constants = {each: Constant(row[each], SCHEMA.field(each).type) for each in names}
            given = substituted(expression, {k: v for k, v in constants.items() if _holds(v.type)})
            values, failed = _tried(given, frame)
            made = folded(given)
            again, failed_again = _tried(made, frame)
            assert made.type == given.type
            assert failed_again == failed, sql
            assert again.equals(values, null_equal=True), sql
            assert folded(made) == made or "nan" in str(made), sql
            simpler += made != given
    assert simpler > 100


def test_a_constant_has_sparks_value():
    assert _bound("CAST(0.5 AS DOUBLE)") != folded(_bound("CAST(0.5 AS DOUBLE)")) == Constant(0.5, pa.float64())
    assert folded(_bound("'a' || upper('b')")) == Constant("aB", pa.string())
    assert folded(_bound("DATE '2024-01-31' + INTERVAL 1 MONTH")) == Constant(date(2024, 2, 29), pa.date32())
    moment = folded(_bound("TIMESTAMP '2024-01-01 12:00:00+01:00'"))
    assert moment == Constant(datetime(2024, 1, 1, 11), pa.timestamp("us", "UTC"))
    assert str(moment) == "TIMESTAMP '2024-01-01 11:00:00'"
    assert folded(_bound("TRY_CAST('x' AS INT)")) == Constant(None, pa.int32())


@pytest.mark.parametrize("sql", ["1 / 0", "CAST('x' AS INT)", "2147483647 + 1", "CAST('NaN' AS DOUBLE)", "array(1, 2)"])
def test_what_fails_or_equals_another_stays(sql):
    made = folded(_bound(sql))
    assert isinstance(made, Call)
    assert made.function == cast("Call", _bound(sql)).function


def test_a_failure_behind_a_condition_fails_in_its_rows_only():
    expression = _bound("CASE WHEN i1 = 1 + 1 THEN 1 / 0 ELSE 2 * 3 END")
    made = folded(expression)
    assert Constant(2, pa.int32()) in walk(made)
    assert Constant(6.0, pa.float64()) in walk(made)
    frame = pl.DataFrame(pl.from_arrow(rows(1, 0)))
    frame = pl.concat([frame.with_columns(i1=pl.lit(each, pl.Int32)) for each in (1, 2)])
    assert _tried(made, frame)[1] == [False, True]


def test_functions_in_python_and_long_texts_are_not_evaluated():
    python = Call("python nowhere:nothing", (Constant(1, pa.int32()),), pa.int32())
    assert folded(python) == python
    assert folded(_bound("repeat('x', 100)")) == Constant("x" * 100, pa.string())
    assert folded(_bound("repeat('x', 100000)")) == _bound("repeat('x', 100000)")
