import math
import pickle
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import CATALOG, FORMS, MOMENT, bound, relation
from kit.hosting import Versions

from upstream.conf.errors import QueryRefusedError
from upstream.hosting import host_plan
from upstream.hosting.host_plan import HostPlan, HostPlans, named, rehearse, result_of, row_keys
from upstream.language import Catalog, bind
from upstream.operators.relations.plan.bounds import UnboundedError
from upstream.operators.relations.plan.nodes import Changes, Copies, StoredTable, Stream
from upstream.operators.relations.zsets import BEGINNING, TIME, WEIGHT

TRADES = "SELECT sym, MAX(px) AS hi FROM trade [RANGE 10 MINUTES] GROUP BY sym"
SUMS = "SELECT sym, SUM(n) AS s FROM trade [RANGE 5 MINUTES] GROUP BY sym"
NEWEST = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"
JOIN = "SELECT a.sym, b.bid FROM trade [NOW] AS a JOIN quote [PARTITION BY sym ROWS 1] AS b ON a.sym = b.sym"
VERSIONS = Versions(
    {1: {"t": (1, TRADES), "s": (2, SUMS), "n": (3, NEWEST), "j": (4, JOIN)}, 2: {"t": (1, TRADES), "x": (9, JOIN)}}
)


def test_queries_over_the_same_streams_share_rows_and_an_evaluation():
    plan = HostPlan.of(VERSIONS(1), range(4))
    trades, sums, newest, join = (plan.queries[number] for number in (1, 2, 3, 4))
    assert trades.domain == sums.domain
    assert (trades.domain.streams, trades.domain.clock) == (("trade",), "event")
    assert newest.domain.clock == "arrival"
    assert join.domain.streams == ("quote", "trade")
    assert [each.group for each in trades.fragments] == [each.group for each in sums.fragments]
    assert trades.fragments[0].group != join.fragments[0].group
    fragments = [each for query in plan.queries.values() for each in query.fragments]
    for each in fragments:
        assert [route.name in plan.routes[route.stream.name] for route in each.routes] == [True] * len(each.routes)
        for other in fragments:
            same = (each.domain, each.routes) == (other.domain, other.routes)
            assert (each.group == other.group) == same


def test_a_stream_has_a_routing_of_newest_rows_and_another_of_every_row():
    def routes(*texts):
        plan = HostPlan.of(Versions({1: {f"q{at}": (at, text) for at, text in enumerate(texts)}})(1), range(4))
        assert not plan.refused
        return plan.readers("buses"), len(plan.routes["buses"])

    every = "SELECT vehicle_id, COUNT(*) AS n FROM buses [RANGE 10 MINUTES] GROUP BY vehicle_id"
    assert routes(NEWEST) == ((True, False), 1)
    assert routes(NEWEST, "SELECT vehicle_id FROM LATEST(buses) WHERE speed > 1") == ((True, False), 1)
    assert routes(NEWEST, every) == ((True, True), 2)
    assert routes(every) == ((False, True), 1)
    # A window beside LATEST needs event times.
    both = "SELECT a.speed FROM LATEST(buses) AS a JOIN buses [NOW] AS b ON a.vehicle_id = b.vehicle_id"
    assert routes(both) == ((False, True), 1)


def test_results_need_a_shuffle_if_several_shards_of_the_second_stage_compute_them():
    def spreads(text):
        return HostPlan.of(Versions({1: {"t": (1, TRADES), "x": (2, text)}})(1), range(4)).spreads_results

    assert not spreads(SUMS)
    assert not spreads("SELECT COUNT(*) AS n FROM LATEST(buses)")  # one shard computes it
    assert spreads(NEWEST)


def test_what_two_versions_share_is_not_planned_again():
    before = HostPlan.of(VERSIONS(1), range(4))
    with patch.object(host_plan, "placed", wraps=host_plan.placed) as calls:
        plan = HostPlan.of(VERSIONS(2), range(4), before)
    assert calls.call_count == 1
    assert plan.queries[1] is before.queries[1]
    alone = HostPlan.of(VERSIONS(2), range(4))
    assert plan.queries == alone.queries
    assert plan.routes == alone.routes
    other = HostPlan.of(VERSIONS(2), range(3), before)
    assert other.queries == HostPlan.of(VERSIONS(2), range(3)).queries


def test_a_query_that_cannot_be_placed_does_not_disturb_the_others():
    def refuse(plan):
        raise RecursionError("not this one")

    with patch.object(host_plan, "placed", refuse):
        plan = HostPlan.of(VERSIONS(1), range(4))
    assert plan.queries == {}
    assert plan.refused[3] == ("n", "not this one")
    assert HostPlan.of(VERSIONS(2), range(4), plan).refused.keys() == {1}


