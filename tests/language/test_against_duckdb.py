"""Queries from their text to their rows at any time, beside DuckDB over the rows up to it."""

import re
from collections import Counter
from datetime import timedelta
from itertools import accumulate
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.continuous import CATALOG, END_US, EPOCH, QUOTE, SHIFT, TRADE, rows_of_streams
from kit.evaluated import changes_of_frames, plain, rows_at

from upstream.language import bind
from upstream.operators.relations.plan.bounds import state_of
from upstream.operators.relations.plan.nodes import WindowFunctions
from upstream.operators.relations.zsets import dtypes_of

STREAMS = {each.name: each for each in (TRADE, QUOTE, SHIFT)}
DATABASE = duckdb.connect()
DATABASE.execute("SET threads = 1; SET TimeZone = 'UTC'")
T, Q = "trade [RANGE 1 HOUR]", "quote [RANGE 1 HOUR]"
QS = f"(SELECT sym, t, MAX(bid) AS bid FROM {Q} GROUP BY sym, t)"
E = "trade [RANGE UNBOUNDED]"
B = "PARTITION BY sym ORDER BY n NULLS FIRST"
ALL = "PARTITION BY sym ORDER BY n NULLS FIRST, px NULLS FIRST, t"
# Each query as it is written, and what is different in DuckDB's.
QUERIES: dict[str, tuple[str, str]] = {
    f"SELECT sym, n, COUNT(*) AS c, SUM(px) AS s FROM {T} GROUP BY ROLLUP (sym, n)": ("$", " HAVING COUNT(*) > 0"),
    f"SELECT sym, n, COUNT(px) AS c FROM {T} GROUP BY sym, n WITH CUBE": ("sym, n WITH CUBE", "CUBE (sym, n) HAVING COUNT(*) > 0"),  # noqa: E501
    f"SELECT n, MAX(px) AS m, GROUPING(sym) AS g, GROUPING(n) AS h FROM {T} GROUP BY GROUPING SETS ((sym, n), n, (n))": ("", ""),  # noqa: E501
    f"SELECT sym, GROUPING_ID() AS g, COUNT(*) AS c FROM {T} GROUP BY sym, ROLLUP (n) HAVING COUNT(*) > 1": (r"_ID\(\)", "(sym, n)"),  # noqa: E501
    f"SELECT sym, px FROM {T} AS a WHERE px > (SELECT AVG(px) FROM {T} AS b WHERE b.sym = a.sym)": ("", ""),
    f"SELECT sym, n FROM {T} AS a WHERE n = (SELECT MAX(n) FROM {T}) OR px < 1": ("", ""),
    f"SELECT sym, (SELECT COUNT(*) + a.n FROM {Q} AS b WHERE b.sym = a.sym AND bid > 1) AS c FROM {T} AS a": ("", ""),
    f"SELECT sym, (SELECT MIN(bid) FROM {Q} AS b WHERE b.sym = a.sym) AS lo, (SELECT SUM(bid) FROM {Q}) AS s FROM {T} AS a": ("", ""),  # noqa: E501
    f"SELECT sym, n FROM {T} AS a WHERE px NOT IN (SELECT MAX(bid) FROM {Q} AS b WHERE b.sym = a.sym)": ("", ""),
    f"SELECT sym, n FROM {T} AS a WHERE px IN (SELECT MAX(bid) FROM {Q})": ("", ""),
    f"SELECT sym, SUM(n) / (SELECT SUM(n) FROM {T} WHERE n > 0) AS p FROM {T} GROUP BY sym HAVING COUNT(*) >= (SELECT COUNT(*) FROM {Q})": ("", ""),  # noqa: E501
    f"SELECT sym, n FROM {T} AS a WHERE EXISTS (SELECT 1 FROM {Q} AS b WHERE b.bid > (SELECT AVG(px) FROM {T} AS c WHERE c.sym = b.sym) AND b.sym = a.sym)": ("", ""),  # noqa: E501
    f"SELECT sym FROM {T} AS a WHERE sym NOT IN (SELECT sym FROM {Q})": ("", ""),
    f"SELECT sym FROM {T} AS a WHERE (sym, px) NOT IN (SELECT sym, bid FROM {Q})": (r"\(sym, px\) NOT IN \((.*)\)", r"NOT EXISTS (\1 AS b WHERE COALESCE(a.sym = b.sym, TRUE) AND COALESCE(px = bid, TRUE))"),  # noqa: E501
    f"SELECT sym FROM {T} AS a WHERE NOT (n, px) IN (SELECT n, px + 1 FROM {T} AS b WHERE b.sym = a.sym AND n > 0)": (r"NOT \(n, px\) IN \((.*) WHERE (.*)\)", r"NOT EXISTS (\1 WHERE \2 AND COALESCE(a.n = b.n, TRUE) AND COALESCE(a.px = b.px + 1, TRUE))"),  # noqa: E501
    f"SELECT sym FROM {T} AS a WHERE NOT EXISTS (SELECT 1 FROM {Q} AS b WHERE b.sym = a.sym)": ("", ""),
    f"SELECT sym FROM {T} AS a WHERE EXISTS (SELECT 1 FROM {Q} AS b JOIN {T} AS c ON b.sym = a.sym AND c.px > b.bid)": ("", ""),  # noqa: E501
    f"SELECT a.sym, n, b.bid FROM {T} AS a ASOF JOIN {QS} AS b ON a.sym = b.sym AND a.t >= b.t": ("", ""),
    f"SELECT a.sym, n, b.bid FROM {T} AS a ASOF JOIN {QS} AS b MATCH_CONDITION (b.t > a.t) ON b.sym = a.sym": (r"ASOF JOIN(.*) MATCH_CONDITION \((.*)\) ON", r"ASOF LEFT JOIN\1 ON \2 AND"),  # noqa: E501
    f"SELECT sym, n, t, bid FROM {T} AS a ASOF LEFT JOIN {QS} AS b USING (sym, t)": ("", ""),
    f"SELECT sym, ARRAY_AGG(px ORDER BY n DESC, px) AS v FROM {T} GROUP BY sym": (r"(ARRAY_AGG.*) AS", r"COALESCE(\1 FILTER (px IS NOT NULL), []) AS"),  # noqa: E501
    f"SELECT n, LISTAGG(sym, ', ') WITHIN GROUP (ORDER BY px NULLS LAST, sym) AS v FROM {T} GROUP BY n": (r"\) WITHIN GROUP \((.*)\) AS", r" \1) AS"),  # noqa: E501
    f"SELECT sym, STRING_AGG(DISTINCT n, ';' ORDER BY n DESC) AS v FROM {T} GROUP BY sym": (r"STRING_AGG.* AS", "ARRAY_TO_STRING(LIST_REVERSE_SORT(LIST(DISTINCT n)), ';') AS"),  # noqa: E501
    f"SELECT sym, PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY px DESC) AS p, PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY n) FILTER (WHERE px > 0) AS d FROM {T} GROUP BY sym": ("", ""),  # noqa: E501
    f"SELECT sym, PERCENTILE(px, ARRAY(0.5, 0.9)) AS p, PERCENTILE_DISC(ARRAY(0, 0.3)) WITHIN GROUP (ORDER BY n) AS d FROM {T} GROUP BY sym": (r"PERCENTILE\(px, ARRAY(.*)DISC\(ARRAY\((.*)\)\) W", r"PERCENTILE_CONT(LIST_VALUE(0.5, 0.9)) WITHIN GROUP (ORDER BY px) AS p, PERCENTILE_DISC([\2]) W"),  # noqa: E501
    f"SELECT MAX(l) AS x, MIN(l) AS y FROM (SELECT sym, COLLECT_LIST(n) AS l FROM {T} GROUP BY sym)": (r"COLLECT_LIST.n.", "COALESCE(LIST_SORT(LIST(n) FILTER (n IS NOT NULL)), [])"),  # noqa: E501
    f"SELECT sym, l FROM (SELECT sym, COLLECT_LIST(n) AS l FROM {T} GROUP BY sym) ORDER BY l DESC, sym NULLS FIRST LIMIT 2": (r"COLLECT_LIST.n.", "COALESCE(LIST_SORT(LIST(n) FILTER (n IS NOT NULL)), [])"),  # noqa: E501
    f"SELECT ROW(sym, n) AS r, COUNT(*) AS c, MAX(ROW(n, px)) FILTER (WHERE px > 0 AND n > 0) AS m FROM {T} GROUP BY 1": ("", ""),  # noqa: E501
    f"SELECT COUNT(DISTINCT (sym, n)) AS c FROM {T} WHERE (sym, n) IN (('a', 1), ('b', 2), (NULL, 1)) OR (n, px) > (1, 0.5) AND n + px > 0": ("", ""),  # noqa: E501
    f"SELECT DISTINCT struct(a.n, b.bid) AS r FROM {T} AS a JOIN {Q} AS b ON (a.sym, a.px) = (b.sym, b.bid)": ("struct", "ROW"),  # noqa: E501
    f"SELECT sym, SUM(t - CAST('2024-01-01' AS TIMESTAMP)) AS s, MIN(n * INTERVAL 1 DAY 2 HOURS) AS m FROM {T} GROUP BY sym": (r"SUM(.*)AS TIMESTAMP(.*) AS s(.*) 1 DAY 2 HOURS", r"TO_MICROSECONDS(SUM(EPOCH_US\1AS TIMESTAMPTZ\2)::BIGINT) AS s\3 '26 hours'"),  # noqa: E501
    f"SELECT sym, BIT_AND(n) AS a, BIT_OR(n) AS o, BIT_XOR(n & 3) AS x FROM {T} GROUP BY sym": ("", ""),
    f"SELECT sym, n, RANK() OVER ({B}) AS r, DENSE_RANK() OVER ({B}) AS d, PERCENT_RANK() OVER ({B}) AS p FROM {T}": ("", ""),  # noqa: E501
    f"SELECT *, ROW_NUMBER() OVER ({ALL}) AS r, NTILE(3) OVER ({ALL}) AS i FROM {T}": ("", ""),
    f"SELECT *, LAG(n, 2, 7) OVER ({ALL}) AS l, LEAD(px) OVER ({ALL}) AS m FROM {T} WHERE n > 0": ("", ""),
    f"SELECT sym, n, FIRST_VALUE(n) OVER ({ALL} ROWS 2 PRECEDING) AS f, NTH_VALUE(n, 2) OVER ({ALL}) AS h FROM {T}": ("", ""),  # noqa: E501
    f"SELECT *, SUM(n) OVER ({B}) AS s, COUNT(*) OVER (PARTITION BY sym) AS c, AVG(px) OVER () AS a FROM {T}": ("", ""),
    f"SELECT *, MAX(px) OVER ({ALL} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS x FROM {T}": ("", ""),
    f"SELECT *, SUM(n) OVER (PARTITION BY sym ORDER BY t RANGE INTERVAL '2' MINUTES PRECEDING) AS s FROM {T}": ("", ""),
    f"SELECT *, MIN(px) OVER (ORDER BY n DESC NULLS LAST RANGE BETWEEN 1 PRECEDING AND 8 FOLLOWING) AS s FROM {T}": ("", ""),  # noqa: E501
    f"SELECT sym, SUM(n) AS s, RANK() OVER (ORDER BY SUM(n) DESC NULLS LAST) AS r FROM {T} GROUP BY sym QUALIFY r <= 2": ("", ""),  # noqa: E501
    f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION /* of a symbol */ BY sym ORDER -- of all\nBY n NULLS FIRST, px NULLS FIRST, t) AS r FROM {T}) WHERE r <= 2": ("", ""),  # noqa: E501
    f"SELECT sym, n FROM (SELECT *, ROW_NUMBER() OVER ({ALL}) AS r FROM {E}) WHERE r <= 2 AND n > 0": ("", ""),
    f"SELECT sym, r FROM (SELECT *, RANK() OVER ({B}) AS r FROM {T}) WHERE r <= 2 AND sym = 'a'": ("", ""),
    f"SELECT x.sym, AVG(x.hi) OVER (PARTITION BY x.sym ORDER BY x.n NULLS FIRST ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS v FROM (SELECT sym, n, MAX(px) AS hi FROM {E} GROUP BY sym, n) AS x": ("", ""),  # noqa: E501
}  # fmt: skip


