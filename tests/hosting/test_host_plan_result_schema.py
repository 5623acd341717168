import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import CATALOG, MOMENT, bound

from upstream.hosting.host_plan import result_of, row_keys
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
