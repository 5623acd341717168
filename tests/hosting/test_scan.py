"""The scan: each row to the shard that needs it, bounds to all."""

import json
import shutil
import struct
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kit.continuous import BUSES, CATALOG, EPOCH, TRADE, rows_of_streams
from kit.hosting import Arrivals, Tables, Versions, frame, run, scanned
from kit.local_host import LocalHost

from upstream.core.rows.event_times import UTC_TIMES, TimeFormat
from upstream.core.rows.frames import from_frame, to_frame
from upstream.core.rows.system_column import SYSTEM
from upstream.core.watermark.bounds import AFTER_ALL, BEFORE_ALL, beginning
from upstream.expressions.nodes import Field
from upstream.expressions.types import call
from upstream.hosting import host_plan
from upstream.hosting.host_plan import HostPlans
from upstream.hosting.journal import pinned
from upstream.hosting.messages import Command
from upstream.hosting.placement import Fragment, Placement, Route
from upstream.hosting.scan import ScanStep, _rows, as_sent, in_order, oldest_arrival, rows_of, slots_of
from upstream.operators.relations.queue_project import ARRIVAL
from upstream.operators.relations.streams import SEQUENCE, TOMBSTONE
from upstream.operators.runtime.feeds import punctuation_rows

TEXT = "SELECT sym, MAX(px) AS hi FROM trade [RANGE 10 MINUTES] GROUP BY sym"
SYM = Field("sym", pa.string())
N = Field("n", pa.int64())
START_US = int(EPOCH.timestamp() * 1_000_000)


def scan(table, by=(SYM,), slots=(70, 80, 90), form=UTC_TIMES):
    def placed(plan):
        return Placement((Fragment(plan, (Route(TRADE, by),), None),), None)

    with patch.object(host_plan, "placed", placed):
        versions = Versions({1: {"q": (1, TEXT)}})
        step = ScanStep(lambda: Command(0, 1), HostPlans(versions, slots), "trade", form, keeps_late=True)
        return [row for batch in step(iter(table.to_batches())) for row in batch.to_pylist()]


@given(rows=rows_of_streams(), by=st.sampled_from([(SYM,), (SYM, N), ()]))
def test_each_row_goes_to_one_shard_with_its_equals(rows, by):
    came = rows["trade"]
    found = scan(scanned(TRADE, came, list(range(1, came.height + 1)), {"f": 5}), by)
    frames = [(each["slot"], from_frame(each["frame"])) for each in found if each["frame"] is not None]
    assert len({slot for slot, _ in frames}) == len(frames)
    slots: dict[tuple[Any, ...], int] = {}
    for slot, table in frames:
        for row in table.select([each.name for each in by if isinstance(each, Field)]).to_pylist():
            assert slots.setdefault(tuple(row.values()), slot) == slot
    if frames:
        together = in_order([table for _, table in frames]).select(TRADE.schema.names)
        assert together.equals(came.to_arrow().cast(TRADE.schema))


def test_every_shard_hears_of_bounds_and_of_the_newest_arrival():
    rows = frame(TRADE, [("a", 1.0, 1, EPOCH)])
    found = scan(scanned(TRADE, rows, [7], {"f": START_US, "g": None}))
    controls = [json.loads(each["control"]) for each in found if each["frame"] is None]
    assert [each["slot"] for each in found if each["frame"] is None] == [70, 80, 90]
    assert controls[0] == controls[1] == controls[2]
    assert controls[0] == {
        "kind": "scan",
        "stream": "trade",
        "bounds": {"f": START_US, "g": AFTER_ALL},
        "arrival": 7,
        "newest": START_US,
    }