def evaluated(sql, given_, cuts):
    """The changes of a query when the rows come in so many steps: of each stream, these numbers of rows."""
    rows = {name: each.with_row_index("__at") for name, each in given_.items()}
    return changes_of_frames(bind(sql, CATALOG).plan, rows, [*accumulate(cuts)], END_US)


def _us(time):
    return int(time.timestamp() * 1_000_000)


def expected_at(sql, rows, tau):
    """The rows that DuckDB finds in the windows at a time."""
    for name, frame in rows.items():
        DATABASE.register(f"r_{name}", frame.to_arrow())
    moment = f"make_timestamptz({tau})"

    def window(found):
        stream, length = STREAMS[found[1]], found[2]
        since = f" AND t > {moment} - INTERVAL {length}" if length else ""
        return f"(SELECT {', '.join(stream.schema.names)} FROM r_{stream.name} WHERE t <= {moment}{since})"

    given_ = re.sub(r"\b(trade|quote|shift) \[RANGE (?:UNBOUNDED|([^\]]+))\]", window, sql)
    return Counter(tuple(map(plain, row)) for row in DATABASE.execute(given_).fetchall())


_CUTS = st.lists(st.integers(0, 3), max_size=3)


@pytest.mark.parametrize("sql", QUERIES)
@given(given_rows=rows_of_streams([TRADE, QUOTE]), cuts=_CUTS)
def test_the_relation_at_any_time_is_what_sql_finds(sql, given_rows, cuts):
    changes = evaluated(f"{sql} EMIT CHANGES", given_rows, cuts)
    other = re.sub(*QUERIES[sql], sql) if QUERIES[sql][0] else sql
    times = sorted({*changes["__time"]})
    for tau in {_us(EPOCH), *times[:: max(1, len(times) // 4)], END_US}:
        assert rows_at(changes, tau) == expected_at(other, given_rows, tau), tau


_CLOSED = "WITH v AS (SELECT sym, t AS s FROM trade WHERE px > 3) SELECT window_end, sym, COUNT(*) AS n FROM {} "
_CLOSED += "GROUP BY window_end, sym EMIT ON WINDOW CLOSE"
_DERIVED = (
    "TUMBLE((SELECT sym, t AS s FROM trade WHERE px > 3), s, INTERVAL '1' HOUR)",
    "(SELECT window_end, sym FROM TUMBLE(v, DESCRIPTOR(s), INTERVAL '1' HOUR))",
    "(SELECT * FROM TUMBLE(trade, t, INTERVAL '1' HOUR) WHERE px > 3) AS x",
)


@pytest.mark.parametrize("source", _DERIVED)
@given(given_rows=rows_of_streams([TRADE]), cuts=_CUTS)
def test_windows_are_over_subqueries_and_inside_of_them(source, given_rows, cuts):
    changes = evaluated(_CLOSED.format(source), given_rows, cuts)
    plain_ = evaluated(_CLOSED.format("TUMBLE(trade, t, INTERVAL '1' HOUR) WHERE px > 3"), given_rows, [])
    assert sorted(changes.rows(), key=str) == sorted(plain_.rows(), key=str)
    hours = "date_trunc('hour', t) + INTERVAL 1 HOUR"
    sql = f"SELECT {hours}, sym, COUNT(*) FROM trade [RANGE UNBOUNDED] WHERE px > 3 GROUP BY {hours}, sym"
    assert rows_at(changes) == expected_at(sql, given_rows, END_US)


_AS_OF = (
    "SELECT a.sym, n, b.bid, c.bid AS other FROM (SELECT sym, n, t AS s FROM trade{0} WHERE n > 0) AS a "
    "ASOF JOIN quote{0} AS b ON a.sym = b.sym AND s >= b.t ASOF LEFT JOIN quote{0} AS c ON c.bid = b.bid AND c.t <= s"
)


@given(given_rows=rows_of_streams([TRADE, QUOTE]), cuts=_CUTS)
def test_streams_without_windows_meet_each_row_as_of_its_time(given_rows, cuts):
    given_rows = {**given_rows, "quote": given_rows["quote"].unique("t", keep="first", maintain_order=True)}
    changes = evaluated(_AS_OF.format(""), given_rows, cuts)
    assert changes["__weight"].min() is None or changes["__weight"].min() > 0
    for tau in {_us(EPOCH), *changes["__time"], END_US}:
        assert rows_at(changes, tau) == expected_at(_AS_OF.format(" [RANGE UNBOUNDED]"), given_rows, tau), tau


_MINUTES = "(SELECT date_trunc('minute', t) AS h, MAX(bid) AS m FROM quote{0} GROUP BY 1) AS b"
_BY_TIME = [
    """SELECT date_trunc('hour', t) AS h, sym, COUNT(*) AS c, SUM(px) AS s, MAX(n) AS m, COUNT(DISTINCT n) AS d,
    COUNT(*) FILTER (WHERE n > 0) AS f, MEDIAN(n) AS e FROM trade{0} GROUP BY date_trunc('hour', t), sym""",
    """SELECT date_trunc('minute', t) AS h, MIN(sym) AS m, COUNT(*) AS c FROM trade{0} WHERE n > 0
    GROUP BY date_trunc('minute', t), t HAVING COUNT(*) > 1""",
    "SELECT CAST(t AS DATE) AS d, COUNT(DISTINCT t) AS c FROM trade{0} GROUP BY CAST(t AS DATE)",
    f"""SELECT a.h, x, m FROM (SELECT date_trunc('minute', t) AS h, COUNT(*) AS x FROM trade{{0}} GROUP BY 1) AS a
    FULL JOIN {_MINUTES} ON a.h = b.h""",
    f"SELECT n, m FROM trade{{0}} AS a JOIN {_MINUTES} ON a.t BETWEEN b.h AND b.h + INTERVAL '1' HOUR",
    f"SELECT n, m FROM trade{{0}} AS a JOIN {_MINUTES} ON a.t BETWEEN b.h - INTERVAL '90' MINUTE AND b.h",
]


@pytest.mark.parametrize("sql", _BY_TIME)
@given(given_rows=rows_of_streams([TRADE, QUOTE]), cuts=_CUTS)
def test_groups_by_a_truncated_time_stay_and_are_what_sql_finds(sql, given_rows, cuts):
    changes = evaluated(f"{sql.format('')} EMIT CHANGES", given_rows, cuts)
    for tau in {_us(EPOCH), *changes["__time"], END_US}:
        assert rows_at(changes, tau) == expected_at(sql.format(" [RANGE UNBOUNDED]"), given_rows, tau), tau


_OF_TIME = (
    "SELECT n, MAX(begins) AS x, MIN(begins) AS y, COUNT(DISTINCT begins) AS z FROM {} GROUP BY n",
    "SELECT MAX(begins) AS x, MIN(begins) FILTER (WHERE n > 0) AS y FROM {}",
    "SELECT MAX_BY(begins, begins) AS x, MIN_BY(begins, begins) AS y FROM {} WHERE n > 0",
    "SELECT begins, COUNT(*) AS c, SUM(n) AS s FROM {} GROUP BY begins",
    "SELECT DISTINCT begins FROM {}",
    "SELECT begins FROM {} ORDER BY begins DESC NULLS LAST LIMIT 1",
    "SELECT begins, n FROM {} AS a WHERE n = (SELECT COUNT(DISTINCT begins) FROM {})",
    "SELECT a.begins, b.bid FROM {} AS a JOIN quote [RANGE 1 HOUR] AS b ON a.bus = b.sym",
)


@pytest.mark.parametrize("sql", _OF_TIME)
@given(given_rows=rows_of_streams([SHIFT, QUOTE]), cuts=_CUTS)
def test_times_of_day_are_ordered_and_grouped_as_sql_does(sql, given_rows, cuts):
    found = {
        slide: evaluated(f"{sql.replace('{}', f'shift [RANGE 1 HOUR{slide}]')} EMIT CHANGES", given_rows, cuts)
        for slide in ("", " SLIDE 10 MINUTES")
    }
    for tau in range(_us(EPOCH), END_US, 1_800_000_000):
        expected = expected_at(sql.replace("{}", "shift [RANGE 1 HOUR]"), given_rows, tau)
        for slide, changes in found.items():
            assert rows_at(changes, tau) == expected, (slide, tau)


_FRAME = "PARTITION BY sym ORDER BY t ROWS BETWEEN {} PRECEDING AND CURRENT ROW"
_TRADES = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, 2, None]), st.integers(0, 12)), max_size=9
)


