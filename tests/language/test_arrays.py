"""UNNEST, EXPLODE and LATERAL VIEW: the elements of arrays, beside DuckDB."""

from collections import Counter
from datetime import timedelta

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import EPOCH, MOMENT, refused
from kit.evaluated import changes_of_frames, rows_at

from upstream.hosting.placement import placed
from upstream.language import Catalog, bind
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.plan.nodes import Explode, Stream, walk
from upstream.operators.relations.plan.properties import key_of, never_null
from upstream.operators.relations.zsets import dtypes_of

_COLUMNS = {"k": pa.string(), "xs": pa.list_(pa.int64()), "ws": pa.list_(pa.string()), "t": MOMENT}
S = Stream("s", pa.schema(_COLUMNS), event_time="t")
NEWEST = Stream("news", pa.schema(_COLUMNS), key=("k",), event_time="t", updates=True)
CATALOG = Catalog().with_stream(S).with_stream(NEWEST)
END_US = int((EPOCH + timedelta(hours=9)).timestamp() * 1_000_000)
U = "FROM s{0} CROSS JOIN UNNEST(xs) AS u(x)"
OUTER = "SELECT k, unnest(CASE WHEN len(xs) > 0 THEN xs ELSE [NULL] END) AS x FROM s"
# Each text, and DuckDB's if it is another one.
QUERIES = {
    f"SELECT k, x {U}": "",
    f"SELECT k, u.x {U} WHERE x > 1 AND k = 'a'": "",
    "SELECT k, x FROM s{0}, UNNEST(s.xs) AS u(x)": "",
    "SELECT k, x FROM s{0} LATERAL VIEW EXPLODE(xs) u AS x": f"SELECT k, x {U}",
    "SELECT k, x FROM s{0} LEFT JOIN LATERAL UNNEST(xs) AS u(x) ON TRUE": OUTER,
    "SELECT k, x FROM s{0} LATERAL VIEW OUTER EXPLODE(xs) AS x": OUTER,
    "SELECT k, p, x FROM s{0} LATERAL VIEW POSEXPLODE(xs) u AS p, x":
        "SELECT k, generate_subscripts(xs, 1) - 1 AS p, unnest(xs) AS x FROM s",
    "SELECT k, x, n FROM s{0} CROSS JOIN UNNEST(xs) WITH ORDINALITY AS u(x, n)":
        "SELECT k, unnest(xs) AS x, generate_subscripts(xs, 1) AS n FROM s",
    "SELECT k, EXPLODE(xs) AS x FROM s{0} WHERE k > ''": "SELECT k, unnest(xs) AS x FROM s WHERE k > ''",
    "SELECT x, w FROM s{0} LATERAL VIEW EXPLODE(xs) u AS x LATERAL VIEW EXPLODE(ws) v AS w":
        "SELECT x, w FROM s CROSS JOIN UNNEST(xs) AS u(x) CROSS JOIN UNNEST(ws) AS v(w)",
    f"SELECT x, COUNT(*) AS n, MAX(k) AS m {U} GROUP BY x": "",
    "SELECT x FROM UNNEST(ARRAY(1, 2, NULL)) AS u(x)": "SELECT x FROM UNNEST([1, 2, NULL]) AS u(x)",
    "SELECT k, x FROM UNNEST(ARRAY(1, 2)) AS u(x) LEFT JOIN s{0} ON SIZE(xs) = x":
        "SELECT k, x FROM UNNEST([1, 2]) AS u(x) LEFT JOIN s ON LEN(xs) = x",
    "SELECT k FROM s{0} WHERE k NOT IN (SELECT x FROM EXPLODE(ARRAY('a', 'x')) AS u(x))":
        "SELECT k FROM s WHERE k NOT IN ('a', 'x')",
    "SELECT COUNT(*) AS n, SUM(g) AS t, MAX(k) AS m FROM GENERATE_SERIES(1, 10, 3) AS g, s{0}":
        "SELECT COUNT(*) AS n, SUM(g) AS t, MAX(k) AS m FROM GENERATE_SERIES(1, 10, 3) AS g(g), s",
    "SELECT k, g FROM s{0}, GENERATE_SERIES(SIZE(xs), 0, -1) AS g":
        "SELECT k, unnest(generate_series(len(xs), 0, -1)) AS g FROM s",
    "SELECT k, HOUR(g) AS h FROM s{0} CROSS JOIN GENERATE_SERIES(t, t + INTERVAL '2' HOURS, INTERVAL 90 MINUTES) AS g":
        "SELECT k, hour(unnest(generate_series(t, t + INTERVAL 2 HOURS, INTERVAL 90 MINUTES))) AS h FROM s",
    "SELECT g, n, x FROM GENERATE_SERIES(DATE '2024-01-01', DATE '2024-01-07', INTERVAL '3' DAYS) "
    "WITH ORDINALITY AS u(g, n), UNNEST(ARRAY(n, 0)) AS v(x) WHERE x > 1":
        "SELECT g::DATE, n, n AS x FROM (SELECT unnest(generate_series(DATE '2024-01-01', DATE '2024-01-07', "
        "INTERVAL 3 DAYS)) AS g, unnest([1, 2, 3]) AS n) WHERE n > 1",
}  # fmt: skip
_ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.none() | st.lists(st.sampled_from([1, 2, 2, None]), max_size=3),
        st.none() | st.lists(st.sampled_from(["x", None]), max_size=2),
        st.sampled_from([0, 1, 70, 150]).map(lambda minutes: EPOCH + timedelta(minutes=minutes)),
        st.integers(0, 2),
    ),
    max_size=6,
)


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("form", [lambda plan: plan, shareable], ids=["bound", "shared"])
@given(rows=_ROWS)
def test_elements_are_what_sql_finds_at_any_time(sql, form, rows):
    plan = form(bind(f"{sql.format(' [RANGE 1 HOUR]')} EMIT CHANGES", CATALOG).plan)
    frame = pl.DataFrame(rows, schema={**dtypes_of(S.schema), "__at": pl.Int64()}, orient="row")
    changes = changes_of_frames(plan, {"s": frame}, [1, 2], END_US)
    database = duckdb.connect()
    database.execute("SET threads = 1; SET TimeZone = 'UTC'")
    database.register("r", frame.to_arrow())
    for tau in {*changes["__time"], END_US}:
        moment = f"make_timestamptz({tau})"
        database.execute(
            f"CREATE OR REPLACE VIEW s AS SELECT * FROM r WHERE t <= {moment} AND t > {moment} - INTERVAL 1 HOUR"
        )
        found = Counter(database.execute((QUERIES[sql] or sql).format("")).fetchall())
        assert rows_at(changes, tau) == found, tau


