"""GROUP BY at any time, with rows that come and leave."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import SchemaError
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.nodes import Aggregation, GroupAggregates, Join, Project, TimeRange
from upstream.operators.state.store import DictStore

from .checking import LARGE, LONG, TEXT, R, S, arrivals, call, check, column, compiled, constant, window, windows

DOUBLE = pa.float64()
V, VK = (column("v"),), (column("v"), column("k", TEXT))
KNOWN = "FILTER (v IS NOT NULL AND k IS NOT NULL)"
CALLS = [
    (Aggregation("x", "count", (), LONG), "count(*)"),
    (Aggregation("x", "count", V, LONG), "count(v)"),
    (Aggregation("x", "count", VK, LONG), f"count(*) {KNOWN}"),
    (Aggregation("x", "count", (), LONG, where=LARGE), "count(*) FILTER (v > 1)"),
    (Aggregation("x", "sum", V, LONG), "sum(v)"),
    (Aggregation("x", "sum", V, LONG, where=LARGE), "sum(v) FILTER (v > 1)"),
    (Aggregation("x", "avg", V, DOUBLE), "avg(v)"),
    (Aggregation("x", "var_samp", V, DOUBLE), "var_samp(v)"),
    (Aggregation("x", "stddev_pop", V, DOUBLE), "stddev_pop(v)"),
    (Aggregation("x", "min", V, LONG), "min(v)"),
    (Aggregation("x", "max", V, LONG, where=LARGE), "max(v) FILTER (v > 1)"),
    (Aggregation("x", "count", V, LONG, distinct=True), "count(DISTINCT v)"),
    (Aggregation("x", "count", VK, LONG, distinct=True), f"count(DISTINCT (v, k)) {KNOWN}"),
    (Aggregation("x", "approx_count_distinct", V, LONG), "count(DISTINCT v)"),
    (Aggregation("x", "sum", V, LONG, distinct=True), "sum(DISTINCT v)"),
    (Aggregation("x", "avg", V, DOUBLE, distinct=True, where=LARGE), "avg(DISTINCT v) FILTER (v > 1)"),
    (Aggregation("x", "median", V, DOUBLE), "median(v)"),
    (Aggregation("x", "percentile", (column("v"), constant(0.25, DOUBLE)), DOUBLE), "quantile_cont(v, 0.25)"),
    (Aggregation("x", "max_by", (column("k", TEXT), column("t")), TEXT), "list(k ORDER BY t DESC, k DESC NULLS LAST)[1]"),  # noqa: E501
    (Aggregation("x", "min_by", (column("k", TEXT), column("v")), TEXT), "(list(k ORDER BY v, k DESC NULLS LAST) FILTER (v IS NOT NULL))[1]"),  # noqa: E501
    (Aggregation("x", "collect_set", V, pa.list_(LONG)), "coalesce(list(DISTINCT v) FILTER (v IS NOT NULL), [])"),
    (Aggregation("x", "bit_and", V, LONG), "bit_and(v)"),
    (Aggregation("x", "bit_or", V, LONG, where=LARGE), "bit_or(v) FILTER (v > 1)"),
    (Aggregation("x", "bit_xor", V, LONG), "bit_xor(v)"),
    (Aggregation("x", "max", (LARGE,), pa.bool_()), "bool_or(v > 1)"),
    (Aggregation("x", "min", (LARGE,), pa.bool_()), "bool_and(v > 1)"),
]  # fmt: skip
BY = (("g", column("k", TEXT)),)


@pytest.mark.parametrize(("aggregation", "sql"), CALLS, ids=[sql for _, sql in CALLS])
@given(source=windows(S), given=arrivals(), grouped=st.booleans())
def test_each_aggregate_is_what_sql_finds(aggregation, sql, source, given, grouped):
    plan = GroupAggregates(source[0], BY if grouped else (), (aggregation,))
    check(plan, f"SELECT {'k, ' if grouped else ''}{sql} FROM ({source[1]}){' GROUP BY k' if grouped else ''}", given)


@given(source=windows(S), given=arrivals(), chosen=st.lists(st.sampled_from(CALLS), max_size=4))
def test_aggregates_together_are_what_they_are_alone(source, given, chosen):
    calls = tuple(
        Aggregation(f"x{n}", one.function, one.arguments, one.type, one.distinct, one.where)
        for n, (one, _) in enumerate(chosen)
    )
    by = (("g", column("k", TEXT)), ("h", call("mod", column("v"), constant(2), kind=LONG)))
    sql = ", ".join(["k", "v % 2", *(sql for _, sql in chosen)])
    check(GroupAggregates(source[0], by, calls), f"SELECT {sql} FROM ({source[1]}) GROUP BY 1, 2", given)


@given(given=arrivals(10))
def test_rows_that_are_there_several_times_count_as_often(given):
    (left, left_sql), (right, right_sql) = window(S, TimeRange(6)), window(R, TimeRange(9))
    pairs = Join(Project(left, BY), Project(right, (("w", column("w")),)), "inner")
    calls = (
        Aggregation("n", "count", (), LONG),
        Aggregation("s", "sum", (column("w"),), LONG),
        Aggregation("l", "collect_set", (column("w"),), pa.list_(LONG)),
        Aggregation("d", "sum", (column("w"),), LONG, distinct=True),
    )
    plan = GroupAggregates(pairs, (("g", column("g", TEXT)),), calls)
    aggregates = "count(*), sum(w), coalesce(list(DISTINCT w) FILTER (w IS NOT NULL), []), sum(DISTINCT w)"
    check(plan, f"SELECT k, {aggregates} FROM ({left_sql}) CROSS JOIN ({right_sql}) GROUP BY 1", given)


@pytest.mark.parametrize(
    ("aggregation", "message"),
    [
        (Aggregation("x", "medain", V, DOUBLE), "one of median"),
        (Aggregation("x", "first", V, LONG), "min_by or max_by"),
        (Aggregation("x", "sum", (column("k", TEXT),), LONG), "cast it"),
        (Aggregation("x", "median", V, DOUBLE, distinct=True), "DISTINCT"),
        (Aggregation("x", "sum", (column("v"), column("t")), LONG, distinct=True), "2 columns"),
    ],
)
def test_what_cannot_be_kept_up_to_date_is_refused(aggregation, message):
    with pytest.raises(SchemaError, match=message):
        Evaluation(DictStore(), compiled).add("q", GroupAggregates(window(S, TimeRange(3))[0], (), (aggregation,)))
