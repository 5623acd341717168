import dataclasses
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.continuous import BUSES, QUOTE, TRADE
from kit.failures import misused, unfit
from kit.registries import COUNTS, FAST, OF_FAST, begun, register

from upstream.conf.errors import CheckpointError, OptionError, QueryRefusedError, TableError, UpstreamError
from upstream.core.feedback.control import ControlConflictError
from upstream.hosting.edits import (
    check_tables,
    declare,
    default_shards,
    define_stream,
    opened,
    readers_of,
    record,
    refresh,
)
from upstream.hosting.journal import Change, Journal
from upstream.hosting.registry import registry_at, registry_now
from upstream.language import bind, plan_text
from upstream.operators.relations.plan.nodes import Stream, walk

OTHER = "SELECT vehicle_id, speed FROM LATEST(buses)"
NO_WEIGHTS: tuple[Any, ...] = (0, -1, float("nan"), float("inf"), True, "2")
NO_BUCKETS: tuple[Any, ...] = (0, 1.5, 1025, True)


def refused(checkpoint: str, change: Change, part: str, error: type[Exception] = OptionError) -> None:
    """Check that a change is refused, and the journal stays as it was."""
    before = Journal(checkpoint).version()
    with pytest.raises(error, match=part):
        record(checkpoint, change)
    assert Journal(checkpoint).version() == before


def of_buses(select: str) -> str:
    return f"SELECT {select} FROM LATEST(buses)"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (of_buses("vehicle_id, speed AS _upstream"), "_upstream"),
        (of_buses("vehicle_id, speed AS __weight"), "__weight"),
        (of_buses("vehicle_id, speed AS __TIME"), "__TIME"),
        (of_buses("vehicle_id, speed AS ``"), "not empty"),
        (of_buses("v FROM (SELECT vehicle_id AS v, speed AS __rows"), "__rows"),
        (of_buses("vehicle_id RLIKE '(' AS m"), r"without \)"),
        (of_buses("date_format(timestamp, 'QQQQQQQQ') AS f"), "QQQQQQQQ"),
        (of_buses("lpad(vehicle_id, 2000000000) AS f"), "1048576"),
        ("SELECT px FROM trade [ROWS 1" + "0" * 30 + "]", "2147483647"),
        (of_buses("speed") + " ORDER BY speed LIMIT 1" + "0" * 24, "2147483647"),
        ("SELECT SUM(n) OVER (ORDER BY t ROWS 1" + "0" * 20 + " PRECEDING) AS s FROM trade", "2147483647"),
        ("SELECT px FROM trade TABLESAMPLE (5 PERCENT) REPEATABLE (1" + "0" * 23 + ")", "2147483647"),
        ("SELECT px FROM trade [RANGE 1 HOUR] EMIT PERIODIC INTERVAL '1' MILLISECOND", "period"),
        ("SELECT COUNT(*) AS n FROM HOP(trade, t, INTERVAL '1' MILLISECOND, INTERVAL '1' DAY)", "windows"),
        (of_buses("(" * 600 + "speed" + ")" * 600 + " AS x"), "500 levels"),
        (of_buses("speed" + " " * 4_000_000), "4000000"),
    ],
)
def test_what_the_job_cannot_host_is_refused(checkpoint, text, part):
    refused(checkpoint, Change("create", "new", text), part, QueryRefusedError)


BAD = "SELECT vehicel_id FROM LATEST(buses)"
OF_A_QUERY: tuple[Any, ...] = ("activate", "deactivate", "drop", "alter")
OF_A_TEXT: tuple[Any, ...] = (("create", "new"), ("view", "new"), ("alter", "slow"))


