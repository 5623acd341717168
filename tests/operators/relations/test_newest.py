"""Windows by rows: the newest by event time, whatever the order of arrival."""

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.newest import NewestWindow
from upstream.operators.relations.plan.nodes import Latest, RowWindow, WindowOver
from upstream.operators.relations.zsets import TIME, WEIGHT, Span

from .checking import LARGE, LONG, TEXT, S, arrivals, check, window


@pytest.mark.parametrize(
    "kind", [RowWindow(1), RowWindow(2), RowWindow(3, ("k",)), RowWindow(1, ("k",)), RowWindow(2, ("k", "v"))], ids=str
)
@given(given=arrivals())
def test_the_newest_rows_are_those_that_sql_finds(kind, given):
    check(*window(S, kind), given)


@given(given=arrivals())
def test_the_latest_row_of_each_key_is_there_until_a_tombstone(given):
    check(*window(S, Latest()), given)


@given(given=arrivals(), n=st.integers(1, 3))
def test_a_predicate_within_the_brackets_is_before_the_cut(given, n):
    plan = WindowOver(S, RowWindow(n, ("k",), LARGE))
    newest = f"QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC, seq DESC) <= {n}"
    check(plan, f"SELECT t, k, v FROM s WHERE NOT dead AND t <= $tau AND v > 1 {newest}", given)


SCHEMA = pa.schema([("t", LONG), ("k", TEXT)])


def rows(*times):
    stream = {"t": times, "k": ["a"] * len(times), "__sequence": range(len(times))}
    return pl.DataFrame({**stream, "__tombstone": [False] * len(times), TIME: times, WEIGHT: [1] * len(times)})


def test_state_is_n_rows_of_each_partition_and_those_that_wait():
    state = OperatorState.in_memory()
    operator = NewestWindow(SCHEMA, 2, ["k"], None, False, state)
    operator.step([rows(*range(50))], Span.first(41))
    assert state.rows == 2 + 9
    contents = operator.contents()
    assert contents is not None
    assert sorted(contents["t"]) == [39, 40]


def test_a_tombstone_takes_its_key_out_of_the_state():
    state = OperatorState.in_memory()
    operator = NewestWindow(SCHEMA, 1, ["k"], None, True, state)
    deleted = rows(3).with_columns(pl.lit(True).alias("__tombstone"))
    assert operator.step([rows(1)], Span.first(2)).rows() == [(1, "a", 1, 1)]
    assert operator.step([deleted], Span(2, 4, 1)).rows() == [(1, "a", 3, -1)]
    assert state.rows == 0


def test_at_equal_times_the_greater_sequence_is_newer():
    operator = NewestWindow(SCHEMA, 1, ["k"], None, False, OperatorState.in_memory())
    two = rows(5, 5).with_columns(pl.Series("__sequence", [8, 3]), pl.Series("t", [80, 30]))
    assert operator.step([two], Span.first(6)).rows() == [(80, "a", 5, 1)]
