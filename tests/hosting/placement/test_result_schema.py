import polars as pl
import pyarrow as pa
import pytest
from kit.continuous import CATALOG, MOMENT, bound

from upstream.hosting.placement.result_schema import result_of
from upstream.operators.relations.plan.bounds import UnboundedError
from upstream.operators.relations.plan.nodes import Changes, Copies, Stream
from upstream.operators.relations.zsets import BEGINNING, TIME, WEIGHT

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