@pytest.mark.parametrize(("zone", "hours"), [("UTC", 0), ("Europe/Paris", -1)])
def test_a_date_is_the_instant_at_which_its_day_begins(zone, hours):
    dated = replace(TRADE, schema=TRADE.schema.set(3, pa.field("t", pa.date32())))
    days = [date(2026, 1, 3), date(2026, 1, 2), None]
    table = scanned(dated, frame(dated, [("a", 1.0, 1, day) for day in days]), [7, 7, 7])
    times = pa.array([date(2026, 1, 2), None, beginning(pa.date32()).as_py()], pa.date32())
    table = pa.concat_tables([table, punctuation_rows(table.schema, ["f", "g", "h"], 7, t=times)])
    found = scan(table, form=TimeFormat(None, zone))
    instants = [day and datetime(*day.timetuple()[:3], tzinfo=timezone.utc) + timedelta(hours=hours) for day in days]
    (sent,) = (from_frame(each["frame"]) for each in found if each["frame"] is not None)
    assert in_order([sent]).column("t").to_pylist() == instants
    control = json.loads(found[-1]["control"])
    second, newest = (int(instants[at].timestamp() * 1_000_000) for at in (1, 0))
    assert control["bounds"] == {"f": second, "g": AFTER_ALL, "h": BEFORE_ALL}
    assert control["newest"] == newest


def test_a_number_is_the_instant_in_its_unit():
    numbered = replace(TRADE, schema=TRADE.schema.set(3, pa.field("t", pa.int64())))
    second = START_US // 1_000_000
    table = scanned(numbered, frame(numbered, [("a", 1.0, 1, each) for each in (second, second + 7, None)]), [7, 7, 7])
    times = pa.array([second, None], pa.int64())
    table = pa.concat_tables([table, punctuation_rows(table.schema, ["f", "g"], 7, t=times)])
    found = scan(table, form=TimeFormat("epoch_s"))
    (sent,) = (from_frame(each["frame"]) for each in found if each["frame"] is not None)
    assert in_order([sent]).column("t").to_pylist() == [EPOCH, EPOCH + timedelta(seconds=7), None]
    control = json.loads(found[-1]["control"])
    assert control["bounds"] == {"f": START_US, "g": AFTER_ALL}
    assert control["newest"] == START_US + 7_000_000


def test_a_feed_of_which_nothing_is_known_holds_back():
    table = scanned(TRADE, frame(TRADE, []), [], {"f": beginning(TRADE.schema.field("t").type).value})
    assert json.loads(scan(table)[0]["control"])["bounds"] == {"f": BEFORE_ALL}


def test_punctuation_of_a_single_key_is_no_bound():
    table = scanned(TRADE, frame(TRADE, []), [], {"f": START_US})
    single = table.set_column(0, "sym", pa.array(["a"]))
    assert json.loads(scan(single)[0]["control"])["bounds"] == {}


def test_without_rows_nothing_is_sent():
    assert scan(scanned(TRADE, frame(TRADE, []), [])) == []


def test_rows_that_cannot_be_divided_are_no_reason_for_the_batch_to_fail():
    rows = frame(TRADE, [("a", 1.0, 0, EPOCH)])
    found = scan(scanned(TRADE, rows, [7]), (call("divide", [Field("px", pa.float64()), N]),))
    kinds = [json.loads(each["control"])["kind"] for each in found]
    assert kinds == ["unroutable"] * 3 + ["scan"] * 3
    assert "divi" in json.loads(found[0]["control"])["reason"].lower()


ROWS = frame(TRADE, [("a", 1.0, 1, EPOCH), ("b", 2.0, 2, EPOCH), ("c", 3.0, 3, EPOCH)])


def test_rows_keep_their_columns_order_and_tombstones():
    sent = as_sent(
        scanned(TRADE, ROWS, [5, 4, 5], sequences=[2, 9, 1], deleted=[False, True, False]), TRADE.schema.names
    )
    ordered = in_order([sent.slice(2), sent.slice(0, 2)])
    assert ordered.equals(in_order([sent]))
    rows = rows_of(ordered, TRADE.schema)
    assert rows.columns == [*TRADE.schema.names, SEQUENCE, TOMBSTONE, ARRIVAL]
    assert rows.select("sym", SEQUENCE, TOMBSTONE).rows() == [("b", 9, True), ("c", 1, False), ("a", 2, False)]


def test_the_oldest_arrival():
    rows = in_order([as_sent(scanned(TRADE, ROWS, [7, 4, 5]), TRADE.schema.names)])
    assert oldest_arrival(rows) == 4
    assert oldest_arrival(rows.slice(0, 0)) is None
    assert rows.schema.field(SEQUENCE).type == pa.int64()


