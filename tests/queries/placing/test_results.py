"""The table of each query: its key identifies the rows at any time, and no part of the key is null."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from kit.continuous import CATALOG, END_US, FORMS, MOMENT, bound, rows_of_streams

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.zsets import BEGINNING, TIME, WEIGHT
from upstream.queries.placing.results import result_of
from upstream.queries.relations.bounds import UnboundedError
from upstream.queries.relations.nodes import Changes, Copies, Stream
from upstream.queries.relations.sharing import shareable

LATEST = (
    ("SELECT vehicle_id, speed FROM LATEST(buses)", ("vehicle_id",), ["vehicle_id", "speed"]),
    ("SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id", ("row_key",), ["row_key", "route_id", "n"]),
    ("SELECT COUNT(*) AS n FROM LATEST(buses)", ("row_key",), ["row_key", "n"]),
    ("SELECT COUNT(*) AS row_key FROM LATEST(buses)", ("row_key_",), ["row_key_", "row_key"]),
    ("SELECT speed FROM LATEST(buses)", ("row_key",), ["row_key", "speed", "copy"]),
    (("SELECT speed AS copy, vehicle_id AS copy_ FROM LATEST(buses) UNION ALL SELECT px, sym FROM trade [NOW] "
     "EMIT CHANGES"), ("row_key",), ["row_key", "copy", "copy_", "copy__"]),
    ("SELECT DISTINCT speed FROM LATEST(buses) WHERE speed > 1", ("row_key",), ["row_key", "speed"]),
    ("SELECT sym FROM trade [PARTITION BY sym ROWS 2 WHERE sym IS NOT NULL] WHERE sym > 'a' EMIT CHANGES",
     ("sym", "copy"), ["sym", "copy"]),
    (("SELECT vehicle_id, sym, bid FROM LATEST(buses) JOIN quote [PARTITION BY sym ROWS 1] ON route_id = sym "
     "EMIT CHANGES"),
     ("vehicle_id",), ["vehicle_id", "sym", "bid"]),
)  # fmt: skip


@pytest.mark.parametrize(("sql", "key", "names"), LATEST, ids=[each[0] for each in LATEST])
def test_a_relation_is_a_table_by_what_identifies_its_rows(sql: str, key: tuple[str, ...], names: list[str]) -> None:
    result = result_of(bound(sql).plan)
    assert (result.kind, result.key, result.schema.names) == ("latest", key, names)
    assert result.time is None
    assert isinstance(result.plan, Copies) == any(each.startswith("copy__") or each == "copy" for each in names[-1:])


def test_a_stream_is_a_feed_with_the_time_of_each_change() -> None:
    feed = result_of(bound("SELECT sym, px FROM trade").plan)
    assert (feed.kind, feed.key, feed.schema.names) == ("feed", (), ["sym", "px", "time"])
    assert feed.schema.field("time").type == MOMENT
    taken = result_of(bound("ISTREAM(SELECT sym AS time, px AS change_time FROM trade [RANGE 1 HOUR])").plan)
    assert taken.schema.names == ["time", "change_time", "change_time_"]


def test_rows_that_come_for_ever_and_never_leave_are_a_feed() -> None:
    feed = result_of(bound("SELECT * FROM trade EMIT CHANGES").plan)
    assert feed.kind == "feed"
    assert isinstance(feed.plan, Changes) and feed.plan.kind == "istream"


def test_rows_that_leave_without_a_bound_for_their_copies_are_refused() -> None:
    sql = (
        "SELECT a.t FROM trade AS a LEFT JOIN quote AS b ON a.sym = b.sym "
        "AND a.t BETWEEN b.t - INTERVAL '5' MINUTE AND b.t EMIT CHANGES"
    )
    with pytest.raises(UnboundedError, match="equal rows"):
        result_of(bound(sql).plan)


def test_a_key_of_floats_or_nested_values_is_text() -> None:
    schema = pa.schema({"k": pa.float64(), "l": pa.list_(pa.int64()), "t": MOMENT})
    for key in ("k", "l"):
        catalog = CATALOG.with_stream(Stream("odd", schema, key=(key,), event_time="t", updates=True))
        assert result_of(bound(f"SELECT {key} FROM LATEST(odd)", catalog).plan).key == ("row_key",)


def test_the_time_of_what_holds_from_the_beginning_is_null() -> None:
    result = result_of(bound("ISTREAM(SELECT COUNT(*) AS n FROM trade [RANGE 1 HOUR])").plan)
    changes = pl.DataFrame({"n": [0, 1], TIME: [BEGINNING, 1_000_000], WEIGHT: [1, 1]})
    rows = result.of(changes)
    assert rows.columns == ["n", "time", TIME, WEIGHT]
    assert rows["time"].dt.epoch("us").to_list() == [None, 1_000_000]


PLANS = {sql: bound(sql).plan for sql in FORMS}


@pytest.mark.parametrize("sql", FORMS)
def test_a_shared_plan_has_the_same_table(sql: str) -> None:
    one, other = result_of(PLANS[sql]), result_of(shareable(PLANS[sql]))
    assert (one.kind, one.key, one.schema, one.identity) == (other.kind, other.key, other.schema, other.identity)


@given(given_rows=rows_of_streams())
def test_no_two_rows_have_one_key_and_no_key_is_null(given_rows: dict[str, pl.DataFrame]) -> None:
    # An update stream has no rows without a key.
    given_rows["buses"] = given_rows["buses"].drop_nulls("vehicle_id")
    evaluation = Evaluation(DictStore())
    for sql, plan in PLANS.items():
        evaluation.add(sql, shareable(plan))
        evaluation.add(f"table of {sql}", shareable(result_of(plan).plan))
    outcome = evaluation.step(given_rows, END_US)
    assert not outcome.failed, outcome.failed
    for sql, plan in PLANS.items():
        result = result_of(plan)
        changes = result.of(outcome.changes[f"table of {sql}"])
        assert changes.columns == [*result.schema.names, TIME, WEIGHT]
        columns = plan.schema.names
        if result.kind == "latest":
            assert_keyed(changes, result.key)
            assert there(changes, columns) == there(outcome.changes[sql], columns), sql


def assert_keyed(changes: pl.DataFrame, key: tuple[str, ...]) -> None:
    counts: Counter[tuple[Any, ...]] = Counter()
    for _, at in changes.sort(TIME).group_by(TIME, maintain_order=True):
        for *values, weight in at.select(*key, WEIGHT).rows():
            assert None not in values
            counts[tuple(values)] += weight
        assert set(counts.values()) <= {0, 1}


def there(changes: pl.DataFrame, columns: list[str]) -> list[tuple[Any, ...]]:
    return changes.group_by(columns).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0).sort(columns).rows()