def _trades(rows):
    schema = {"sym": pl.String(), "px": pl.Float64(), "n": pl.Int64(), "t": pl.Datetime("us", "UTC")}
    data = [(sym, None if n is None else n / 2, n, EPOCH + timedelta(minutes=at)) for sym, n, at in rows]
    return {"trade": pl.DataFrame(data, schema=schema, orient="row")}


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("where", ["", " WHERE n > 0"])
@given(drawn=_TRADES, cuts=_CUTS)
def test_frames_of_rows_where_each_row_of_a_partition_has_its_time(before, where, drawn, cuts):
    first = {(sym, time): (sym, n, time) for sym, n, time in reversed(drawn)}
    rows = _trades(list(first.values()))
    frame = _FRAME.format(before)
    sql = f"SELECT sym, n, SUM(n) OVER ({frame}) AS s, COUNT(*) OVER ({frame}) AS c FROM trade{where}"
    changes = evaluated(sql, rows, cuts)
    expected = expected_at(sql.replace("FROM trade", "FROM trade [RANGE UNBOUNDED]"), rows, END_US)
    assert rows_at(changes, END_US) == expected


@given(drawn=_TRADES, cuts=_CUTS)
@example(drawn=[("a", 1, 0), ("a", 2, 0), ("a", 2, 1)], cuts=[1])
def test_rows_of_one_time_share_the_aggregate_of_the_newest_rows(drawn, cuts):
    changes = evaluated(f"SELECT sym, n, SUM(n) OVER ({_FRAME.format(1)}) AS s FROM trade", _trades(drawn), cuts)
    expected: Counter[tuple[Any, ...]] = Counter()
    for sym, n, time in drawn:
        upto = sorted((at, number, n) for number, (of, n, at) in enumerate(drawn) if of == sym and at <= time)
        known = [value for _, _, value in upto[-2:] if value is not None]
        expected[sym, n, sum(known) if known else None] += 1
    assert rows_at(changes, END_US) == expected