@pytest.mark.parametrize("deleted", [[False, False, False], [True, True, True], [False, False, True]])
@pytest.mark.parametrize("arrivals", [[5, 5, 5], [5, 5, 6]])
def test_what_is_constant_is_sent_once(arrivals, deleted):
    sent = as_sent(scanned(TRADE, ROWS, arrivals, sequences=[1, 2, 3], deleted=deleted), TRADE.schema.names)
    varies = [SEQUENCE] + [TOMBSTONE] * (len(set(deleted)) > 1) + ["__arrival"] * (len(set(arrivals)) > 1)
    assert sent.column_names == [*TRADE.schema.names, *varies]
    rows = in_order([sent])
    assert rows.column("__feed").to_pylist() == ["f"] * 3
    assert rows.column("__arrival").to_pylist() == arrivals
    assert rows.column(TOMBSTONE).to_pylist() == deleted
    assert in_order([rows]).equals(rows)


@given(data=st.data())
def test_order_does_not_depend_on_tasks(data):
    count = data.draw(st.integers(1, 12))
    small = st.integers(0, 2)
    arrivals = data.draw(st.lists(small, min_size=count, max_size=count))
    sequences = data.draw(st.lists(small, min_size=count, max_size=count))
    feeds = data.draw(st.lists(st.sampled_from(["a", "b"]), min_size=count, max_size=count))
    tasks = data.draw(st.lists(small, min_size=count, max_size=count))
    if data.draw(st.booleans()):
        places = sorted(range(count), key=lambda at: (arrivals[at], sequences[at], feeds[at]))
        arrivals, sequences, feeds = ([each[at] for at in places] for each in (arrivals, sequences, feeds))
    tables = []
    for task in data.draw(st.permutations(range(3))):
        ours = [at for at in range(count) if tasks[at] == task]
        named = [frame(TRADE, [(str(at), 0.0, at, EPOCH)]) for at in ours]
        parts = [
            scanned(TRADE, one, [arrivals[at]], sequences=[sequences[at]], feed=feeds[at])
            for one, at in zip(named, ours, strict=True)
        ]
        if parts:
            tables.append(as_sent(pa.concat_tables(parts), TRADE.schema.names))
    rows = in_order(tables)
    found = [int(name) for name in rows.column("sym").to_pylist()]
    places = [(arrivals[at], sequences[at], feeds[at]) for at in found]
    assert places == sorted(places)
    assert sorted(found) == list(range(count))
    assert rows.column("__feed").to_pylist() == [feeds[at] for at in found]


MANY = 1 << 20


def slot(value, dtype):
    return int(slots_of([pl.Series([value], dtype=dtype)], MANY)[0])


def test_slots_are_the_same_for_good():
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)
    found = [
        slot(7, pl.Int64),
        slot("seven", pl.String),
        slot(None, pl.String),
        slot(0.5, pl.Float64),
        slot(Decimal("1.50"), pl.Decimal(10, 2)),
        slot(Decimal("1.50"), pl.Decimal(38, 2)),
        slot(moment, pl.Datetime("us", "UTC")),
        slot(moment.date(), pl.Date),
        slot(True, pl.Boolean),
        slot(b"\x00\xff", pl.Binary),
    ]
    assert found == [190004, 797126, 373007, 494027, 990692, 905840, 467980, 240724, 27841, 574542]


def test_equal_values_share_a_slot_whatever_their_form():
    assert slot(0.0, pl.Float64) == slot(-0.0, pl.Float64) == slot(-0.0, pl.Float32)
    payload = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]
    assert slot(float("nan"), pl.Float64) == slot(payload, pl.Float64) == slot(float("nan"), pl.Float32)
    assert len({slot(-5, kind) for kind in (pl.Int8, pl.Int16, pl.Int32, pl.Int64)}) == 1
    assert len({slot(5, kind) for kind in (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Int64)}) == 1
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert len({slot(moment, pl.Datetime(unit, "UTC")) for unit in ("ms", "us", "ns")}) == 1
    kinds = (pl.String, pl.Int64, pl.Float64, pl.Date, pl.Boolean, pl.Decimal(20, 3))
    assert len({slot(None, kind) for kind in kinds}) == 1


