"""Normalising a plan and making it shareable change no row, of each form of the language, whatever arrives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from kit.continuous import CATALOG, END_US, FORMS, rows_of_streams

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


def compile_(expression: Expression, schema: pa.Schema) -> Computed:
    return Computed(compiled(expression, schema).evaluate, fields(expression), expression.type)


@pytest.mark.parametrize("sql", FORMS)
@given(given_rows=rows_of_streams())
def test_rewritten_plans_give_the_same_rows(sql: str, given_rows: dict[str, pl.DataFrame]) -> None:
    written = _outermost(parse(sql), _context(Text(sql), CATALOG))
    plan = normalized(written)
    evaluation = Evaluation(DictStore(), compile_)
    for name, each in (("written", written), ("plan", plan), ("shareable", shareable(plan))):
        evaluation.add(name, each)
    outcome = evaluation.step(given_rows, END_US)
    assert not outcome.failed, outcome.failed

    def counted(name: str) -> Counter[tuple[Any, ...]]:
        counts: Counter[tuple[Any, ...]] = Counter()
        for *row, weight in outcome.changes[name].rows():
            counts[tuple(row)] += weight
        return Counter({row: count for row, count in counts.items() if count})

    assert counted("plan") == counted("written")
    assert counted("shareable") == counted("written")
