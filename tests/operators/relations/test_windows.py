"""Windows by time: at any time the rows that SQL says, for every arrival order, split and restart."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST
from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.plan.nodes import Hop, Now, TimeRange, UnboundedWindow, WindowOver
from upstream.operators.relations.windows import HopWindow, TimeWindow, next_multiple
from upstream.operators.relations.zsets import TIME, WEIGHT, Span

from .checking import END, Database, S, arrivals, at, check, evaluated, window


@pytest.mark.parametrize(
    "kind",
    [
        TimeRange(3),
        TimeRange(1),
        TimeRange(6, 4),
        TimeRange(2, 5),
        TimeRange(8, 2),
        Hop(6, 3),
        Hop(4, 4),
        Hop(2, 5),
        Now(),
        UnboundedWindow(),
    ],
    ids=str,
)
@given(given=arrivals())
def test_a_window_holds_what_sql_finds(kind, given):
    check(*window(S, kind), given)


@given(size=st.integers(1, 7), slide=st.integers(1, 5), given=arrivals())
def test_rows_of_a_hopping_window_carry_its_bounds(size, slide, given):
    plan = WindowOver(S, Hop(size, slide, columns=True))
    bound = f"(($tau // {slide}) * {slide})"
    sql = f"SELECT t, k, v, {bound} - {size}, {bound} FROM s WHERE NOT dead AND t >= {bound} - {size} AND t < {bound}"
    found, _ = evaluated({"q": plan}, given.steps)
    changes = found["q"].with_columns(pl.col("window_start", "window_end").dt.epoch("us"))
    database = Database(given.rows)
    for tau in range(END):
        assert at(changes, tau) == database.at(sql, tau)


def test_times_are_raised_to_multiples_of_the_slide():
    times = np.array([-5, -4, 0, 1, 4, 5])
    assert next_multiple(times, 4).tolist() == [-4, -4, 0, 4, 4, 8]
    assert next_multiple(times, None) is times


def rows(times):
    stream = {"t": times, "__sequence": times, "__tombstone": [False] * len(times)}
    kinds = {"t": pl.Int64, "__sequence": pl.Int64, "__tombstone": pl.Boolean, TIME: pl.Int64, WEIGHT: pl.Int64}
    return pl.DataFrame({**stream, TIME: times, WEIGHT: [1] * len(times)}, schema=kinds)


def held(operator):
    contents = operator.contents()
    assert contents is not None
    return sorted(contents["t"].to_list())


SCHEMA = pa.schema([("t", pa.int64())])


def test_a_row_enters_at_its_time_and_is_held_until_it_leaves():
    state = OperatorState.in_memory()
    operator = TimeWindow(SCHEMA, 10, None, 0, state)
    assert operator.step([rows([5, 20])], Span.first(5)).height == 0
    assert (held(operator), state.rows) == ([], 2)
    assert operator.step([rows([])], Span(5, 6, 4)).rows() == [(5, 5, 1)]
    assert (held(operator), state.rows) == ([5], 2)
    assert operator.step([rows([])], Span(6, 15, 5)).height == 0
    assert operator.step([rows([])], Span(15, 16, 14)).rows() == [(5, 15, -1)]
    assert (held(operator), state.rows) == ([], 1)


def test_windows_without_end_keep_nothing_and_say_so():
    state = OperatorState.in_memory()
    operator = TimeWindow(SCHEMA, None, None, 0, state)
    assert operator.step([rows([5])], Span.first(HIGHEST)).height == 1
    assert state.rows == 0
    assert operator.forgets
    assert operator.contents() is None
    assert operator.whole_from(3) is None


@pytest.mark.parametrize("net", [False, True])
def test_a_row_of_a_hopping_window_waits_for_its_last_change_and_no_longer(net):
    state = OperatorState.in_memory()
    schema = SCHEMA.append(pa.field("a", pa.timestamp("us", "UTC"))).append(pa.field("b", pa.timestamp("us", "UTC")))
    operator = HopWindow(schema, 4, 2, state)
    # The row of time 0 comes at 2, in the windows that end at 2 and 4, and leaves at 6.
    assert operator.step([rows([0])], Span.first(6)._replace(net=net)).height == (1 if net else 3)
    assert state.rows == 1
    assert operator.contents().select(pl.col("t", "b").cast(pl.Int64)).rows() == [(0, 4)]
    left = operator.step([rows([])], Span(6, 7, 5)._replace(net=net))
    assert left[WEIGHT].to_list() == [-1]
    assert left["b"].cast(pl.Int64).to_list() == [4]
    assert state.rows == 0


def test_windows_are_whole_once_their_range_has_passed():
    assert TimeWindow(SCHEMA, 10, None, 0, OperatorState.in_memory()).whole_from(7) == 17
    assert TimeWindow(SCHEMA, 10, 4, 0, OperatorState.in_memory()).whole_from(7) == 21
