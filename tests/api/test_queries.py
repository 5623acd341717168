"""Continuous queries from Python: each method journals its change, whether a job runs or not."""

import polars as pl
import pytest
from kit.registries import COUNTS, FAST, OF_FAST

import upstream as us
from upstream.conf.errors import CheckpointError, OptionError, QueryRefusedError, TableError
from upstream.core.rows.key import Key
from upstream.hosting.edits import default_shards
from upstream.hosting.journal import Journal
from upstream.testing.inputs import Input

BUSES = "vehicle_id STRING, route_id STRING, speed DOUBLE, timestamp TIMESTAMP"


def stream(schema: str = BUSES, key: str = "vehicle_id", time: str | None = "timestamp") -> us.UpdateStream:
    return us.UpdateStream._of(Input("s", schema, Key((key,)), time, None, None).node)


@pytest.fixture
def queries(tmp_path):
    made = us.queries(checkpoint=tmp_path / "cp", to=tmp_path / "lake")
    made.source("buses", stream())
    return made


def test_a_stream_is_defined_by_its_columns(queries, tmp_path):
    settings = Journal(str(tmp_path / "cp")).settings()
    assert settings is not None
    (found,) = settings.streams
    assert (found.name, found.key, found.event_time, found.updates) == ("buses", ("vehicle_id",), "timestamp", True)
    types = [str(each.type) for each in found.schema]
    assert (found.schema.names, types) == (
        ["vehicle_id", "route_id", "speed", "timestamp"], ["string", "string", "double", "timestamp[us, tz=UTC]"],
    )  # fmt: skip
    assert (settings.to, settings.shards) == (str(tmp_path / "lake"), default_shards())
    queries.source("trade", stream(), updates=False)
    assert Journal(str(tmp_path / "cp")).settings().stream("trade").updates is False


def test_queries_come_and_go(queries, tmp_path):
    queries.create_view("fast", FAST)
    queries.create("per_route", OF_FAST, weight=2)
    queries.create("idle", COUNTS, active=False, buckets=4)
    assert queries.views() == {"fast": FAST}
    assert queries.list()[:, :5].rows() == [
        ("per_route", OF_FAST, 2.0, True, None),
        ("idle", COUNTS, 1.0, False, None),
    ]
    queries.alter("per_route", COUNTS, weight=3)
    queries.activate("idle")
    queries.deactivate("per_route", reason="too dear")
    queries.drop_view("fast")
    # Another process sees the same, and needs no folder of tables.
    other = us.queries(checkpoint=str(tmp_path / "cp"))
    assert other.list()[:, :5].rows() == [
        ("per_route", COUNTS, 3.0, False, "too dear"),
        ("idle", COUNTS, 1.0, True, None),
    ]
    other.drop("per_route")
    assert queries.list()["name"].to_list() == ["idle"]
    assert queries.views() == {}


def test_a_program_that_starts_again_changes_nothing(queries, tmp_path):
    for _ in range(2):
        again = us.queries(checkpoint=tmp_path / "cp", to=tmp_path / "lake", shards=default_shards())
        again.source("buses", stream())
        again.create_view("fast", FAST)
        again.create("q", OF_FAST)
        assert Journal(str(tmp_path / "cp")).version() == 2
    nonce = Journal(str(tmp_path / "cp")).settings().nonce
    again.source("buses", stream())
    assert Journal(str(tmp_path / "cp")).settings().nonce == nonce


def test_a_job_needs_a_session(queries):
    with pytest.raises(OptionError, match="without a session"):
        queries.start(availableNow=True)
    with pytest.raises(OptionError, match="batch_duration=2"):
        queries.start(batch_duration=2, availableNow=True)  # pyright: ignore[reportArgumentType]


def test_rows_are_those_of_the_querys_table(queries, tmp_path):
    queries.create("Fleet", COUNTS)
    with pytest.raises(TableError):
        queries.scan("fleet")
    pl.DataFrame({"route_id": ["a"], "n": [1]}).write_delta(tmp_path / "lake" / "Fleet")
    assert queries.scan("fleet").collect().rows() == [("a", 1)]
    assert "<td>&quot;Fleet&quot;</td>" in queries._repr_html_()
    with pytest.raises(OptionError, match="did you mean 'Fleet'"):
        queries.scan("flet")


