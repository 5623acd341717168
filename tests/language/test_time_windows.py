"""Windows over joins by the time of either side, and results as windows close, beside DuckDB over all rows."""

from collections import Counter
from datetime import timedelta

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.continuous import CATALOG, END_US, EPOCH, QUOTE, TRADE, refused, rows_of_streams
from kit.evaluated import changes_of_frames, plain, rows_at

from upstream.language import Catalog, bind
from upstream.operators.relations.plan.bounds import state_of
from upstream.operators.relations.plan.nodes import GroupAggregates, Stream, WindowOver, walk
from upstream.operators.relations.plan.properties import key_of
from upstream.operators.relations.zsets import dtypes_of

DATABASE = duckdb.connect()
DATABASE.execute("SET threads = 1; SET TimeZone = 'UTC'")
_MINUTE = 60_000_000
_CUTS = st.lists(st.integers(0, 6), max_size=3).map(sorted)
_ROWS = rows_of_streams([TRADE, QUOTE])
_SIDES = "trade{0} AS a {1}JOIN quote{0} AS b ON a.sym = b.sym"
_PAIRS = "(SELECT a.sym, n, a.t, b.t AS u FROM {0}) AS p"
NEAR = " AND b.t BETWEEN a.t - INTERVAL '2' MINUTE AND a.t + INTERVAL '7' MINUTE"
# What is windowed, the pairs that are meant, and for how many minutes after the end of a window by t, and by u, it gets
# rows.
JOINS = {
    "of streams": (_SIDES.format("", "") + NEAR, _SIDES.format("", "") + NEAR, 7, 2),
    "outer": (_SIDES.format("", "LEFT ") + NEAR, _SIDES.format("", "LEFT ") + NEAR, 7, 2),
    # A row leaves as it becomes a minute too old, so that none is there with a partner that late.
    "of windows": (
        _SIDES.format(" [RANGE 8 MINUTES]", ""),
        _SIDES.format("", "") + " AND b.t > a.t - INTERVAL '8' MINUTE AND b.t < a.t + INTERVAL '8' MINUTE",
        8,
        8,
    ),
}


def evaluated(sql, rows, cuts, catalog=CATALOG):
    return changes_of_frames(
        bind(sql, catalog).plan, {name: each.with_row_index("__at") for name, each in rows.items()}, cuts, END_US
    )


def found_by(sql, rows):
    for name, frame in rows.items():
        DATABASE.register(name, frame.to_arrow())
    return Counter(tuple(map(plain, row)) for row in DATABASE.execute(sql).fetchall())


def bucket(time, slide, size=None):
    """SQL of the ends of the windows that hold a time, each with its row."""
    micros, slide, size = f"epoch_us({time})", slide * _MINUTE, (size or slide) * _MINUTE
    first, last = f"{micros} // {slide} * {slide} + {slide}", f"({micros} + {size}) // {slide} * {slide}"
    return f"(SELECT *, make_timestamptz(UNNEST(RANGE({first}, {last} + 1, {slide}))) AS window_end FROM {{}})"


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("time", ["t", "u"])
@pytest.mark.parametrize(("slide", "size"), [(60, 60), (10, 25)])
@settings(max_examples=25)
@given(rows=_ROWS, cuts=_CUTS)
def test_each_window_over_a_join_comes_once_when_no_pair_can_come(join, time, slide, size, rows, cuts):
    written, meant, *late = JOINS[join]
    late = late[time == "u"] * _MINUTE
    head, by = "SELECT window_end, sym, COUNT(*) AS c, SUM(n) AS s FROM ", " GROUP BY window_end, sym"
    function = f"HOP({_PAIRS.format(written).removesuffix(' AS p')}, {time}, INTERVAL '{slide}' MINUTE, INTERVAL '{size}' MINUTE)"  # noqa: E501
    changes = evaluated(f"{head}{function}{by} EMIT ON WINDOW CLOSE", rows, cuts)
    expected = found_by(head + bucket(time, slide, size).format(_PAIRS.format(meant)) + by, rows)
    assert rows_at(changes) == expected
    assert set(changes["__weight"]) <= {1}
    assert all(at == end.timestamp() * 1e6 + late for end, at in changes.select("window_end", "__time").iter_rows())


@pytest.mark.parametrize("source", ["join", "stream"])
@pytest.mark.parametrize(("slide", "size"), [(60, 60), (10, 25)])
@settings(max_examples=25)
@given(rows=_ROWS, cuts=_CUTS)
def test_results_of_open_windows_are_replaced_by_the_final_ones(source, slide, size, rows, cuts):
    late, pairs = 0, "(SELECT sym, n, t FROM trade) AS p"
    if source == "join":
        late, pairs = 7 * _MINUTE, _PAIRS.format(_SIDES.format("", "LEFT ") + NEAR)
    head, by = "SELECT window_end, sym, COUNT(*) AS c, SUM(n) AS s", " GROUP BY window_end, sym"
    lengths = f"INTERVAL '{slide}' MINUTE, INTERVAL '{size}' MINUTE"
    sql = f"{head} FROM HOP({pairs.removesuffix(' AS p')}, t, {lengths}){by} EMIT EARLY"
    changes = evaluated(sql, rows, cuts)
    assert key_of(bind(sql, CATALOG).plan) == ("window_end", "sym", "final")
    ends, closes = bucket("t", slide, size).format(pairs), f"epoch_us(window_end) + {late}"
    for tau in {*changes["__time"][::3], *changes["__time"][-1:]}:
        until = {name: each.filter(pl.col("t").dt.epoch("us") <= tau) for name, each in rows.items()}
        last = f" HAVING {closes} > {tau - slide * _MINUTE}"
        assert rows_at(changes, tau) == found_by(f"{head}, {closes} <= {tau} AS f FROM {ends}{by}{last}", until), tau