@pytest.mark.parametrize(
    ("change", "part", "error"),
    [
        (Change("create", "SLOW", OTHER), "a query 'slow' already, with another text", OptionError),
        (Change("create", "Fast", COUNTS), "a view 'fast' already", OptionError),
        (Change("create", "BUSES", COUNTS), "a stream 'buses' already", OptionError),
        (Change("create", "../up", COUNTS), "cannot name a query", OptionError),
        (Change("view", "Slow", FAST), "a query 'slow' already", OptionError),
        (Change("view", "FAST", OTHER), "a view 'fast' already, with another text", OptionError),
        (Change("view", "trade", OTHER), "taken", OptionError),
        (Change("view", "a/b", OTHER), "cannot name a view", OptionError),
        *((Change(each, "slo", COUNTS), "did you mean 'slow'", OptionError) for each in OF_A_QUERY),
        (Change("drop_view", "slow"), "no view 'slow'", OptionError),
        (Change("alter", "slow"), "nothing to alter", OptionError),
        # Texts are bound before they are journaled.
        *((Change(kind, name, BAD), "'vehicle_id'", QueryRefusedError) for kind, name in OF_A_TEXT),
        (Change("create", "new", " "), "the text of 'new'", QueryRefusedError),
        (Change("view", "new", COUNTS + " EMIT CHANGES"), "EMIT", QueryRefusedError),
        (Change("view", "new", "SELECT * FROM new"), "reads itself", QueryRefusedError),
        *((Change("create", "new", COUNTS, buckets=each), "buckets=", OptionError) for each in NO_BUCKETS),
        *((Change("create", "new", COUNTS, weight=each), "weight=", OptionError) for each in NO_WEIGHTS),
        *((Change("alter", "slow", weight=each), "weight=", OptionError) for each in NO_WEIGHTS),
    ],
)
def test_what_is_refused(checkpoint, change, part, error):
    record(checkpoint, Change("view", "fast", FAST))
    register(checkpoint, "slow")
    refused(checkpoint, change, part, error)


def test_what_holds_already_is_not_journaled(checkpoint):
    record(checkpoint, Change("view", "fast", FAST))
    register(checkpoint, "q", weight=2)
    for change in (
        Change("create", "q", COUNTS),
        Change("create", "Q", COUNTS, weight=5),
        Change("view", "Fast", FAST),
        Change("alter", "q", COUNTS),
        Change("alter", "q", COUNTS, weight=2),
        Change("activate", "q"),
        Change("fail", "q", reason="old", id=1),
        Change("fail", "gone", reason="old", id=1),
    ):
        assert record(checkpoint, change).version == 2, change
    assert record(checkpoint, Change("deactivate", "q")).version == 3
    assert record(checkpoint, Change("deactivate", "q", reason="again")).version == 3
    assert record(checkpoint, Change("create", "q", COUNTS)).version == 3, "what an operator stopped stays so"


def test_an_alteration_of_both_is_one_change_of_the_query_whatever_the_case_of_its_name(checkpoint):
    register(checkpoint, "Q")
    altered = record(checkpoint, Change("alter", "q", OTHER, weight=2))
    query = altered.queries["Q"]
    assert (altered.version, query.text, query.weight, query.id) == (2, OTHER, 2.0, 2)
    assert not record(checkpoint, Change("deactivate", "q")).queries["Q"].active
    assert record(checkpoint, Change("drop", "q")).queries == {}


def test_a_view_in_use_stays(checkpoint):
    record(checkpoint, Change("view", "fast", FAST))
    record(checkpoint, Change("view", "faster", "SELECT * FROM fast WHERE speed > 20"))
    refused(checkpoint, Change("drop_view", "FAST"), "in use by the view 'faster'")
    register(checkpoint, "q", "SELECT route_id, COUNT(*) AS n FROM faster GROUP BY route_id")
    record(checkpoint, Change("deactivate", "q"))
    refused(checkpoint, Change("drop_view", "faster"), "in use by the query 'q'")
    register(checkpoint, "idle", OF_FAST, active=False)  # it has no plan
    refused(checkpoint, Change("drop_view", "fast"), "in use by the query 'q', the query 'idle', the view 'faster'")
    for name in ("q", "idle"):
        record(checkpoint, Change("drop", name))
    record(checkpoint, Change("drop_view", "faster"))
    assert record(checkpoint, Change("drop_view", "Fast")).catalog.views == {}