def test_a_row_with_its_place_is_known_by_both_and_stays_where_it_is():
    plan = shareable(
        bind("SELECT k, x, n FROM LATEST(news) CROSS JOIN UNNEST(xs) WITH ORDINALITY AS u(x, n)", CATALOG).plan
    )
    exploded = next(each for each in walk(plan) if isinstance(each, Explode))
    assert key_of(exploded) == ("k", "position")
    assert "position" in never_null(exploded)
    assert len(placed(plan).fragments) == 1
    assert placed(plan).second is None


@pytest.mark.parametrize(
    ("sql", "part", "at"),
    [
        ("SELECT x FROM UNNEST(xs) AS u(x)", "FROM s CROSS JOIN UNNEST(xs) AS t(x)", "UNNEST(xs) AS u(x)"),
        ("SELECT x FROM UNNEST(1) AS u(x)", "this is of INT", "UNNEST(1)"),
        ("SELECT x FROM UNNEST(ARRAY(1)) [NOW] AS x", "not a stream", "[NOW]"),
        ("SELECT x FROM UNNEST(ARRAY()) AS u(x)", "one of them not NULL", "ARRAY()"),
        (
            "SELECT g FROM GENERATE_SERIES(1, 2, INTERVAL '1' DAY) AS g",
            "two times",
            "GENERATE_SERIES(1, 2, INTERVAL '1' DAY)",
        ),
        ("SELECT x FROM s CROSS JOIN UNNEST(k) AS u(x)", "this is of STRING", "UNNEST(k)"),
        ("SELECT x FROM s JOIN UNNEST(xs) AS u(x) ON x > 3", "write it into WHERE", "x > 3"),
        ("SELECT x FROM s RIGHT JOIN UNNEST(xs) AS u(x) ON TRUE", "CROSS JOIN or LEFT JOIN", ""),
        ("SELECT x FROM s CROSS JOIN UNNEST(xs) AS u(x, y)", "AS t(x)", "AS u(x, y)"),
        ("SELECT x FROM s LATERAL VIEW POSEXPLODE(xs) u AS x", "AS t(pos, col)", ""),
        ("SELECT x FROM s u(x)", "lists of column names", "("),
        ("SELECT EXPLODE(xs) AS x, EXPLODE(ws) AS w FROM s", "LATERAL VIEW EXPLODE", "EXPLODE(ws) AS w"),
        ("SELECT EXPLODE(xs) + 1 AS x FROM s", "write it in FROM", "EXPLODE(xs)"),
        ("SELECT x FROM s, LATERAL (SELECT 1)", "LATERAL is not supported", "LATERAL"),
        ("SELECT k FROM s WHERE EXISTS (SELECT 1 FROM news [NOW] n CROSS JOIN UNNEST(s.xs) AS u(x))", "around", ""),
    ],
)
def test_what_is_refused(sql, part, at):
    refused(sql, part, at=at, catalog=CATALOG)
