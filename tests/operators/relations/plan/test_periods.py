"""For how long rows with one value of an expression of a time may come."""

from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import CATALOG, EPOCH, TRADE, refused

from upstream.expressions.nodes import Call
from upstream.language import bind
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.operator import computed
from upstream.operators.relations.plan.bounds import changes_of_groups
from upstream.operators.relations.plan.nodes import GroupAggregates, Project, walk
from upstream.operators.relations.plan.periods import period_of
from upstream.operators.relations.zsets import dtypes_of
from upstream.operators.state.store import DictStore

_DAY = 86_400_000_000
BOUNDED = {
    "date_trunc('minute', t)": 60_000_000,
    "date_trunc('QUARTER', t)": 92 * _DAY,
    "date_trunc('week', t + INTERVAL '1' DAY)": 7 * _DAY,
    "CAST(t AS DATE)": _DAY,
    "DATE(t)": _DAY,
    "trunc(CAST(t AS DATE), 'MM')": 32 * _DAY,
    "year(t)": 367 * _DAY,
    "date_format(t, 'yyyy-MM-dd')": _DAY,
    "date_format(t, 'yyyyMMddHH')": _DAY,
    "date_format(t, 'yyyy-DDD')": _DAY,
    "date_format(t, 'yyyy/MMM')": 31 * _DAY,
    "date_format(t, 'yyyy')": 366 * _DAY,
    "CAST(date_trunc('hour', t) AS STRING)": 3_600_000_000,
}
UNBOUNDED = (
    "date_format(t, 'HH:mm')",
    "date_format(t, 'yy-MM-dd')",
    "date_format(t, \"'yyyy'-MM-dd\")",
    "unix_timestamp(t)",
    "t - TIMESTAMP '2024-01-01'",
)
_TIMES = st.lists(st.integers(0, 400 * 24 * 60).map(lambda minutes: EPOCH + timedelta(minutes=minutes)), min_size=2)


def _expression(text, zone):
    plan = bind(f"SELECT {text} AS x FROM trade [NOW]", replace(CATALOG, time_zone=zone)).plan
    return next(dict(each.columns)["x"] for each in walk(plan) if isinstance(each, Project))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Zurich", "Pacific/Apia"])
@pytest.mark.parametrize("text", BOUNDED)
@given(times=_TIMES)
def test_times_with_one_value_are_less_than_the_period_apart(text, zone, times):
    expression = _expression(text, zone)
    period = period_of(expression, {"t": 0})
    assert period is not None
    assert (period >= BOUNDED[text]) if zone != "UTC" else (period == BOUNDED[text])
    assert period_of(expression, {"t": 7}) == period + 7
    assert period_of(expression, {"u": 0}) is None
    frame = pl.DataFrame(
        {"sym": None, "px": None, "n": None, "t": times}, schema_overrides={"t": pl.Datetime("us", "UTC")}
    )
    frame = frame.with_columns(x=computed(expression, TRADE.schema).series(frame, "x"))
    spread = frame.group_by("x").agg(pl.col("t").max() - pl.col("t").min())["t"].dt.total_microseconds().max()
    assert spread < max(period, 1)


@pytest.mark.parametrize("text", UNBOUNDED)
def test_values_that_come_again_or_that_are_not_known_have_no_period(text):
    assert period_of(_expression(text, "UTC"), {"t": 0}) is None
    refused(f"SELECT COUNT(*) AS n FROM trade GROUP BY {text}", "GROUP BY would keep an entry for each value")


def test_a_unit_that_is_no_constant_has_no_period():
    expression = _expression("date_trunc('hour', t)", "UTC")
    assert isinstance(expression, Call)
    assert period_of(replace(expression, arguments=expression.arguments[::-1]), {"t": 0}) is None


SQL = "SELECT date_trunc('hour', t) AS h, COUNT(*) AS c, COUNT(DISTINCT n) AS d, MAX(px) AS m, MEDIAN(n) AS e"
SQL += " FROM trade GROUP BY 1"


def test_the_state_forgets_groups_that_do_not_change_any_more():
    plan = bind(SQL, CATALOG).plan
    assert [changes_of_groups(each) for each in walk(plan) if isinstance(each, GroupAggregates)] == [3_600_000_000]
    evaluation, store, total, kept = None, DictStore(), 0, []
    for at in range(150):
        evaluation = Evaluation(store)
        evaluation.add("q", plan)
        time = EPOCH + timedelta(minutes=20 * at)
        frame = pl.DataFrame([("a", 1.0, at, time)], schema=dtypes_of(TRADE.schema), orient="row")
        now = int(time.timestamp()) * 1_000_000 + 1
        total += evaluation.step({"trade": frame}, now).changes["q"]["__weight"].sum()
        evaluation.save()
        kept.append(evaluation.rows_kept)
    assert total == 50
    assert max(kept[10:]) <= 4 * kept[2]
    assert evaluation.complete_from("q") is not None
    evaluation.add("late", bind(f"SELECT h FROM ({SQL}) WHERE c > 1", CATALOG).plan)
    late = evaluation.step({}, evaluation.low_watermark + 1).changes["late"]
    assert 0 < late.height < 5
    assert evaluation.complete_from("late") is None