def test_a_function_in_use_stays_and_its_name_is_taken(checkpoint):
    declared = "CREATE FUNCTION {}(x DOUBLE) RETURNS DOUBLE AS 'kit.python_functions:{}'"
    score = Change("function", "score", declared.format("score", "doubled"))
    record(checkpoint, score)
    assert record(checkpoint, replace(score, name="Score")).version == 1
    other = declared.format("score", "broken")
    refused(checkpoint, replace(score, text=other), "a function 'score' already, with another declaration")
    refused(checkpoint, Change("function", "f", declared.format("f", "nothing")), "cannot be imported")
    refused(checkpoint, Change("function", "quote", declared.format("quote", "doubled")), "a stream 'quote' already")
    refused(checkpoint, Change("create", "Score", OTHER), "a function 'score' already")
    refused(checkpoint, Change("view", "score", FAST), "'score' is taken")
    record(checkpoint, Change("view", "scored", "SELECT score(px) AS s FROM trade [NOW]"))
    register(checkpoint, "q", "SELECT MAX(s) AS s FROM scored")
    refused(checkpoint, Change("drop_function", "score"), "in use by the query 'q', the view 'scored'")
    registry = registry_at(checkpoint, 3)
    assert readers_of("SCORE", registry) == [("MATERIALIZED VIEW", "q"), ("VIEW", "scored")]
    record(checkpoint, Change("drop", "q"))
    record(checkpoint, Change("drop_view", "scored"))
    assert record(checkpoint, Change("drop_function", "SCORE")).catalog.functions == {}


def test_a_view_may_be_a_stream(checkpoint):
    record(checkpoint, Change("view", "moves", f"ISTREAM({FAST})"))
    counts = "SELECT route_id, COUNT(*) AS n FROM moves [RANGE 1 HOUR] GROUP BY route_id"
    assert register(checkpoint, "q", counts).queries["q"].query.views == ("moves",)


def test_a_view_cannot_go_while_another_process_begins_to_use_it(checkpoint, monkeypatch):
    """The change of the other comes between the check and the file."""
    record(checkpoint, Change("view", "fast", FAST))
    put, others = Journal.put, [Change("create", "q", OF_FAST)]

    def interrupted(self: Journal, version: int, change: Change) -> bool:
        if others and change.kind == "drop_view":
            assert put(self, version, others.pop())
        return put(self, version, change)

    monkeypatch.setattr(Journal, "put", interrupted)
    misused("in use by the query 'q'", record, checkpoint, Change("drop_view", "fast"))
    assert registry_at(checkpoint, 2).active.keys() == {"q"}


_ASKED = st.one_of(
    st.builds(Change, st.just("create"), st.sampled_from("pq"), st.sampled_from([COUNTS, OF_FAST, OTHER])),
    st.builds(Change, st.just("alter"), st.sampled_from("pq"), st.sampled_from([COUNTS, OF_FAST, "SELECT"])),
    st.builds(Change, st.sampled_from(["activate", "deactivate", "drop"]), st.sampled_from("pq")),
    st.builds(Change, st.just("view"), st.just("fast"), st.sampled_from([FAST, OTHER])),
    st.builds(Change, st.just("drop_view"), st.just("fast")),
    st.builds(Change, st.just("fail"), st.sampled_from("pq"), id=st.integers(1, 9), reason=st.just("broken")),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(_ASKED, max_size=20))
def test_what_is_accepted_always_binds(asked, tmp_path_factory):
    checkpoint = begun(tmp_path_factory.mktemp("registry"))
    for change in asked:
        before = Journal(checkpoint).version()
        try:
            registry = record(checkpoint, change)
        except UpstreamError:
            assert Journal(checkpoint).version() == before
            continue
        assert registry.version - before in (0, 1)
        for each in registry.queries.values():
            assert each.active or each.reason in (None, "broken")
            assert not each.active or each.query.text == each.text
            assert each.text != OF_FAST or "fast" in registry.catalog.views