def test_other_values_have_other_slots():
    assert slot(1, pl.Int64) != slot(2, pl.Int64)
    assert slot(None, pl.Int64) != slot(0, pl.Int64)
    assert slot(0.5, pl.Float64) != slot(float("nan"), pl.Float64)


@given(st.lists(st.tuples(st.none() | st.text(max_size=5), st.none() | st.integers(-(1 << 63), (1 << 63) - 1))))
def test_a_slot_is_a_function_of_the_row_and_not_of_its_neighbours(rows):
    frame = pl.DataFrame(rows, schema={"a": pl.String, "b": pl.Int64}, orient="row")
    together = slots_of(frame.get_columns(), 5)
    assert together.dtype == np.int64
    assert ((together >= 0) & (together < 5)).all()
    alone = [int(slots_of(frame[at].get_columns(), 5)[0]) for at in range(frame.height)]
    assert together.tolist() == alone


def test_rows_spread_over_all_slots_and_over_all_pages_within_a_slot():
    values = pl.Series(range(8000))
    slots = slots_of([values], 8)
    assert np.bincount(slots, minlength=8).min() > 800
    from upstream.operators.relations.zsets import key_numbers

    numbers = key_numbers(values.to_frame("v").filter(pl.Series(slots == 3)), ["v"])
    assert np.bincount(numbers % 8, minlength=8).min() > 80


def test_lists_do_not_matter_and_no_columns_are_no_slot():
    lists = pl.Series([[1], [2], [3]])
    assert len({*slots_of([lists], 64).tolist()}) == 1
    with pytest.raises(ValueError, match="gathered"):
        slots_of([], 8)


def test_structs_go_by_their_fields():
    values = pl.Series([{"a": 0.0, "b": "x"}, {"a": -0.0, "b": "x"}, {"a": 0.0, "b": "y"}])
    one, same, other = slots_of([values], MANY).tolist()
    assert one == same != other


ROUTES = pa.schema({"id": pa.string(), "name": pa.string(), "zone": pa.int64()})
STORED = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y", None]), st.sampled_from([0, 1, None])),
    max_size=5,
)
BUS = "LATEST(buses) AS b"


# The last one reads no stream; those of trade go by event time, and all rows of trade are below the last bound.
QUERIES = (
    f"SELECT b.vehicle_id, r.name FROM {BUS} JOIN routes AS r ON b.route_id = r.id",
    f"SELECT b.vehicle_id, r.name FROM {BUS} LEFT JOIN routes AS r ON b.vehicle_id = r.id",
    f"SELECT b.vehicle_id, r.id, r.zone FROM {BUS} RIGHT JOIN routes AS r ON b.route_id = r.id",
    f"SELECT b.vehicle_id, r.name FROM {BUS} FULL JOIN routes AS r ON b.route_id = r.id AND b.speed > r.zone",
    f"SELECT b.vehicle_id FROM {BUS} LEFT SEMI JOIN routes AS r ON b.route_id = r.id",
    f"SELECT b.vehicle_id FROM {BUS} LEFT ANTI JOIN routes AS r ON b.vehicle_id = r.name",
    f"SELECT b.vehicle_id FROM {BUS} WHERE b.route_id NOT IN (SELECT id FROM routes)",
    f"SELECT b.vehicle_id FROM {BUS} WHERE b.vehicle_id NOT IN (SELECT id FROM routes AS r WHERE r.zone = 1)",
    f"SELECT id FROM routes AS r WHERE id NOT IN (SELECT route_id FROM {BUS})",
    f"SELECT id, zone FROM routes AS r WHERE EXISTS (SELECT 1 FROM {BUS} WHERE b.route_id = r.id)",
    f"SELECT r.zone, COUNT(*) AS n FROM {BUS} JOIN routes AS r ON b.route_id = r.id GROUP BY r.zone",
    f"SELECT COUNT(*) AS n FROM {BUS} CROSS JOIN routes AS r",
    "SELECT t.sym, t.px, r.name FROM trade AS t JOIN routes AS r ON t.sym = r.id",
    "SELECT t.sym, COUNT(*) AS n FROM trade AS t JOIN routes AS r ON t.n = r.zone GROUP BY t.sym",
    "SELECT t.sym, t.px FROM trade AS t WHERE t.sym NOT IN (SELECT name FROM routes)",
    "SELECT zone, COUNT(*) AS n FROM routes GROUP BY zone",
)
FEEDS = tuple(each for each in QUERIES if "FROM trade" in each and "GROUP" not in each)


