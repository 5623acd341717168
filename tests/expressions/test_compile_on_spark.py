"""SQL text drawn at random, read by the query language and by Spark SQL: equal in type and value, or an error of both.

What one of the two refuses before it looks at a row is left out: there is no value to compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from upstream.conf.errors import QueryRefusedError, SchemaError
from upstream.expressions.compile import compiled
from upstream.expressions.kinds import spark_name as type_name
from upstream.expressions.nodes import Call, Expression, walk
from upstream.language import Catalog, bind
from upstream.operators.relations.plan.nodes import Project, Stream
from upstream.operators.relations.plan.nodes import walk as walk_plan

from .beside_spark import Pair, compare, fails, without_rules
from .sentences import SCHEMA, Sentences, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = Catalog().with_stream(Stream("given", SCHEMA, event_time="ts1"))


def _bound(sql: str) -> Expression:
    query = bind(f"SELECT {sql} AS c FROM given [NOW]", _CATALOG)
    return dict(next(each for each in walk_plan(query.plan) if isinstance(each, Project)).columns)["c"]


def _functions(expression: Expression) -> set[str]:
    return {each.function for each in walk(expression) if isinstance(each, Call)}


def _ours(sentences: Iterable[str], times: int = 1_000_000) -> Iterator[Pair]:
    """The sentences that the query language takes, until each of their functions has come so often."""
    seen: Counter[str] = Counter()
    for sql in sentences:
        try:
            made = _bound(sql)
            if all(seen[each] >= times for each in _functions(made)):
                continue
            compiled(made, SCHEMA)
        except (QueryRefusedError, SchemaError):
            continue
        seen.update(_functions(made))
        yield Pair(sql, made)


def _of_both(spark: SparkSession, pairs: Iterable[Pair]) -> list[Pair]:
    """Those that Spark takes, too."""
    from pyspark.errors import PySparkException

    shape = ", ".join(f"CAST(NULL AS {type_name(each.type)}) AS {each.name}" for each in SCHEMA)
    found: list[Pair] = []
    for pair in pairs:
        try:
            spark.sql(f"SELECT {pair.sql} AS c FROM (SELECT {shape})")
        except PySparkException:
            continue
        found.append(pair)
    return found


def test_every_function_and_cast_is_that_of_spark(interpreted):
    sentences = Sentences(1)
    pairs = _of_both(interpreted, [*_ours(sentences.plain(4_000), times=3), *_ours(sentences.casts())])
    functions = set[str]().union(*(_functions(each.ours) for each in pairs))
    assert len(functions) > 160, "the sentences have lost functions"
    values, failures = compare(interpreted, pairs, rows(40, 1), failures=20)
    assert values > 6_000
    assert failures >= 20


def test_nested_expressions_are_those_of_spark(interpreted):
    pairs = _of_both(interpreted, _ours([*Sentences(2).some(90, 2), *Sentences(3).some(90, 3)]))
    assert len(pairs) > 60, "the language refuses too much"
    values, failures = compare(interpreted, pairs, rows(40, 2), failures=10)
    assert values > 1_500
    assert failures >= 10


def test_spark_leaves_out_errors_that_its_optimizer_does_not_need(interpreted):
    """So a comparison may take the optimizer's rules away: with them, an error depends on what is beside it."""
    interpreted.createDataFrame(rows(1, 1)).coalesce(1).createOrReplaceTempView("given")
    sql = "(1 / row > 0 OR dt1 <=> dt1)"
    assert not fails(interpreted, sql, 0)
    with without_rules(interpreted):
        assert fails(interpreted, sql, 0)
    assert not fails(interpreted, sql, 0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_more(interpreted, seed):
    pairs = _of_both(interpreted, _ours(Sentences(seed).some(400, 1 + seed % 4)))
    compare(interpreted, pairs, rows(60, seed), failures=20)