_FLOW = pa.schema(
    {**dict.fromkeys(("srcIP", "srcPort", "destIP", "destPort"), pa.int64()), "ts": TRADE.schema.field("t").type}
)
FLOWS = Catalog().with_stream(Stream("M1", _FLOW, event_time="ts")).with_stream(Stream("M2", _FLOW, event_time="ts"))
_PACKETS = st.lists(
    st.tuples(*[st.integers(0, 1)] * 4, st.integers(0, 130).map(lambda s: EPOCH + timedelta(seconds=s))), max_size=12
).map(lambda rows: pl.DataFrame(rows, schema=dtypes_of(_FLOW), orient="row"))
_OPPOSITE = "M1.srcIP = M2.destIP AND M1.destIP = M2.srcIP AND M1.srcPort = M2.destPort AND M1.destPort = M2.srcPort"
_BAND = "M2.ts BETWEEN M1.ts - INTERVAL '9' SECONDS AND M1.ts + INTERVAL '9' SECONDS"
_MINUTES = (
    "SELECT window_end, COUNT(*) AS n FROM TUMBLE((SELECT M1.ts FROM {}), ts, INTERVAL '1' MINUTE) GROUP BY window_end"
)
_BY_MINUTE = "SELECT date_trunc('minute', M1.ts) + INTERVAL 1 MINUTE, COUNT(*) FROM M1, M2 WHERE {} GROUP BY 1"
THESIS = {
    # Q7-1: SYN and SYN_ACK packets of one connection, by both timestamps.
    f"SELECT M1.ts, M2.ts AS u, COUNT(*) AS n FROM M1, M2 WHERE {_OPPOSITE} AND {_BAND} GROUP BY M1.ts, M2.ts": "{}",
    # Q7-2: packets in opposite directions of one flow, in each minute of the first stream; with a band, and windows.
    _MINUTES.format(f"M1, M2 WHERE {_OPPOSITE} AND {_BAND}"): _BY_MINUTE.format(f"{_OPPOSITE} AND {_BAND}"),
    _MINUTES.format(f"M1 [RANGE 9 SECONDS], M2 [RANGE 9 SECONDS] WHERE {_OPPOSITE}"): _BY_MINUTE.format(
        f"{_OPPOSITE} AND ABS(epoch_us(M1.ts) - epoch_us(M2.ts)) < 9000000"
    ),
}


@pytest.mark.parametrize("sql", THESIS, ids=["Q7-1", "Q7-2 band", "Q7-2 windows"])
@settings(max_examples=25)
@given(one=_PACKETS, two=_PACKETS, cuts=st.lists(st.integers(0, 12), max_size=3).map(sorted))
def test_the_window_joins_of_the_thesis_give_each_result_once(sql, one, two, cuts):
    changes = evaluated(f"{sql} EMIT ON WINDOW CLOSE", {"M1": one, "M2": two}, cuts, FLOWS)
    assert rows_at(changes) == found_by(THESIS[sql].format(sql), {"M1": one, "M2": two})
    assert set(changes["__weight"]) <= {1}


@settings(max_examples=25)
@given(rows=_ROWS, cuts=_CUTS)
def test_rows_of_an_outer_join_come_once_when_they_do_not_change_any_more(rows, cuts):
    sql = f"SELECT a.t, b.t AS u FROM {_SIDES.format('', 'LEFT ')}{NEAR}"
    changes = evaluated(f"{sql} EMIT ON WINDOW CLOSE", rows, cuts)
    assert rows_at(changes) == found_by(sql, rows)
    assert changes["__weight"].min() in (None, *range(1, 9))


def test_groups_of_windows_are_kept_and_not_their_rows():
    pairs = _PAIRS.format(JOINS["of streams"][0]).removesuffix(" AS p")
    hours = f"TUMBLE({pairs}, t, INTERVAL '1' HOUR)"
    early = f"SELECT window_end, COUNT(*) AS c FROM {hours} GROUP BY window_end EMIT EARLY"
    plan = bind(early, CATALOG).plan
    assert len({each for each in walk(plan) if isinstance(each, GroupAggregates)}) == 1
    assert not any(isinstance(each, WindowOver) and state_of(each)[-1].keeps for each in walk(plan))


_HOUR = "INTERVAL '1' HOUR)"
_OF_GROUPS = "(SELECT t, COUNT(*) AS c FROM trade [RANGE 1 HOUR] GROUP BY t)"
_FOR_EVER = "(SELECT n, a.t FROM trade AS a JOIN quote AS b ON a.n = b.bid)"


@pytest.mark.parametrize(
    ("sql", "part", "at"),
    [
        (f"SELECT window_end FROM SESSION(buses, timestamp, {_HOUR} EMIT EARLY", "HOP or TUMBLE", ""),
        (f"SELECT sym, COUNT(*) AS c FROM TUMBLE(trade, t, {_HOUR} GROUP BY sym EMIT EARLY", "SELECT window_end", ""),
        (f"SELECT window_end, n AS final FROM TUMBLE(trade, t, {_HOUR} EMIT EARLY", "rename it", ""),
        (f"ISTREAM(SELECT window_end FROM TUMBLE(trade, t, {_HOUR}) EMIT EARLY", "leave one of them out", "EMIT"),
        ("SELECT sym FROM trade [RANGE 1 HOUR] EMIT EARLY", "no window of this query is open", ""),
        (f"SELECT c FROM TUMBLE({_OF_GROUPS}, t, {_HOUR}", "ISTREAM(", _OF_GROUPS),
        (f"SELECT n FROM TUMBLE({_FOR_EVER}, t, {_HOUR}", "bound both times", ""),
    ],
)
def test_what_is_refused(sql, part, at):
    refused(sql, part, at=at)
