"""The rows of groups in buckets: the same results, for less."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.relations.plan.nodes import Aggregation, GroupAggregates, Latest, TimeRange, WindowOver
from upstream.operators.state import key_runs
from upstream.operators.state.store import CountingStore, DictStore

from . import checking as c

V = (c.V,)
CALLS = [
    (Aggregation("x", "max", V, c.LONG), "max(v)"),
    (Aggregation("x", "min", V, c.LONG, where=c.LARGE), "min(v) FILTER (v > 1)"),
    (Aggregation("x", "bit_xor", V, c.LONG), "bit_xor(v)"),
    (Aggregation("x", "bit_and", V, c.LONG), "bit_and(v)"),
    (Aggregation("x", "min", (c.LARGE,), c.BOOL), "bool_and(v > 1)"),
    (Aggregation("x", "max_by", (c.V, c.column("t")), c.LONG), "list(v ORDER BY t DESC, v DESC NULLS LAST)[1]"),
    (Aggregation("x", "min_by", (c.K, c.V), c.TEXT), "(list(k ORDER BY v, k DESC NULLS LAST) FILTER (v IS NOT NULL))[1]"),  # noqa: E501
    (Aggregation("x", "median", V, pa.float64()), "median(v)"),
    (Aggregation("x", "percentile", (c.V, c.constant(0.3, pa.float64())), pa.float64(), where=c.LARGE), "quantile_cont(v, 0.3) FILTER (v > 1)"),  # noqa: E501
]  # fmt: skip
LIST = (Aggregation("y", "collect_set", V, pa.list_(c.LONG)), "coalesce(list(DISTINCT v) FILTER (v IS NOT NULL), [])")


@given(
    source=c.windows(c.S),
    given=c.arrivals(30),
    calls=st.lists(st.sampled_from(CALLS), min_size=1, max_size=2, unique=True),
    grouped=st.booleans(),
    lists=st.sampled_from([False, False, True]),
)
def test_large_groups_in_buckets_are_no_different(source, given, calls, grouped, lists):
    chosen = [(Aggregation(f"x{n}", *_rest(one)), f"{sql} AS x{n}") for n, (one, sql) in enumerate(calls)]
    chosen += [LIST] * lists
    plan = GroupAggregates(source[0], (("g", c.K),) if grouped else (), tuple(one for one, _ in chosen))
    sql = ", ".join(["k"] * grouped + [sql for _, sql in chosen])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_runs, "ROWS_OF_BUCKET", 1)
        c.check(plan, f"SELECT {sql} FROM ({source[1]}){' GROUP BY k' if grouped else ''}", given)


def _rest(one):
    return one.function, one.arguments, one.type, one.distinct, one.where


def test_a_change_of_a_large_group_costs_little_of_what_the_group_holds():
    plan = GroupAggregates(WindowOver(c.S, Latest()), (), (CALLS[0][0], Aggregation("y", *_rest(CALLS[5][0]))))
    store = CountingStore(DictStore())
    size = 50_000

    def step(keys, values, at):
        rows = c.frame(c.S, [(at, f"k{key}", value, at, False) for key, value in zip(keys, values, strict=True)])
        before = store.written
        evaluation = c.added({"q": plan}, store)
        found = evaluation.step({"s": rows, "r": c.frame(c.R, [])}, at + 1).changes["q"]
        evaluation.save()
        return found.filter(pl.col("__weight") > 0).select("x", "y").rows(), store.written - before

    found, whole = step(range(size), np.arange(size).tolist(), 1)
    assert found[-1] == (size - 1, size - 1)
    found, cost = step([size - 1], [-1], 2)
    assert found == [(size - 2, -1)]
    assert cost < whole / 20


def test_a_group_that_shrinks_and_grows_again_keeps_count_of_its_buckets(monkeypatch):
    monkeypatch.setattr(key_runs, "ROWS_OF_BUCKET", 1)
    plan = GroupAggregates(WindowOver(c.S, TimeRange(2)), (), (CALLS[0][0],))
    evaluation, kept = c.added({"q": plan}, DictStore()), {}
    for at, size in ((1, 60), (10, 1), (20, 60), (30, 1), (40, 60)):
        rows = c.frame(c.S, [(at, "k", value, value, False) for value in range(size)])
        found = evaluation.step({"s": rows, "r": c.frame(c.R, [])}, at + 1).changes["q"]
        assert found.filter(pl.col("__weight") > 0)["x"].to_list()[-1] == size - 1
        assert kept.setdefault(size, evaluation.rows_kept) == evaluation.rows_kept