@contextmanager
def table_of(rows):
    """A Delta table of some routes, in two files."""
    place = tempfile.mkdtemp()
    try:
        for part in (rows[::2], rows[1::2]):
            columns = [list(each) for each in zip(*part, strict=True)] or [[], [], []]
            write_deltalake(place, pa.table(columns, schema=ROUTES), mode="append")
        yield place
    finally:
        shutil.rmtree(place)


def catalog_with(place):
    return CATALOG.with_relation(pinned("routes", place))


def expected(sql, rows, routes):
    """What DuckDB finds over all rows."""
    database = duckdb.connect()
    database.execute("SET threads = 1; SET TimeZone = 'UTC'")
    database.execute("CREATE TABLE routes (id VARCHAR, name VARCHAR, zone BIGINT)")
    if routes:
        database.executemany("INSERT INTO routes VALUES (?, ?, ?)", routes)
    for name in ("buses", "trade"):
        database.register(f"all_{name}", rows[name].to_arrow())
    database.execute("CREATE VIEW trade AS SELECT * FROM all_trade")
    newest = "ROW_NUMBER() OVER (PARTITION BY vehicle_id ORDER BY timestamp DESC, __sequence DESC) = 1"
    database.execute(f"CREATE VIEW latest AS SELECT * FROM all_buses QUALIFY {newest}")
    given_ = sql.replace("LATEST(buses)", "latest").replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
    return Counter(database.execute(given_).fetchall())


@settings(phases=[Phase.generate])  # it takes minutes to make an example smaller
@given(
    texts=st.lists(st.sampled_from(QUERIES), min_size=1, max_size=4),
    routes=STORED,
    rows=rows_of_streams(),
    shards=st.integers(1, 3),
    late=st.booleans(),
    draw=st.data(),
)
def test_hosted_queries_over_stored_relations_give_what_sql_finds(texts, routes, rows, shards, late, draw):
    first, *others = enumerate(texts, 1)
    named = {f"q{number}": (number, text) for number, text in [first, *others]}
    with table_of(routes) as place:
        versions = Versions({1: {"q1": named["q1"]} if late else named, 2: named}, catalog=catalog_with(place))
        arrivals = Arrivals(rows, draw, 2)
        host = LocalHost(versions, shards)
        tables = Tables(host.plan(2))
        for batch, tasks in enumerate(arrivals.batches):
            host = run(host, Command(batch, 1 if batch == 0 else 2), tasks, tables)
    assert not tables.failed
    assert not tables.late
    for number, text in named.values():
        kept = number == 1 or text == QUERIES[-1] or (text == texts[0] and text not in FEEDS)
        if late and not kept:
            continue  # it may lack the rows of the first batch
        assert contents(tables, number) == expected(text, arrivals.rows, routes), text


def contents(tables, number):
    """The columns of a query, without those that number equal rows or identify them."""
    result = tables.plan.queries[number].result
    at = [result.schema.names.index(name) for name in result.plan.schema.names if name != "copy"]
    found: Counter[tuple[Any, ...]] = Counter()
    for row, count in tables.contents(number).items():
        found[tuple(row[each] for each in at)] += count
    return found


NAMED = QUERIES[0]


def buses(*routes):
    """One bus on each route."""
    rows = frame(BUSES, [(f"bus {route}", route, 1.0, EPOCH) for route in routes])
    return {"buses": [scanned(BUSES, rows, range(1, len(routes) + 1))]}