_DOUBLES = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from([1e25, -1e25, 1e10, -1e10, 0.1]),
        st.integers(0, 5),
        st.integers(0, 90).map(lambda minutes: EPOCH + timedelta(minutes=minutes)),
    ),
    max_size=12,
)

_IN_ORDER = [1e25, 1e10, 1e-10, -1e10, 1e-30, -1e25]
# A row that comes later and before all others moves them by a place.
_MOVED = [("a", each, n + 1, EPOCH + timedelta(minutes=n)) for n, each in enumerate(_IN_ORDER)]
_MOVED.append(("a", 1e10, 0, EPOCH + timedelta(minutes=9)))


@pytest.mark.parametrize(
    "over",
    [
        "PARTITION BY sym",
        "ORDER BY n DESC",
        "ORDER BY n, t ROWS 5 PRECEDING",
        "ORDER BY n ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING",
        "ORDER BY n RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    ],
)
@given(drawn=_DOUBLES, cuts=_CUTS)
@example(drawn=_MOVED, cuts=[6])
def test_a_sum_of_doubles_leaves_as_it_came(over, drawn, cuts):
    rows = pl.DataFrame(drawn, schema=dtypes_of(TRADE.schema), orient="row")
    changes = evaluated(f"SELECT n, SUM(px) OVER ({over}) AS s FROM {T}", {"trade": rows}, cuts)
    rest = changes.group_by("n", "s").agg(pl.col("__weight").sum()).filter(pl.col("__weight") != 0)
    assert rest.height == 0


@pytest.mark.parametrize("where", ["", " WHERE n > 0"])
@given(drawn=_TRADES, cuts=_CUTS)
def test_rows_before_a_row_of_a_stream(where, drawn, cuts):
    order = "PARTITION BY sym ORDER BY t"
    first = {(sym, time): (sym, n, time) for sym, n, time in reversed(drawn)}
    functions = f"LAG(n, 2) OVER ({order}) AS l, FIRST_VALUE(n) OVER ({order} ROWS 1 PRECEDING) AS f"
    sql = f"SELECT sym, n, {functions} FROM trade{where}"
    assert rows_kept(sql) == {"2 rows per (sym)"}
    rows = _trades(list(first.values()))
    changes = evaluated(sql, rows, cuts)
    expected = expected_at(sql.replace("FROM trade", "FROM trade [RANGE UNBOUNDED]"), rows, END_US)
    assert rows_at(changes, END_US) == expected
    assert set(changes["__weight"]) <= {1, 2}


def rows_kept(sql):
    """Return the state of the window functions of a query."""
    states = state_of(bind(sql, CATALOG).plan)
    return {each.keeps for each in states if isinstance(each.node, WindowFunctions)}
