"""Expressions drawn at random, evaluated by Spark and by us: equal in type and value, or an error of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from .beside_spark import compare, fails, interpreted_session, without_rules
from .pairs import Drawn, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 40


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[SparkSession]:
    with interpreted_session(spark) as session:
        yield session


def test_every_function_and_cast_is_that_of_spark(interpreted: SparkSession) -> None:
    values, failures = compare(interpreted, Drawn(1).every(), rows(_ROWS, 1), failures=20)
    assert values > 6_000
    assert failures >= 20


def test_nested_expressions_are_those_of_spark(interpreted: SparkSession) -> None:
    values, failures = compare(interpreted, Drawn(2).pairs(80, 3), rows(_ROWS, 2), failures=10)
    assert values > 2_000
    assert failures >= 10


def test_spark_leaves_out_errors_that_its_optimizer_does_not_need(interpreted: SparkSession) -> None:
    """So a comparison may take the optimizer's rules away: with them, an error depends on what is beside it."""
    interpreted.createDataFrame(rows(1, 1)).coalesce(1).createOrReplaceTempView("given")
    sql = "(1 / row > 0 OR dt1 <=> dt1)"
    assert not fails(interpreted, sql, 0)
    with without_rules(interpreted):
        assert fails(interpreted, sql, 0)
    assert not fails(interpreted, sql, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_more(interpreted: SparkSession, seed: int) -> None:
    compare(interpreted, Drawn(seed).pairs(300, 1 + seed % 4), rows(60, seed), failures=20)
