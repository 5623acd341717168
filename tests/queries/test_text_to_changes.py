"""Queries from their text to their changes: read, bound, and evaluated with expressions as Spark has them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from kit.continuous import BUSES, CATALOG, DOMAINS, FORMS, QUOTE, REQUESTS, TRADE, bound

from upstream.conf.errors import QueryError
from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.operator import Computed
from upstream.queries.expressions.compile import compiled
from upstream.queries.expressions.nodes import Expression, fields
from upstream.queries.relations.nodes import Stream, walk

_START = datetime(2024, 1, 1, tzinfo=timezone.utc)
_LATER = int((_START + timedelta(minutes=5)).timestamp()) * 1_000_000
_AT = [_START + timedelta(seconds=at) for at in range(4)]
_ROWS = {
    "trade": pa.table([["a", "b", "a"], [4.0, 5.0, 2.0], [1, 2, 3], _AT[1:]], schema=TRADE.schema),
    "quote": pa.table([["a", "b"], [4.0, 5.0], _AT[1:3]], schema=QUOTE.schema),
    "buses": pa.table([["v", "w"], ["r", "r"], [1.0, 20.0], _AT[1:3]], schema=BUSES.schema),
    "Requests": pa.table([[1], ["st"], ["x"], _AT[:1]], schema=REQUESTS.schema),
    "Domains": pa.table([["st"], ["k"]], schema=DOMAINS.schema),
}


def _compile(expression: Expression, schema: pa.Schema) -> Computed:
    return Computed(compiled(expression, schema).evaluate, fields(expression), expression.type)


def _changes(sql: str) -> pl.DataFrame:
    plan = bound(sql, CATALOG).plan
    names = {each.name for each in walk(plan) if isinstance(each, Stream)}
    evaluation = Evaluation(DictStore(), _compile)
    evaluation.add("q", plan)
    given = {name: pl.DataFrame(pl.from_arrow(_ROWS[name])) for name in names}
    outcome = evaluation.step(given, low_watermark=_LATER)
    for error in outcome.failed.values():
        raise error
    changes = outcome.changes["q"]
    assert changes.columns[: len(plan.schema.names)] == plan.schema.names
    for name, values in zip(plan.schema.names, changes.get_columns(), strict=False):
        assert values.to_arrow().cast(plan.schema.field(name).type).type == plan.schema.field(name).type
    return changes


@pytest.mark.parametrize("sql", FORMS)
def test_each_form_is_evaluated(sql: str) -> None:
    _changes(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT CASE WHEN px > 3 THEN upper(sym) ELSE 'x' END || n AS c FROM trade", ["A1", "B2", "x3"]),
        ("SELECT n / 2 AS h FROM trade WHERE sym LIKE 'a%' AND n BETWEEN 1 AND 3", [0.5, 1.5]),
        (
            "SELECT date_trunc('MINUTE', t) - INTERVAL '1' HOUR AS m FROM trade WHERE n = 2",
            [_START - timedelta(hours=1)],
        ),
        ("SELECT TRY_CAST(sym AS INT) AS i, n FROM trade WHERE px IN (4.0, 5.0)", [None, None]),
        ("SELECT CAST(n AS DECIMAL(5, 2)) * 1.5 AS s FROM trade WHERE n > 2", [Decimal("4.500")]),
    ],
)
def test_values_are_those_of_the_expressions(sql: str, expected: list[object]) -> None:
    assert _changes(sql).sort("__time").get_columns()[0].to_list() == expected


def test_an_error_in_a_value_names_its_expression() -> None:
    with pytest.raises(QueryError, match=r"n - cast\(2 AS BIGINT\).* has no value where n = 2: division by zero"):
        _changes("SELECT 1 / (n - 2) AS x FROM trade")
