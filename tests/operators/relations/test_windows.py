"""Windows by time: at any time the rows that SQL says, for every arrival order, split and restart."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import TRADE
from kit.hosting import Tables, Versions, scanned
from kit.local_host import LocalHost

from upstream.conf.errors import QueryError
from upstream.core.rows.exact_integers import HIGHEST
from upstream.hosting.messages import Command
from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.plan.nodes import Hop, Now, TimeRange, UnboundedWindow, WindowOver
from upstream.operators.relations.windows import HopWindow, TimeWindow, check_years, next_multiple
from upstream.operators.relations.zsets import TIME, WEIGHT, Span, dtypes_of

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
    assert operator.complete_from(3) is None


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
    assert TimeWindow(SCHEMA, 10, None, 0, OperatorState.in_memory()).complete_from(7) == 17
    assert TimeWindow(SCHEMA, 10, 4, 0, OperatorState.in_memory()).complete_from(7) == 21


SECOND = 1_000_000
FIRST, LAST = -62_135_596_800 * SECOND, 253_402_300_800 * SECOND - 1
EARLY, LATE = FIRST + 5 * SECOND, LAST - 5 * SECOND
RAW = "SELECT * FROM TUMBLE(trade, t, INTERVAL '7' DAY)"
HOPS = "SELECT window_start, COUNT(*) AS n FROM HOP(trade, t, INTERVAL '1' DAY, INTERVAL '7' DAY) GROUP BY window_start"


def test_limits():
    check_years(np.array([], dtype=np.int64), "a window begins")
    check_years(np.array([FIRST, 0, LAST]), "a window begins")
    with pytest.raises(
        QueryError, match=r"a window begins at 0000-12-31T23:59:59\.999999\. Expected: a time in the years"
    ):
        check_years(np.array([0, FIRST - 1, FIRST - 2]), "a window begins")
    with pytest.raises(QueryError, match=r"a window ends at 10000-01-01T00:00:00"):
        check_years(np.array([LAST + 1]), "a window ends")


def hosted(texts, times):
    """The tables and the failures of queries over rows at some times, then the end of the stream."""
    versions = Versions({1: {name: (number, text) for number, (name, text) in enumerate(texts.items(), 1)}})
    host = LocalHost(versions, 2)
    tables = Tables(host.plan(1))
    schema = {name: pl.Int64() if name == "t" else kind for name, kind in dtypes_of(TRADE.schema).items()}
    rows = pl.DataFrame([("a", 1.0, 1, time) for time in times], schema=schema, orient="row")
    rows = rows.with_columns(pl.col("t").cast(dtypes_of(TRADE.schema)["t"]))
    tables.take(
        host.batch(Command(0, 1), {"trade": [scanned(TRADE, rows, range(1, rows.height + 1), {"f": times[0]})]})
    )
    tables.take(host.batch(Command(1, 1), {"trade": [scanned(TRADE, rows[:0], [], {"f": None})]}))
    names = dict(enumerate(texts, 1))
    return tables, {names[number]: reason for number, reason in tables.failed.items()}


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        (RAW, EARLY, "a window begins at 0000-12-28"),
        (f"{HOPS} EMIT ON WINDOW CLOSE", EARLY, "a window begins at 0000-12-"),
        (RAW, LATE, "a window ends at 10000-01-06"),
        (f"{HOPS} EMIT ON WINDOW CLOSE", LATE, "a window ends at 10000-01-01"),
        ("DSTREAM(SELECT * FROM trade [RANGE 10 DAYS])", LATE, "the result changes at 10000-01-10"),
        ("RSTREAM(SELECT sym FROM trade [RANGE 1 HOUR SLIDE 30 MINUTES])", LATE, "the result changes at 10000"),
        (
            "SELECT SUM(n) AS s FROM trade [RANGE 1 HOUR] EMIT PERIODIC INTERVAL '1' DAY",
            LAST,
            "the result changes at 10",
        ),
    ],
)
def test_a_query_whose_window_leaves_the_years_fails_in_words_and_alone(text, at, words):
    texts = {"healthy": "SELECT * FROM trade", "fails": text, "inside": "ISTREAM(SELECT * FROM trade [RANGE 10 DAYS])"}
    tables, failed = hosted(texts, [at])
    assert list(failed) == ["fails"]
    assert words in failed["fails"]
    assert tables.contents(1).total() == tables.contents(3).total() == 1


def test_windows_that_end_or_begin_at_the_limits_are_given():
    hour = "SELECT * FROM TUMBLE(trade, t, INTERVAL '1' HOUR)"
    tables, failed = hosted({"hours": hour}, [FIRST, LAST - 3601 * SECOND])
    assert failed == {}
    found = {row[4:6] for row in tables.contents(1)}
    assert len(found) == 2