def test_explain_takes_names_and_texts(queries):
    queries.create("per_route", COUNTS)
    queries.create_view("fast", FAST)
    assert "shared" not in queries.explain("PER_route")
    assert "Latest -- keeps one row per (vehicle_id); shared with per_route" in queries.explain(COUNTS)
    assert "key: route_id" in queries.explain(COUNTS)
    assert "vehicle_id" in queries.explain("fast")
    with pytest.raises(OptionError, match="did you mean 'per_route'"):
        queries.explain("per_rout")
    with pytest.raises(QueryRefusedError):
        queries.explain("SELECT speeed FROM LATEST(buses)")


@pytest.mark.parametrize(
    ("given", "part", "error"),
    [
        (stream(time=None), "no event time", OptionError),
        ("feed/", "as us.read", OptionError),
    ],
)
def test_streams_that_queries_cannot_read(queries, given, part, error):
    with pytest.raises(error, match=part):
        queries.source("other", given)


def test_what_a_checkpoint_was_begun_with_stays(queries, tmp_path):
    with pytest.raises(OptionError, match="to="):
        us.queries(checkpoint=tmp_path / "cp", to=tmp_path / "sea")
    with pytest.raises(OptionError, match="shards=4"):
        us.queries(checkpoint=tmp_path / "cp", shards=4)
    with pytest.raises(OptionError, match="'to' is missing"):
        us.queries(checkpoint=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with pytest.raises(OptionError, match="shards"):
        us.queries(checkpoint=tmp_path / "other", to=tmp_path / "lake", shards=0)
    (tmp_path / "cp" / "offsets").mkdir()
    (tmp_path / "cp" / "offsets" / "0").write_text("v1")
    queries.source("buses", stream())
    with pytest.raises(CheckpointError, match="fixed once its job has run"):
        queries.source("ships", stream())
    with pytest.raises(CheckpointError, match="fixed once its job has run"):
        queries.source("buses", stream(BUSES + ", more INT"))


def test_options_of_a_store_are_in_no_file(tmp_path):
    place = {"checkpoint": tmp_path / "cp", "to": "s3://lake/results"}
    opened = us.queries(**place, overwrite=True, **{"storage.secret_access_key": "hush", "storage.allow_http": True})
    assert opened.list().is_empty()
    files = [each for each in (tmp_path / "cp").rglob("*") if each.is_file()]
    assert files
    assert not any(b"hush" in each.read_bytes() for each in files)
    with pytest.raises(OptionError, match="unknown options: region"):
        us.queries(**place, region="eu")


class Session:
    """The settings of a session, all that registering a query reads of one."""

    def __init__(self, zone: str) -> None:
        self.conf = {"spark.sql.session.timeZone": zone}


def test_a_query_is_registered_in_the_time_zone_of_the_session(tmp_path):
    hours = "SELECT vehicle_id, HOUR(timestamp) AS h FROM LATEST(buses)"

    def opened(zone):
        made = us.queries(checkpoint=tmp_path / "cp", to=tmp_path / "lake")
        made._spark = None if zone is None else Session(zone)
        made.source("buses", stream())
        return made

    berlin, johns = opened("Europe/Berlin"), opened("America/St_Johns")
    berlin.create("hours", hours)
    johns.create("hours", hours)
    johns.create("there", hours)
    opened(None).create("utc", hours)
    zone = "local_time(timestamp, 'Europe/Berlin')"
    assert zone in berlin.explain("hours")
    assert zone in johns.explain("hours"), "it keeps the zone with which it was registered"
    assert "'America/St_Johns'" in berlin.explain("there")
    assert "local_time" not in johns.explain("utc")
    assert "'America/St_Johns'" in johns.explain(hours)
    johns.alter("hours", f"{hours} WHERE speed > 1")
    assert "'America/St_Johns'" in berlin.explain("hours")
    with pytest.raises(OptionError, match="the time zone 'Mars/Base' is unknown"):
        opened("Mars/Base").create("mars", hours)