def test_a_query_keeps_the_time_zone_with_which_it_was_registered(checkpoint):
    hours = of_buses("vehicle_id, HOUR(timestamp) AS h")
    record(checkpoint, Change("create", "hours", hours, time_zone="Europe/Berlin"))
    record(checkpoint, Change("create", "hours", hours, time_zone="America/St_Johns"))  # it starts again elsewhere

    def zone_of(name: str) -> tuple[str, bool]:
        query = registry_now(checkpoint).queries[name]
        return query.time_zone, f"value='{query.time_zone}'" in str(query.query.plan)

    assert zone_of("hours") == ("Europe/Berlin", True)
    record(checkpoint, Change("alter", "hours", weight=2, time_zone="America/St_Johns"))
    assert zone_of("hours") == ("Europe/Berlin", True)
    record(checkpoint, Change("deactivate", "hours"))
    record(checkpoint, Change("activate", "hours"))
    assert zone_of("hours") == ("Europe/Berlin", True)
    record(checkpoint, Change("alter", "hours", hours + " WHERE speed > 1", time_zone="America/St_Johns"))
    assert zone_of("hours") == ("America/St_Johns", True)
    record(checkpoint, Change("alter", "hours", hours + " WHERE speed > 2"))
    assert zone_of("hours") == ("America/St_Johns", True), "whoever alters it has no session"
    record(checkpoint, Change("create", "utc", hours))
    assert zone_of("utc") == ("UTC", False)


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
        Change("drop_table", "Routes"),
    )
    for kind, name in (("drop", "named"), ("drop", "idle"), ("drop_view", "names")):
        record(checkpoint, Change(kind, name))  # type: ignore[arg-type]
    assert "routes" not in record(checkpoint, Change("drop_table", "Routes")).catalog.streams
    define_stream(checkpoint, dataclasses.replace(TRADE, name="routes"))


def test_a_checkpoint_begins_once(tmp_path):
    checkpoint = str(tmp_path / "cp")
    misused("'to' is missing", opened, checkpoint, None, None)
    first = opened(checkpoint, "/lake", None)
    shards = default_shards()
    assert (first.to, first.shards) == ("/lake", shards)
    for to, number in ((None, None), ("/lake", shards)):
        assert opened(checkpoint, to, number).nonce == first.nonce
    misused("begun with .*/lake", opened, checkpoint, "/sea", None)
    misused(f"begun with {shards}", opened, checkpoint, None, shards + 1)
    assert opened(str(tmp_path / "other"), "/lake", 3).shards == 3


def test_streams_are_added_and_defined_otherwise_before_the_job_runs(tmp_path):
    checkpoint = str(tmp_path / "cp")
    opened(checkpoint, "/lake", None)
    define_stream(checkpoint, BUSES)
    define_stream(checkpoint, TRADE)
    longer = dataclasses.replace(BUSES, schema=BUSES.schema.append(pa.field("more", pa.int32())))
    assert define_stream(checkpoint, longer).stream("buses") == longer
    assert [each.name for each in Journal(checkpoint).settings().streams] == ["trade", "buses"]
    assert register(checkpoint, "q", "SELECT MAX(more) AS m FROM LATEST(buses)").active.keys() == {"q"}


def test_a_definition_that_queries_do_not_fit_is_refused(checkpoint):
    record(checkpoint, Change("view", "fast", FAST))
    register(checkpoint, "q", OF_FAST)
    shorter = dataclasses.replace(BUSES, schema=BUSES.schema.remove(BUSES.schema.get_field_index("speed")))
    misused(r"query 'q' does not fit the new definition of 'buses': .*speed", define_stream, checkpoint, shorter)
    assert Journal(checkpoint).settings().stream("buses") == BUSES
    record(checkpoint, Change("deactivate", "q"))
    assert define_stream(checkpoint, shorter).stream("buses") == shorter


