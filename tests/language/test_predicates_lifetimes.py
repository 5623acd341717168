"""Conditions on now(): at any time, the rows that SQL finds at that moment."""

import re
from datetime import timedelta

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import EPOCH, MOMENT, refused
from kit.evaluated import changes_of_frames, rows_at

from upstream.conf.errors import QueryRefusedError
from upstream.hosting.placement import placed
from upstream.language import Catalog, bind
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.bounds import state_of
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.plan.nodes import Lifetime, Stream, TimeRange, WindowOver, walk
from upstream.operators.relations.plan.normalize import normalized
from upstream.operators.relations.plan.properties import clock_of
from upstream.operators.relations.zsets import dtypes_of
from upstream.operators.state.store import DictStore

_COLUMNS = {"k": pa.string(), "n": pa.int64(), "t": MOMENT, "f": MOMENT, "u": MOMENT}
S = Stream("s", pa.schema(_COLUMNS), event_time="t")
OFFERS = Stream("offers", pa.schema(_COLUMNS), key=("k",), event_time="t", updates=True)
CATALOG = Catalog().with_stream(S).with_stream(OFFERS)
CATALOG = CATALOG.with_stream(Stream("stored", pa.schema(_COLUMNS), static=True))
END_US = int((EPOCH + timedelta(hours=9)).timestamp() * 1_000_000)
QUERIES = (
    "SELECT k, n FROM s WHERE t > now() - INTERVAL 1 HOUR",
    "SELECT k, n FROM s WHERE t >= current_timestamp - INTERVAL '1' HOUR AND n > 0",
    "SELECT k, COUNT(*) AS c, MAX(n) AS m FROM s WHERE t + INTERVAL '1' HOUR > now() GROUP BY k",
    "SELECT k, n FROM s WHERE now() < u AND k = 'a'",
    "SELECT k, n FROM LATEST(offers) WHERE t > now() - INTERVAL '1' HOUR",
    "SELECT k, n FROM LATEST(offers) WHERE f <= now() AND now() <= u",
    "SELECT k, n FROM LATEST(offers) WHERE now() BETWEEN f AND u",
    "SELECT k, n FROM LATEST(offers) WHERE t BETWEEN now() - INTERVAL '70' MINUTE AND now() - INTERVAL '10' MINUTE",
    "SELECT SUM(n) AS n FROM LATEST(offers) WHERE u >= now() AND f < now() + INTERVAL '30' MINUTE AND n > 0",
    "SELECT x.k, x.n, y.n AS m FROM s AS x JOIN LATEST(offers) AS y ON x.k = y.k WHERE x.t > now() - INTERVAL '1' HOUR",
    "SELECT x.n, y.n AS m FROM s AS x LEFT JOIN LATEST(offers) AS y ON x.k = y.k WHERE x.t >= now() - INTERVAL 1 HOUR",
    "SELECT x.n, y.n AS m FROM LATEST(offers) AS x LEFT JOIN LATEST(offers) AS y ON x.n = y.n WHERE y.u > now()",
    "SELECT k, n FROM LATEST(offers) WHERE t < now() - INTERVAL '10' MINUTES",
    "SELECT n, COUNT(*) AS c FROM LATEST(offers) WHERE t <= now() - INTERVAL '1' HOUR AND n >= 0 GROUP BY n",
    "SELECT x.k, y.n AS m FROM LATEST(offers) AS x LEFT JOIN LATEST(offers) AS y ON x.n = y.n WHERE now() > x.f",
    "SELECT k FROM (SELECT k, MAX(t) AS v FROM s GROUP BY k) AS q WHERE v < now() - INTERVAL '70' MINUTES",
    "SELECT k, c FROM (SELECT k, MAX(u) AS v, COUNT(*) AS c FROM LATEST(offers) GROUP BY k) AS q WHERE v > now()",
)
SILENT = "SELECT k, n FROM LATEST(offers) WHERE t < now() - INTERVAL '10' MINUTES"
_TIMES = st.sampled_from([0, 1, 20, 70, 150]).map(lambda minutes: EPOCH + timedelta(minutes=minutes))
_ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]), st.sampled_from([0, 1, None]), _TIMES, st.none() | _TIMES, st.none() | _TIMES,
        st.integers(0, 2),
    ),
    max_size=6, unique_by=lambda row: (row[0], row[2]),
)  # fmt: skip


def _expected(sql, frames, tau):
    database = duckdb.connect()
    database.execute("SET threads = 1; SET TimeZone = 'UTC'")
    moment = f"make_timestamptz({tau})"
    for name, rows in frames.items():
        database.register(f"r_{name}", rows.to_arrow())
        database.execute(f"CREATE VIEW {name} AS SELECT k, n, t, f, u FROM r_{name} WHERE t <= {moment}")
    newest = "(SELECT * FROM offers QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC) = 1)"
    sql = re.sub(r"now\(\)|current_timestamp", moment, sql.replace("LATEST(offers)", newest))
    found = {}
    for row in database.execute(sql).fetchall():
        found[row] = found.get(row, 0) + 1
    return found