def test_another_version_comes_with_another_incarnation(tmp_path):
    place = str(tmp_path / "routes")
    write_deltalake(place, pa.table({"id": ["a", "b"], "name": ["Ada", "Bob"]}))
    old = catalog_with(place)
    write_deltalake(place, pa.table({"id": ["a"], "name": ["Eve"]}), mode="overwrite")
    count = "SELECT COUNT(*) AS n FROM routes"
    before = Versions({1: {"q": (1, NAMED), "n": (2, count)}}, catalog=old)
    after = Versions({2: {"q": (3, NAMED), "n": (4, count)}}, catalog=catalog_with(place))
    host = LocalHost(lambda version: (before if version == 1 else after)(version), 3)
    tables = Tables(host.plan(1))
    # The version that is pinned counts, not the newest.
    host = run(host, Command(0, 1), buses("a", "b", "c"), tables)
    assert contents(tables, 1) == Counter({("bus a", "Ada"): 1, ("bus b", "Bob"): 1})
    assert contents(tables, 2) == Counter({(2,): 1})
    tables.plan = host.plan(2)
    host = run(host, Command(1, 2), {}, tables)
    assert contents(tables, 4) == Counter({(1,): 1})
    host = run(host, Command(2, 2), buses("a", "b"), tables)
    assert contents(tables, 3) == Counter({("bus a", "Eve"): 1})
    assert not tables.failed


def test_a_version_that_is_gone_ends_the_queries_that_begin_with_it_alone(tmp_path):
    place = str(tmp_path / "routes")
    write_deltalake(place, pa.table({"id": ["a"], "name": ["Ada"]}))
    counts = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"
    other = "SELECT COUNT(*) AS n FROM routes"
    texts = {"q": (1, NAMED), "counts": (2, counts)}
    versions = Versions({1: texts, 2: {**texts, "late": (3, other)}}, catalog=catalog_with(place))
    host = LocalHost(versions, 2)
    tables = Tables(host.plan(2))
    host = run(host, Command(0, 1), buses("a"), tables)
    (file,) = DeltaTable(place).file_uris()
    Path(file.removeprefix("file://")).unlink()
    _rows.cache_clear()
    host = run(host, Command(1, 2), buses("b"), tables)
    assert tables.failed.keys() == {3}
    assert "version 0 of the table at" in tables.failed[3]
    assert "refresh the relation 'routes'" in tables.failed[3]
    # What has begun has the rows in its state.
    assert contents(tables, 1) == Counter({("bus a", "Ada"): 1})
    assert contents(tables, 2) == Counter({("a", 1): 1, ("b", 1): 1})


@pytest.mark.parametrize("dtype", [pl.Int64, pl.String, pl.Float64, pl.Boolean, pl.List(pl.Int64)])
def test_many_rows_of_few_values_have_the_slots_of_each_alone(dtype):
    values = [None, 0, 1, 7] if dtype != pl.List(pl.Int64) else [None, [0], [1]]
    if dtype == pl.Boolean:
        values = [None, True, False]
    few = pl.Series(values).cast(dtype)
    many = pl.concat([few] * 500)
    assert slots_of([many], 5).tolist() == slots_of([few], 5).tolist() * 500


NUMBERED = pa.schema({"a": pa.int64(), "t": pa.timestamp("us", "UTC"), "s": pa.int32(), "n": pa.timestamp("ms")})
LEAST, MOST = -(1 << 63), (1 << 63) - 1


@pytest.mark.parametrize(
    ("values", "fit"),
    [
        ([5, 5 + (1 << 31) - 1, None], True),
        ([5, 5 + (1 << 31), None], False),
        ([LEAST, LEAST + 7, 1 + LEAST], True),
        ([LEAST, MOST, 0], False),
        ([None, None, None], False),
    ],
)
def test_whole_numbers_and_times_are_sent_in_32_bits_if_they_fit(values, fit):
    wide = pa.array(values, pa.int64())
    arrays = [wide, wide.cast(NUMBERED.field("t").type), pa.array([1, None, 2], pa.int32())]
    rows = pa.table([*arrays, pa.array([1, 2, None], pa.int64()).cast(pa.timestamp("ms"))], schema=NUMBERED)
    system = scanned(TRADE, ROWS, [MOST - 2, MOST - 1, MOST], sequences=[3, 4, 5]).column(SYSTEM)
    sent = as_sent(rows.append_column(SYSTEM, system), NUMBERED.names)
    assert [sent.schema.field(name).type == pa.int32() for name in ("a", "t", SEQUENCE)] == [fit, fit, True]
    came = in_order([from_frame(to_frame(sent))])
    assert came.select(NUMBERED.names).equals(rows)
    assert oldest_arrival(came) == MOST - 2
    assert came.column(SEQUENCE).to_pylist() == [3, 4, 5]
