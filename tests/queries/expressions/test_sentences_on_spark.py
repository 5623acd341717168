"""SQL text drawn at random, read by the query language and by Spark SQL: equal in type and value, or an error of both.

What one of the two refuses before it looks at a row is left out: there is no value to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from upstream.conf.errors import QueryRefusedError, SchemaError
from upstream.queries.expressions.compile import compiled
from upstream.queries.expressions.kinds import spark_name as type_name
from upstream.queries.expressions.nodes import Expression
from upstream.queries.language import Catalog, bind
from upstream.queries.relations.nodes import Project, Stream, walk

from .beside_spark import compare, interpreted_session
from .pairs import Pair
from .sentences import SCHEMA, Sentences, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = Catalog().with_stream(Stream("given", SCHEMA, event_time="ts1"))
_ROWS = 16


@pytest.fixture(scope="module")
def interpreted(spark: SparkSession) -> Iterator[SparkSession]:
    with interpreted_session(spark) as session:
        yield session


def _bound(sql: str) -> Expression:
    query = bind(f"SELECT {sql} AS c FROM given [NOW]", _CATALOG)
    return dict(next(each for each in walk(query.plan) if isinstance(each, Project)).columns)["c"]


def _pairs(spark: SparkSession, sentences: Sequence[str]) -> list[Pair]:
    """The sentences that the query language takes, and Spark, too."""
    from pyspark.errors import PySparkException

    shape = ", ".join(f"CAST(NULL AS {type_name(each.type)}) AS {each.name}" for each in SCHEMA)
    found: list[Pair] = []
    for sql in sentences:
        try:
            made = _bound(sql)
            compiled(made, SCHEMA)
            spark.sql(f"SELECT {sql} AS c FROM (SELECT {shape})")
        except (QueryRefusedError, SchemaError, PySparkException):
            continue
        found.append(Pair(sql, made))
    return found


def test_sentences_mean_what_they_mean_in_spark(interpreted: SparkSession) -> None:
    pairs = _pairs(interpreted, [*Sentences(1).some(90, 1), *Sentences(2).some(60, 2)])
    assert len(pairs) > 90, "the language refuses too much"
    values, failures = compare(interpreted, pairs, rows(_ROWS, 1), failures=6)
    assert values > 1_000
    assert failures >= 4


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_more_sentences(interpreted: SparkSession, seed: int) -> None:
    pairs = _pairs(interpreted, Sentences(seed).some(300, 1 + seed % 3))
    compare(interpreted, pairs, rows(30, seed), failures=20)
