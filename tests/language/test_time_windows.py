"""Windows over joins by the time of either side, and results as windows close, beside DuckDB over all rows."""

from collections import Counter

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.continuous import CATALOG, END_US, QUOTE, TRADE, rows_of_streams
from kit.evaluated import changes_of_frames, plain, rows_at

from upstream.language import bind

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


def evaluated(sql, rows, cuts):
    return changes_of_frames(
        bind(sql, CATALOG).plan, {name: each.with_row_index("__at") for name, each in rows.items()}, cuts, END_US
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
