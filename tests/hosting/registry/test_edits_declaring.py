import dataclasses

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from kit.continuous import TRADE
from kit.failures import misused
from kit.registries import COUNTS, register

from upstream.conf.errors import OptionError, TableError
from upstream.hosting.registry.changes import Change
from upstream.hosting.registry.edits import declare, define_stream, record, refresh
from upstream.hosting.registry.journal import Journal
from upstream.hosting.registry.registry import registry_at, registry_now
from upstream.operators.relations.plan.nodes import Stream, walk
from upstream.sql import bind, plan_text

NAMED = "SELECT b.vehicle_id, r.name FROM LATEST(buses) AS b JOIN routes AS r ON b.route_id = r.id"


@pytest.fixture
def table(tmp_path):
    return write(str(tmp_path / "routes"), 1)


def write(place: str, *versions: int, **columns: pa.Array) -> str:
    for each in versions:
        data = {"id": pa.array(["a"]), "name": pa.array([f"v{each}"]), "_upstream_bucket": pa.array([0]), **columns}
        write_deltalake(place, pa.table(data), mode="overwrite", schema_mode="overwrite")
    return place


def version_read(checkpoint: str, query: str) -> int | None:
    plan = registry_now(checkpoint).queries[query].query.plan
    (found,) = {each.table for each in walk(plan) if isinstance(each, Stream) and each.static}
    return None if found is None else found.version


def test_a_relation_is_what_its_table_is_when_it_is_declared(checkpoint, table):
    write(table, 2)
    registry = declare(checkpoint, "routes", table)
    relation = registry.catalog.relations["routes"]
    assert relation.schema == pa.schema({"id": pa.string(), "name": pa.string()})
    assert (relation.table is not None and relation.table.location, registry.version) == (table, 1)
    register(checkpoint, "named", NAMED)
    assert version_read(checkpoint, "named") == 1
    write(table, 3)
    # A program that starts again changes nothing, whatever the table has become.
    assert declare(checkpoint, "routes", table).version == 2
    assert version_read(checkpoint, "named") == 1
    shown = plan_text(bind(NAMED, registry_now(checkpoint).catalog))
    assert f"Relation routes (stored, version 1 of {table})" in shown
    assert "all rows of routes" in shown


def test_a_refresh_restarts_the_queries_that_read_the_relation_and_no_other(checkpoint, table):
    declare(checkpoint, "routes", table)
    record(checkpoint, Change("view", "names", "SELECT id, name FROM routes"))
    register(checkpoint, "named", NAMED)
    register(checkpoint, "counts", COUNTS)
    register(checkpoint, "by_view", "SELECT name FROM names")
    register(checkpoint, "idle", NAMED, active=False)
    assert refresh(checkpoint, "routes").version == 6  # nothing new
    write(table, 2)
    after = refresh(checkpoint, "ROUTES")
    assert {name: each.id for name, each in after.queries.items()} == {"named": 7, "counts": 4, "by_view": 8, "idle": 6}
    assert version_read(checkpoint, "named") == version_read(checkpoint, "by_view") == 1
    assert record(checkpoint, Change("activate", "idle")).queries["idle"].id == 9
    assert version_read(checkpoint, "idle") == 1
    # An earlier version of the registry is what it was.
    assert registry_at(checkpoint, 6).catalog.relations["routes"].table.version == 0  # type: ignore[union-attr]
    assert registry_at(checkpoint, 6).queries["named"].id == 3
    assert Journal(checkpoint).read([7])[0].restarts == ("named", "by_view")


def test_a_table_that_a_query_does_not_fit_is_refused(checkpoint, table, tmp_path):
    declare(checkpoint, "routes", table)
    register(checkpoint, "named", NAMED)
    write_deltalake(table, pa.table({"id": ["a"]}), mode="overwrite", schema_mode="overwrite")
    misused(r"the query 'named' does not fit the relation 'routes' as version 1 of", refresh, checkpoint, "routes")
    assert Journal(checkpoint).version() == 2
    record(checkpoint, Change("drop", "named"))
    record(checkpoint, Change("view", "names", "SELECT id FROM routes"))
    assert refresh(checkpoint, "routes").catalog.relations["routes"].schema.names == ["id"]
    write_deltalake(table, pa.table({"no": ["a"]}), mode="overwrite", schema_mode="overwrite")
    misused("the view 'names' does not fit", refresh, checkpoint, "routes")


def test_what_cannot_be_declared_is_refused(checkpoint, table, tmp_path):
    register(checkpoint, "q")
    for name, place, part in (
        ("routes", str(tmp_path / "none"), "no Delta table"),
        ("a/b", table, "cannot name a relation"),
        ("Buses", table, "a stream 'buses' already"),
        ("q", table, "a query 'q' already"),
    ):
        with pytest.raises((TableError, OptionError), match=part):
            declare(checkpoint, name, place)
    assert Journal(checkpoint).version() == 1
    declare(checkpoint, "routes", table)
    misused("of another table: version 0", declare, checkpoint, "routes", write(str(tmp_path / "other"), 1))
    misused("a relation 'routes' already", register, checkpoint, "Routes")
    misused("a relation 'routes' already", define_stream, checkpoint, dataclasses.replace(TRADE, name="routes"))
    misused("did you mean 'routes'", refresh, checkpoint, "rotes")


def test_a_relation_in_use_is_not_dropped(checkpoint, table):
    declare(checkpoint, "routes", table)
    register(checkpoint, "named", NAMED)
    register(checkpoint, "idle", NAMED, active=False)
    record(checkpoint, Change("view", "names", "SELECT id FROM routes"))
    define_stream(checkpoint, dataclasses.replace(TRADE, name="more"))
    assert set(registry_now(checkpoint).catalog.streams) >= {"more", "routes", "buses"}
    misused(
        "in use by the query 'named', the query 'idle', the view 'names'",
        record,
        checkpoint,
        Change("drop_relation", "Routes"),
    )
    for kind, name in (("drop", "named"), ("drop", "idle"), ("drop_view", "names")):
        record(checkpoint, Change(kind, name))  # type: ignore[arg-type]
    assert "routes" not in record(checkpoint, Change("drop_relation", "Routes")).catalog.streams
    define_stream(checkpoint, dataclasses.replace(TRADE, name="routes"))
