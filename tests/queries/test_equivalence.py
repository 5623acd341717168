"""Normalising a plan and making it shareable change no row, of each form of the language, whatever arrives."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import BUSES, CATALOG, DOMAINS, FORMS, MOMENT, QUOTE, REQUESTS, TRADE

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.operator import Computed
from upstream.queries.expressions.compile import compiled
from upstream.queries.expressions.nodes import Expression, fields
from upstream.queries.language.binder import _context, _outermost
from upstream.queries.language.dialect import parse
from upstream.queries.language.places import Text
from upstream.queries.relations.normalize import normalized
from upstream.queries.relations.sharing import shareable

EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)
KINDS = {pa.string(): pl.String(), pa.float64(): pl.Float64(), MOMENT: pl.Datetime("us", "UTC"), pa.int64(): pl.Int64()}
VALUES = {
    pa.string(): st.sampled_from(["a", "b", None]),
    pa.float64(): st.sampled_from([0.5, 2.0, 3.5, 12.0, None]),
    pa.int64(): st.sampled_from([0, 1, 2, 11, None]),
    # Some at one time, some minutes apart, some further than a window is long.
    MOMENT: st.sampled_from([0, 0, 1, 2, 7, 59, 60, 61, 150]).map(lambda minutes: EPOCH + timedelta(minutes=minutes)),
}


def compile_(expression: Expression, schema: pa.Schema) -> Computed:
    return Computed(compiled(expression, schema).evaluate, fields(expression), expression.type)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, pl.DataFrame]:
    found: dict[str, pl.DataFrame] = {}
    for stream in (TRADE, QUOTE, BUSES, REQUESTS, DOMAINS):
        one = st.tuples(*(VALUES[each.type] for each in stream.schema))
        schema = {each.name: KINDS[each.type] for each in stream.schema}
        found[stream.name] = pl.DataFrame(draw(st.lists(one, max_size=6)), schema=schema, orient="row")
    return found


@pytest.mark.parametrize("sql", FORMS)
@given(given_rows=rows())
def test_rewritten_plans_give_the_same_rows(sql: str, given_rows: dict[str, pl.DataFrame]) -> None:
    written = _outermost(parse(sql), _context(Text(sql), CATALOG))
    plan = normalized(written)
    evaluation = Evaluation(DictStore(), compile_)
    for name, each in (("written", written), ("plan", plan), ("shareable", shareable(plan))):
        evaluation.add(name, each)
    end = int((EPOCH + timedelta(hours=6)).timestamp() * 1_000_000)
    outcome = evaluation.step(given_rows, end)
    assert not outcome.failed, outcome.failed

    def counted(name: str) -> Counter[tuple[Any, ...]]:
        counts: Counter[tuple[Any, ...]] = Counter()
        for *row, weight in outcome.changes[name].rows():
            counts[tuple(row)] += weight
        return Counter({row: count for row, count in counts.items() if count})

    assert counted("plan") == counted("written")
    assert counted("shareable") == counted("written")