@pytest.mark.parametrize("sql", QUERIES)
@pytest.mark.parametrize("form", [lambda plan: plan, shareable], ids=["bound", "shared"])
@given(rows=_ROWS, others=_ROWS)
def test_rows_are_there_as_sql_finds_them_at_that_moment(sql, form, rows, others):
    plan = form(bind(f"{sql} EMIT CHANGES", CATALOG).plan)
    assert clock_of(plan) == "event"
    schema = {**dtypes_of(S.schema), "__at": pl.Int64()}
    frames = {name: pl.DataFrame(each, schema=schema, orient="row") for name, each in (("s", rows), ("offers", others))}
    changes = changes_of_frames(plan, frames, [1, 2], END_US)
    hour = 3_600_000_000
    first = END_US - 9 * hour
    for tau in {first, first + hour, first + hour - 1, *changes["__time"], *(changes["__time"] - 1), END_US - 1} - {-1}:
        if tau >= first:
            assert rows_at(changes, tau) == _expected(sql, frames, tau), tau


@pytest.mark.parametrize("sql", QUERIES)
@given(rows=_ROWS, others=_ROWS)
def test_the_net_change_of_a_step_is_that_of_all_its_times(sql, rows, others):
    plan = bind(f"{sql} EMIT CHANGES", CATALOG).plan
    schema = dtypes_of(S.schema)
    frames = {name: [row[:-1] for row in each] for name, each in (("s", rows), ("offers", others))}
    given_ = {name: pl.DataFrame(each, schema=schema, orient="row") for name, each in frames.items()}
    each, net = Evaluation(DictStore()), Evaluation(DictStore())
    each.add("q", plan)
    net.add("q", plan, collapse=True)
    found = [], []
    for hours in range(-1, 7):
        now = END_US - (6 - hours) * 3_600_000_000 - 5 * 3_600_000_000
        for evaluation, changes in zip((each, net), found, strict=True):
            changes.append(evaluation.step(given_ if hours < 0 else {}, now).changes["q"])
        assert rows_at(pl.concat(found[0])) == rows_at(pl.concat(found[1]))


def test_of_a_stream_it_is_a_window_and_it_is_moved_below_joins():
    plan = bind(QUERIES[0], CATALOG).plan
    assert [each.window for each in walk(plan) if isinstance(each, WindowOver)] == [TimeRange(3_600_000_000)]
    plan = bind(QUERIES[9], CATALOG).plan
    assert not [each for each in walk(plan) if isinstance(each, Lifetime)]
    plan = bind(QUERIES[5], CATALOG).plan
    assert normalized(plan) == plan
    assert len(placed(shareable(plan)).fragments) == 1
    found = next(each for each in state_of(plan) if isinstance(each.node, Lifetime))
    assert found.keeps == "rows, and their changes, until their last time"
    found = next(each for each in state_of(bind(SILENT, CATALOG).plan) if isinstance(each.node, Lifetime))
    assert found.keeps == "rows, and their changes, until they come"


@pytest.mark.parametrize(
    ("sql", "part", "at"),
    [
        ("SELECT now() AS x FROM s", "WHERE t > now() - INTERVAL '1' HOUR", "now()"),
        ("SELECT k FROM s WHERE t > now() - INTERVAL '1' HOUR OR n > 1", "WHERE t > now()", "now()"),
        ("SELECT k FROM s WHERE n > now()", "this is BIGINT", "n"),
        ("SELECT k FROM s WHERE CAST(t AS DATE) > now()", "a TIMESTAMP column", "CAST(t AS DATE)"),
        ("SELECT k FROM s WHERE u < now()", "never leave. What to do: read newest rows, LATEST(s)", "u < now()"),
        ("SELECT k FROM stored WHERE u < now()", "no stream", "u < now()"),
        ("SELECT k FROM s WHERE t > now() - INTERVAL '1' MONTH", "no fixed length", "INTERVAL '1' MONTH"),
        ("SELECT k FROM stored WHERE u > now()", "no stream", "u > now()"),
        ("SELECT x.k FROM s AS x JOIN s [NOW] AS y ON x.t > now()", "WHERE t > now()", "now()"),
    ],
)
def test_elsewhere_it_is_refused_with_what_works(sql, part, at):
    refused(sql, part, at=at, catalog=CATALOG)


def test_rows_that_leave_are_not_evaluated_by_arrival():
    evaluation = Evaluation(DictStore(), clock="arrival")
    with pytest.raises(QueryRefusedError, match="leave as the low-watermark passes"):
        evaluation.add("q", bind(QUERIES[4], CATALOG).plan)


def test_silent_keys_are_a_row_each_and_a_later_query_starts_with_them():
    minutes = [EPOCH + timedelta(minutes=each) for each in range(60)]
    evaluation = Evaluation(DictStore())
    evaluation.add("first", bind(f"{SILENT} AND n >= 0", CATALOG).plan)

    def step(rows, minute):
        made = pl.DataFrame([(*each, None, None) for each in rows], schema=dtypes_of(S.schema), orient="row")
        now = int(minutes[minute].timestamp() * 1_000_000)
        return {name: rows_at(each) for name, each in evaluation.step({"offers": made}, now).changes.items()}

    step([("a", 1, minutes[0]), ("b", 2, minutes[0])], 1)
    for minute in range(1, 20):  # a reports each minute, and b is silent
        found = step([("a", 1, minutes[minute])], minute + 1)
        assert found["first"] == ({("b", 2): 1} if minute == 10 else {})
    assert evaluation.rows_kept <= 2 * 10 + 2
    evaluation.add("later", bind(f"{SILENT} AND n >= 0", CATALOG).plan)
    evaluation.add("other", bind(f"SELECT COUNT(*) AS c FROM ({SILENT} AND n >= 0) AS q", CATALOG).plan)
    found = step([], 25)
    assert found == {"first": {}, "later": {("b", 2): 1}, "other": {(1,): 1}}
    assert step([("b", 3, minutes[26])], 30)["first"] == {("b", 2): -1, ("a", 1): 1}
