"""Queries that read stored relations, hosted: against DuckDB, however rows come, over real Delta tables."""

import shutil
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from kit.continuous import BUSES, CATALOG, EPOCH, rows_of_streams
from kit.hosting import Arrivals, Tables, Versions, frame, run, scanned

from upstream.hosting.local_host import LocalHost
from upstream.hosting.messages import Command
from upstream.hosting.registry.changes import pinned
from upstream.hosting.scan import _rows

ROUTES = pa.schema({"id": pa.string(), "name": pa.string(), "zone": pa.int64()})
ROWS = st.lists(
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
    routes=ROWS,
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