def test_a_batch_that_was_planned_before_a_query_was_dropped_runs_again_without_it():
    plans = HostPlans(VERSIONS, range(4), opened=2)
    assert plans(1).queries.keys() == {1}
    assert plans(2).queries.keys() == {1, 9}
    assert HostPlans(VERSIONS, range(4), opened=1)(1).queries.keys() == {1, 2, 3, 4}


def test_plans_are_remembered_by_the_process():
    plans = HostPlans(VERSIONS, range(4))
    assert plans(1) is plans(1)
    assert plans(2) is not plans(1)
    assert HostPlans(VERSIONS, range(3))(1) is not plans(1)
    for _ in range(10):
        HostPlans(Versions({1: {"t": (1, TRADES)}}), range(4))(1)
    assert pickle.loads(pickle.dumps(HostPlans(named, range(4)))).slots == (0, 1, 2, 3)


def test_names_are_the_same_in_every_process():
    assert named("a", 1) == named("a", 1) == "391d545b6971354e"
    assert named("a", 1) != named("a", 2)


def test_all_forms_can_be_planned():
    versions = Versions({1: {f"q{at}": (at, text) for at, text in enumerate(FORMS)}})
    assert HostPlan.of(versions(1), range(4)).refused == {}


def rehearsed(text: str) -> None:
    rehearse(relation(text), "q", "/nowhere/q", 2)


def test_what_can_be_hosted_passes_and_no_table_is_made(tmp_path):
    rehearse(relation(FORMS[0]), "q", str(tmp_path / "q"), 1)
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_in_the_words_of_the_query():
    with pytest.raises(QueryRefusedError, match=r"lpad\(sym, 2000000000"):
        rehearsed("SELECT COUNT(*) AS n FROM trade [NOW] GROUP BY lpad(sym, 2000000000)")


def test_an_interval_is_no_column_of_a_table():
    with pytest.raises(QueryRefusedError, match=r"'d' is an interval.*timestampdiff"):
        rehearsed("SELECT t - TIMESTAMP '2024-01-01' AS d FROM trade")
    rehearsed("SELECT sym FROM trade WHERE t - TIMESTAMP '2024-01-01' > INTERVAL 1 DAY 2 HOURS")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("SELECT * FROM tagged", "'tags'"),
        ("SELECT id, deep FROM tagged", "'deep'"),
        ("SELECT id FROM tagged WHERE tags IS NOT NULL", "'tags'"),
        ("SELECT COUNT(*) AS n FROM tagged GROUP BY tags", "'tags'"),
    ],
)
def test_maps_are_refused_where_a_query_uses_them(text, column):
    tags = pa.map_(pa.string(), pa.int32())
    columns = pa.schema([("id", pa.int64()), ("tags", tags), ("deep", pa.struct([("lists", pa.list_(tags))]))])
    catalog = Catalog().with_relation(Stream("tagged", columns, static=True, table=StoredTable("/t", "id", 0)))
    rehearse(bind("SELECT id FROM tagged", catalog).plan, "q", "/nowhere/q", 2)
    with pytest.raises(QueryRefusedError, match=rf"{column} is of type .*MAP<STRING, INT>.*map_entries"):
        rehearse(bind(text, catalog).plan, "q", "/nowhere/q", 2)


@pytest.mark.parametrize("error", [AssertionError("odd"), RecursionError("odd"), OverflowError("odd")])
def test_any_error_of_planning_is_a_refusal(error):
    with (
        patch.object(host_plan, "placed", side_effect=error),
        pytest.raises(QueryRefusedError, match=f"cannot be planned: {type(error).__name__}: odd"),
    ):
        rehearsed(FORMS[0])


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
def test_a_relation_is_a_table_by_what_identifies_its_rows(sql, key, names):
    result = result_of(bound(sql).plan)
    assert (result.kind, result.key, result.schema.names) == ("latest", key, names)
    assert result.time is None
    assert isinstance(result.plan, Copies) == any(each.startswith("copy__") or each == "copy" for each in names[-1:])


def test_a_stream_is_a_feed_with_the_time_of_each_change():
    feed = result_of(bound("SELECT sym, px FROM trade").plan)
    assert (feed.kind, feed.key, feed.schema.names) == ("feed", (), ["sym", "px", "time"])
    assert feed.schema.field("time").type == MOMENT
    taken = result_of(bound("ISTREAM(SELECT sym AS time, px AS change_time FROM trade [RANGE 1 HOUR])").plan)
    assert taken.schema.names == ["time", "change_time", "change_time_"]


def test_rows_that_come_for_ever_and_never_leave_are_a_feed():
    feed = result_of(bound("SELECT * FROM trade EMIT CHANGES").plan)
    assert feed.kind == "feed"
    assert isinstance(feed.plan, Changes) and feed.plan.kind == "istream"


