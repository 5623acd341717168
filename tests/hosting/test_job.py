"""The settings of a host's query, and the tables of queries that are dropped."""

import json
import logging
import types

import pyarrow as pa
import pytest
from kit.result_tables import Hosted
from typer.testing import CliRunner

import upstream as us
from upstream.cli.main import app
from upstream.conf.errors import OptionError, TableError
from upstream.hosting.edits import define_stream, drop_query, opened, record
from upstream.hosting.job import DroppedTables, set_meanwhile
from upstream.hosting.journal import Change
from upstream.hosting.registry import registry_now
from upstream.operators.relations.plan.nodes import Stream

NAME, CODE = "spark.sql.shuffle.partitions", "spark.sql.codegen.wholeStage"
ADAPTIVE = "spark.sql.adaptive.enabled"


class Settings(dict):
    """As a session's: Spark takes numbers and gives texts."""

    def set(self, name, value):
        self[name] = str(value)


@pytest.mark.parametrize(("given", "meanwhile"), [("200", "8"), ("9", "8"), ("8", "8"), ("2", "2")])
@pytest.mark.parametrize(("framed", "code"), [(True, "false"), (False, "true")])
def test_a_query_starts_with_as_many_as_there_are_shards_and_the_session_keeps_its_own(given, meanwhile, framed, code):
    own = {NAME: given, CODE: "true", ADAPTIVE: "true"}
    session = types.SimpleNamespace(conf=Settings(own))
    with set_meanwhile(session, 8, framed=framed):
        assert session.conf == {NAME: meanwhile, CODE: code, ADAPTIVE: "false"}
    assert session.conf == own


def test_the_session_keeps_its_own_where_the_start_fails():
    own = {NAME: "200", CODE: "true", ADAPTIVE: "true"}
    session = types.SimpleNamespace(conf=Settings(own))
    with pytest.raises(RuntimeError), set_meanwhile(session, 8, framed=True):
        raise RuntimeError
    assert session.conf == own


COUNT = "SELECT bus, COUNT(*) AS n FROM LATEST(buses) GROUP BY bus"
BUSES = pa.schema([("bus", pa.string()), ("t", pa.timestamp("us", "UTC"))])


class Job:
    """A checkpoint whose job has run, with the table of each query."""

    def __init__(self, place):
        self.hosted, self.checkpoint = Hosted(place), str(place / "checkpoint")
        opened(self.checkpoint, str(place / "results"), 2)
        define_stream(self.checkpoint, Stream("buses", BUSES, ("bus",), "t"))
        (place / "checkpoint" / "metadata").write_text(json.dumps({"id": "host"}))
        self.batch = 0

    def register(self, name):
        record(self.checkpoint, Change("create", name, COUNT))
        table = self.hosted.table(name, registry_now(self.checkpoint).queries[name].id)
        self.hosted.batch(self.batch, [table], {name: [(1, "x")]})
        self.batch += 1

    def delete(self):
        DroppedTables().delete(registry_now(self.checkpoint), "host")

    def tables(self):
        return sorted(each.name for each in (self.hosted.folder / "results").iterdir())


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_the_job_deletes_the_table_of_a_dropped_query(job):
    for name in ("a", "b", "c"):
        job.register(name)
    drop_query(job.checkpoint, "A", delete_table=True)
    us.queries(checkpoint=job.checkpoint).drop("b", delete_table=True)
    drop_query(job.checkpoint, "c")
    assert job.tables() == ["a", "b", "c"]  # they may be in a batch
    job.delete()
    assert job.tables() == ["c"]
    job.delete()
    assert registry_now(job.checkpoint).queries == {}


def test_from_the_shell(job):
    job.register("a")
    done = CliRunner().invoke(app, ["sql", "DROP MATERIALIZED VIEW a PURGE", "--checkpoint", job.checkpoint])
    assert "Its table goes: " in done.output
    job.delete()
    assert job.tables() == []


def test_a_later_query_of_the_name_keeps_its_table(job):
    job.register("a")
    drop_query(job.checkpoint, "a", delete_table=True)
    job.register("a")
    job.delete()
    assert job.tables() == ["a"]


def test_a_table_of_others_is_refused_before_anything_is_written(job):
    record(job.checkpoint, Change("create", "a", COUNT))
    theirs = Hosted(job.hosted.folder, host="theirs")
    theirs.batch(0, [theirs.table("a")], {"a": [(1, "x")]})
    with pytest.raises(TableError, match="is not a table that the query 'a' of this job has written"):
        drop_query(job.checkpoint, "a", delete_table=True)
    assert registry_now(job.checkpoint).queries.keys() == {"a"}
    with pytest.raises(OptionError, match="there is no query 'b'"):
        drop_query(job.checkpoint, "b", delete_table=True)


def test_a_table_that_came_from_others_since_stays(job, caplog):
    record(job.checkpoint, Change("create", "a", COUNT))
    drop_query(job.checkpoint, "a", delete_table=True)  # it has no table
    theirs = Hosted(job.hosted.folder, host="theirs")
    theirs.batch(0, [theirs.table("a")], {"a": [(1, "x")]})
    with caplog.at_level(logging.WARNING):
        job.delete()
    assert "the table of the query a, which was dropped, stays" in caplog.text
    assert job.tables() == ["a"]


def test_a_job_that_has_never_run_has_no_table(tmp_path):
    job = Job(tmp_path)
    (tmp_path / "checkpoint" / "metadata").unlink()
    record(job.checkpoint, Change("create", "a", COUNT))
    drop_query(job.checkpoint, "a", delete_table=True)
    assert registry_now(job.checkpoint).deleted == {"a": 2}
