"""Columns that are never null: none of them is, in any row of any form, and those that may be are not among them."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from kit.continuous import END_US, FORMS, bound, relation, rows_of_streams

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.relations.nodes import Copies
from upstream.queries.relations.nulls import never_null

CERTAIN = (
    ("SELECT vehicle_id, speed, timestamp FROM LATEST(buses)", {"vehicle_id", "timestamp"}),
    ("SELECT sym, px, t FROM trade [NOW]", {"t"}),
    ("SELECT domain FROM Domains", set()),
    ("SELECT sym, px, n FROM trade [NOW] WHERE sym IS NOT NULL AND px > 1", {"sym", "px"}),
    ("SELECT sym, px FROM trade [NOW] WHERE sym IN ('a', 'b') AND (px > 1 OR n > 1)", {"sym"}),
    ("SELECT 1 AS one, NULL AS none, coalesce(sym, 'x') AS c, sym IS NULL AS b, sym AS s FROM trade [NOW]",
     {"one", "c", "b"}),
    ("SELECT sym, COUNT(*) AS n, MAX(px) AS m FROM trade [NOW] GROUP BY sym", {"n"}),
    ("SELECT a.t, a.sym, b.t AS u FROM trade [NOW] a JOIN quote [NOW] b ON a.sym = b.sym", {"t", "sym", "u"}),
    ("SELECT a.t, a.sym, b.t AS u FROM trade [NOW] a LEFT JOIN quote [NOW] b ON a.sym = b.sym", {"t"}),
    ("SELECT a.t, a.sym, b.t AS u FROM trade [NOW] a RIGHT JOIN quote [NOW] b ON a.sym = b.sym", {"u"}),
    ("SELECT a.t, a.sym, b.t AS u FROM trade [NOW] a FULL JOIN quote [NOW] b ON a.sym = b.sym", set()),
    ("SELECT sym, t FROM trade [NOW] a LEFT SEMI JOIN quote [NOW] b ON a.sym = b.sym", {"t", "sym"}),
    ("SELECT sym, t FROM trade [NOW] a LEFT ANTI JOIN quote [NOW] b ON a.sym = b.sym", {"t"}),
    ("SELECT t, sym FROM trade [NOW] UNION SELECT t, sym FROM quote [NOW] WHERE sym > 'a'", {"t"}),
    ("SELECT t, sym FROM trade [NOW] EXCEPT SELECT t, sym FROM quote [NOW] WHERE sym > 'a'", {"t"}),
    ("SELECT t, sym FROM trade [NOW] INTERSECT SELECT t, sym FROM quote [NOW] WHERE sym > 'a'", {"t", "sym"}),
    ("SELECT window_end, t FROM TUMBLE(trade, t, INTERVAL '1' HOUR)", {"window_end", "t"}),
)  # fmt: skip


PLANS = {sql: bound(sql).plan for sql in (*FORMS, *(each[0] for each in CERTAIN))}


@pytest.mark.parametrize(("sql", "certain"), CERTAIN, ids=[each[0] for each in CERTAIN])
def test_it_is_known_which_columns_have_a_value(sql: str, certain: set[str]) -> None:
    assert never_null(relation(sql)) == certain


def test_numbers_of_copies_are_never_null() -> None:
    assert never_null(Copies(relation("SELECT sym FROM trade [NOW]"))) == {"copy"}


@given(given_rows=rows_of_streams())
def test_no_row_has_a_null_there(given_rows: dict[str, pl.DataFrame]) -> None:
    # An update stream has no rows without a key.
    given_rows["buses"] = given_rows["buses"].drop_nulls("vehicle_id")
    evaluation = Evaluation(DictStore())
    for sql, plan in PLANS.items():
        evaluation.add(sql, plan)
    for sql, changes in evaluation.step(given_rows, END_US).changes.items():
        filled = sorted(never_null(PLANS[sql]))
        assert all(changes[name].null_count() == 0 for name in filled), sql