def test_rows_that_leave_without_a_bound_for_their_copies_are_refused():
    sql = (
        "SELECT a.t FROM trade AS a LEFT JOIN quote AS b ON a.sym = b.sym "
        "AND a.t BETWEEN b.t - INTERVAL '5' MINUTE AND b.t EMIT CHANGES"
    )
    with pytest.raises(UnboundedError, match="equal rows"):
        result_of(bound(sql).plan)


def test_a_key_of_floats_or_nested_values_is_text():
    schema = pa.schema({"k": pa.float64(), "l": pa.list_(pa.int64()), "t": MOMENT})
    for key in ("k", "l"):
        catalog = CATALOG.with_stream(Stream("odd", schema, key=(key,), event_time="t", updates=True))
        assert result_of(bound(f"SELECT {key} FROM LATEST(odd)", catalog).plan).key == ("row_key",)


def test_the_time_of_what_holds_from_the_beginning_is_null():
    result = result_of(bound("ISTREAM(SELECT COUNT(*) AS n FROM trade [RANGE 1 HOUR])").plan)
    changes = pl.DataFrame({"n": [0, 1], TIME: [BEGINNING, 1_000_000], WEIGHT: [1, 1]})
    rows = result.of(changes)
    assert rows.columns == ["n", "time", TIME, WEIGHT]
    assert rows["time"].dt.epoch("us").to_list() == [None, 1_000_000]


NASTY = st.none() | st.text(alphabet="a,\\N|[]", max_size=4)
VALUES = {
    pa.string(): NASTY,
    pa.list_(pa.string()): st.none() | st.lists(NASTY, max_size=3),
    pa.list_(pa.list_(pa.string())): st.none() | st.lists(st.none() | st.lists(NASTY, max_size=2), max_size=2),
    pa.struct({"x": pa.string(), "y": pa.list_(pa.string())}): st.none()
    | st.fixed_dictionaries({"x": NASTY, "y": st.none() | st.lists(NASTY, max_size=2)}),
    pa.float64(): st.none() | st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 0.1, 1e300]),
    pa.binary(): st.none() | st.binary(max_size=2),
    pa.int8(): st.none() | st.integers(-128, 127),
    pa.bool_(): st.none() | st.booleans(),
    pa.decimal128(12, 3): st.none() | st.sampled_from([Decimal("1.000"), Decimal("-0.001"), Decimal("0.000")]),
    pa.date32(): st.none() | st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    pa.timestamp("us", "UTC"): st.none()
    | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(lambda each: each.replace(tzinfo=timezone.utc)),
}


@given(st.data())
def test_texts_are_equal_for_equal_rows_only(data):
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=12))
    names = [f"c{at}" for at in range(len(kinds))]
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    texts = row_keys(pa.table(columns, names=names), names).to_pylist()
    for one, text in zip(rows, texts, strict=True):
        for other, its in zip(rows, texts, strict=True):
            assert (text == its) == (one == other), (one, other, text, its)


def test_the_texts_stay_as_they_are():
    table = pa.table(
        {
            "s": ["a,b", None, "\\N"],
            "l": pa.array([["x", None], [], None], pa.list_(pa.string())),
            "f": [-0.0, math.nan, 1.5],
            "b": pa.array([b"\x00\xff", b"", None], pa.binary()),
        }
    )
    assert row_keys(table, ["s", "l", "f", "b"]).to_pylist() == [
        "a\\,b,x\\,\\\\N\\,,0,00ff",
        "\\N,,nan,",
        "\\\\N,\\N,1.5,\\N",
    ]


@pytest.mark.parametrize("rows", [0, 2])
def test_without_columns_all_rows_have_one_text(rows):
    assert row_keys(pa.table({"a": pa.array([1] * rows, pa.int64())}), []).to_pylist() == [""] * rows


def test_parts_of_tables_and_slices_are_read_in_place():
    lists: Any = pa.chunked_array([pa.array([["a"], ["b", "c"], None]).slice(1), pa.array([["d"]])])
    assert row_keys(pa.table({"l": lists}), ["l"]).to_pylist() == ["b\\,c\\,", "\\N", "d\\,"]


def test_a_part_without_streams_that_makes_too_many_rows_is_refused():
    series = "GENERATE_SERIES(1, 3000) AS a(x), GENERATE_SERIES(1, 3000) AS b(y)"
    with pytest.raises(QueryRefusedError, match="a step makes 9,000,000 rows"):
        rehearsed(f"SELECT a.x, b.y FROM {series}")
    with pytest.raises(QueryRefusedError, match="a step makes 9,000,000 rows"):
        rehearsed(f"SELECT sym FROM trade [NOW], (SELECT COUNT(*) AS n FROM {series}) AS c")
