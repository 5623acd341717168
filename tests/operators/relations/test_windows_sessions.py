"""SESSION against DuckDB, for any split into steps, and with a restart after each one."""

from collections import Counter
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import QueryError
from upstream.language import Catalog, bind
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.nodes import Stream
from upstream.operators.relations.streams import TOMBSTONE
from upstream.operators.relations.zsets import BEGINNING, dtypes_of
from upstream.operators.state.store import DictStore

S = Stream(
    "s",
    pa.schema({"k": pa.int64(), "g": pa.string(), "t": pa.timestamp("us", "UTC"), "v": pa.int64()}),
    key=("k",),
    event_time="t",
    updates=True,
)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
GAP, END = 3, 60
COUNTS = (
    "SELECT {by}, window_start, window_end, COUNT(*) AS n, SUM(v) AS v "
    "FROM SESSION(s{partition}, t, INTERVAL '3' SECONDS) GROUP BY {by}, window_start, window_end"
)
OF_DUCKDB = """
WITH marked AS (
  SELECT *, t - LAG(t) OVER (PARTITION BY {by} ORDER BY t) <= {gap} AS joins FROM rows
), numbered AS (
  SELECT *, COUNT(*) FILTER (joins IS NOT TRUE) OVER (PARTITION BY {by} ORDER BY t RANGE UNBOUNDED PRECEDING) AS number
  FROM marked
)
SELECT {by}, MIN(t), MAX(t) + {gap}, COUNT(*), SUM(v) FROM numbered GROUP BY {by}, number
"""
Row = tuple[int, str | None, int, int]


def moment(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


def frame(rows: list[Row]) -> pl.DataFrame:
    made = [(k, g, moment(t), v) for k, g, t, v in rows]
    return pl.DataFrame(made, schema=dtypes_of(S.schema), orient="row").with_columns(pl.lit(False).alias(TOMBSTONE))


def changes(sql: str, batches: list[list[Row]], *, restart: bool = False) -> list[tuple[object, ...]]:
    """The changes of a query: each batch has all rows before the earliest one of later batches."""
    plan = bind(sql, Catalog().with_stream(S)).plan
    store = DictStore()
    evaluation = Evaluation(store)
    evaluation.add("q", plan)
    found: list[tuple[object, ...]] = []
    for at, batch in enumerate(batches):
        later = [row[2] for each in batches[at + 1 :] for row in each]
        done = evaluation.step({"s": frame(batch)}, (min(later) if later else END) * 1_000_000)
        assert not done.failed, done.failed
        found += done.changes["q"].rows()
        if restart:
            evaluation.save()
            evaluation = Evaluation(store)
            evaluation.add("q", plan)
    if batches:
        assert evaluation.rows_kept == 0, "all sessions have ended, and left"
    return found


def sessions(rows: list[Row], by: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as engine:
        engine.sql("CREATE TABLE rows (k BIGINT, g VARCHAR, t BIGINT, v BIGINT)")
        if rows:
            engine.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)
        return engine.sql(OF_DUCKDB.format(by=by, gap=GAP)).fetchall()


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None]), st.integers(0, 30), st.integers(-3, 3)), max_size=25
)


@given(ROWS, st.lists(st.integers(0, 25), max_size=4), st.booleans(), st.sampled_from(["k", "g"]))
def test_sessions_are_those_of_duckdb_when_they_end_and_stay_for_a_gap(rows, cuts, restart, by):
    places = sorted({0, *(each for each in cuts if each < len(rows)), len(rows)})
    batches = [rows[begin:end] for begin, end in pairwise(places)]
    sql = COUNTS.format(by=by, partition="" if by == "k" else " PARTITION BY g")
    expected = sessions(rows, by)
    streamed = changes(f"{sql} EMIT ON WINDOW CLOSE", batches, restart=restart)
    assert Counter(streamed) == Counter(
        (key, moment(start), moment(end), n, v, end * 1_000_000, 1) for key, start, end, n, v in expected
    )
    counts: Counter[tuple[object, ...]] = Counter()
    for n, at, weight in changes(f"SELECT n FROM ({sql}) EMIT ON WINDOW CLOSE", batches, restart=restart):
        counts[n, at] += weight
    # Also those that come as equal ones leave.
    assert counts == Counter((n, end * 1_000_000) for _, _, end, n, _ in expected)
    relation = changes(sql, batches, restart=restart)
    assert Counter(relation) == Counter(streamed) + Counter(
        (key, moment(start), moment(end), n, v, (end + GAP) * 1_000_000, -1) for key, start, end, n, v in expected
    )


def test_sessions_of_a_filtered_stream_are_those_of_its_rows():
    rows: list[Row] = [(1, "a", 0, 1), (1, "a", 2, -1), (1, "b", 4, 2), (2, "a", 5, 3)]
    some = "(SELECT k + 0 AS j, t, v FROM s WHERE v > 0) PARTITION BY j, t"
    found = changes(
        f"SELECT j, window_start, SUM(v) AS v FROM SESSION({some}, INTERVAL '3' SECONDS) "
        "GROUP BY j, window_start, window_end EMIT ON WINDOW CLOSE",
        [rows],
    )
    assert sorted(row[:3] for row in found) == [(1, moment(0), 1), (1, moment(4), 2), (2, moment(5), 3)]


def test_a_row_exactly_a_gap_later_joins_and_each_row_has_the_bounds():
    rows = [(1, "a", 0, 1), (1, "a", 3, 2), (1, "a", 7, 3)]
    found = changes("SELECT v, window_start, window_end FROM SESSION(s, t, INTERVAL '3' SECONDS)", [rows])
    assert [(v, start, end) for v, start, end, *_ in found] == [
        (1, moment(0), moment(6)),
        (2, moment(0), moment(6)),
        (3, moment(7), moment(10)),
    ]


def test_rows_that_end_together_are_collapsed_and_a_later_query_is_never_certain():
    store = DictStore()
    evaluation = Evaluation(store)
    plan = bind(COUNTS.format(by="k", partition=""), Catalog().with_stream(S)).plan
    evaluation.add("q", plan, collapse=True)
    assert evaluation.step({"s": frame([(1, "a", 0, 1), (2, "a", 20, 1)])}, 22_000_000).changes["q"].height == 0
    assert evaluation.complete_from("q") == BEGINNING
    assert evaluation.due == 23_000_000
    found = evaluation.step({"s": frame([])}, 24_000_000).changes["q"].rows()
    assert [(row[0], row[-1]) for row in found] == [(2, 1)]


def test_an_end_after_the_year_9999_fails_its_query():
    evaluation = Evaluation(DictStore())
    evaluation.add("q", bind(COUNTS.format(by="k", partition=""), Catalog().with_stream(S)).plan)
    last = 253_402_300_799
    done = evaluation.step({"s": frame([(1, "a", last, 1)])}, (last + 10) * 1_000_000)
    assert isinstance(done.failed["q"], QueryError)


@pytest.mark.parametrize("window", ["SESSION(s PARTITION BY t, t, INTERVAL '3' SECONDS)"])
def test_a_partition_by_time_is_refused(window):
    with pytest.raises(Exception, match="PARTITION BY a time"):
        bind(f"SELECT k FROM {window}", Catalog().with_stream(S))