def test_names_of_streams_are_words_that_nothing_else_has(checkpoint):
    record(checkpoint, Change("view", "fast", FAST))
    register(checkpoint, "q", COUNTS)
    for name, part in (("Q", "'q' already"), ("FAST", "'fast' already"), ("Trade", "taken"), ("a/b", "cannot name")):
        misused(part, define_stream, checkpoint, dataclasses.replace(TRADE, name=name))
    unfit("no column", define_stream, checkpoint, dataclasses.replace(TRADE, name="t2", event_time="when"))


def test_streams_are_fixed_once_the_job_has_run(checkpoint):
    (Path(checkpoint) / "offsets").mkdir()
    (Path(checkpoint) / "offsets" / "0").write_text("v1")
    assert define_stream(checkpoint, TRADE).stream("trade") == TRADE
    with pytest.raises(CheckpointError, match="fixed once"):
        define_stream(checkpoint, dataclasses.replace(TRADE, key=("sym",)))


@pytest.fixture
def lake(tmp_path):
    """A folder of tables, by another name: what is compared are the places behind links."""
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "lake")
    return tmp_path / "lake"


def test_tables_stay_out_of_the_checkpoint(lake):
    real = str(lake.parent / "real")
    for to in (f"{lake}/cp", f"{lake}/cp/offsets"):
        misused("the checkpoint", opened, f"{real}/cp", to, None)
    opened(f"{real}/cp", str(lake), None)
    define_stream(f"{real}/cp", BUSES)
    misused("the checkpoint and the table of the query 'cp' are both", register, f"{real}/cp", "cp")
    register(f"{real}/cp", "offsets")


def test_tables_stay_out_of_what_streams_read(lake):
    checkpoint, real = begun(lake.parent, str(lake)), lake.parent / "real"
    define_stream(checkpoint, BUSES, [f"{real}/feed", f"{real}/days/*/in"])
    define_stream(checkpoint, QUOTE, [f"{real}/deep/er/quotes.csv", f"{real}/*.csv"])
    for name, met in {"feed": "are both", "days": "is above", "deep": "is above"}.items():
        misused(rf"the table of the query '{name}'.* {met} ", register, checkpoint, name)
    register(checkpoint, "fed")
    for path, wrong in ((f"{real}/fed/in", "is above"), (str(lake.parent), "is inside"), (f"{real}/*", "are both")):
        misused(wrong, define_stream, checkpoint, BUSES, [path])
    misused("are both", check_tables, registry_now(checkpoint), checkpoint, [("the source", f"{real}/fed")], [])
    misused("are both", check_tables, registry_now(checkpoint), checkpoint, [], [("deadLetters", str(real))])


def test_tables_and_relations_stay_apart(lake):
    checkpoint = begun(lake.parent, str(lake))
    register(checkpoint, "made")
    for name in ("routes", "made", "made/deep"):
        write_deltalake(str(lake / name), pa.table({"id": ["a"]}))
    declare(checkpoint, "r", str(lake.parent / "real" / "routes"))
    misused("the relation 'r' and the table of the query 'routes' are both", register, checkpoint, "routes", COUNTS)
    misused("is above the relation", declare, checkpoint, "deep", str(lake / "made" / "deep"))
    declare(checkpoint, "of_query", str(lake / "made"))
    misused("the relation 'of_query' reads it", record, checkpoint, Change("drop", "made", delete_table=True))
    record(checkpoint, Change("drop_table", "of_query"))
    record(checkpoint, Change("drop", "made", delete_table=True))


def test_a_change_meant_for_another_version_is_refused(tmp_path):
    checkpoint = begun(tmp_path)
    register(checkpoint, "slow")
    assert record(checkpoint, Change("alter", "slow", weight=2.0, by="one"), 1).version == 2
    with pytest.raises(ControlConflictError, match="version 1 of the queries was given, and there is version 2"):
        record(checkpoint, Change("alter", "slow", weight=3.0), 1)
    assert registry_now(checkpoint).queries["slow"].weight == 2.0
    assert Journal(checkpoint).read([2])[0].by == "one"
