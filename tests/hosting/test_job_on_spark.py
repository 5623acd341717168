"""The host on real Spark: queries come, change, fail and go while it runs, and others read their tables."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from kit.feeds import csv_feed, write_csv
from kit.queries import run_to_end
from kit.waiting import wait_for
from pyspark.errors import StreamingQueryException

import upstream as us
from upstream.conf.errors import CheckpointError, OptionError, QueryRefusedError, SchemaError
from upstream.conf.locations import absolute_location
from upstream.conf.process_identity import Process
from upstream.conf.units import now_us
from upstream.core.feedback.checkpoint_layout import SparkApplication, SparkTimes, queue_folder, states_folder
from upstream.core.feedback.reports import QueueReport, read_reports
from upstream.core.rows.buckets import integers_with_hash
from upstream.core.rows.system_column import SYSTEM
from upstream.hosting.edits import define_stream, drop_query, opened, record
from upstream.hosting.host_lease import CheckpointLease
from upstream.hosting.job import build_host, start
from upstream.hosting.job_file import created
from upstream.hosting.journal import Change, Journal
from upstream.hosting.registry import registry_now
from upstream.hosting.reports import Reports
from upstream.hosting.stage_states import StateRecords
from upstream.operators.relations.plan.nodes import Stream
from upstream.sink.commit.lease import running_queries
from upstream.sink.commit.metrics_table import _gauges
from upstream.storage.folder import folder_at
from upstream.workbench import places_of

BUSES = "bus STRING, t TIMESTAMP, route STRING, speed BIGINT"
ROUTES = "route STRING, t TIMESTAMP, name STRING"
PARTITIONS = "spark.sql.shuffle.partitions"
PER_ROUTE = "SELECT route, COUNT(*) AS n, AVG(speed) AS speed FROM LATEST(buses) GROUP BY route"


class Hosted:
    """A job over one or two feeds, and its registry."""

    def __init__(self, spark, place, **options):
        self.spark, self.place, self.options = spark, place, options
        self.checkpoint = str(place / "checkpoint")
        self._files = 0
        opened(self.checkpoint, str(place / "lake"), 3)
        for name, plan in self.plans().items():
            own = plan.arrow.remove_metadata()
            own = own.remove(own.get_field_index(SYSTEM))
            define_stream(self.checkpoint, Stream(name, own, plan.key, plan.time, updates=True))

    def plans(self):
        def feed(name, key, schema, stays):
            (self.place / name).mkdir(exist_ok=True)
            rows = us.read(
                self.spark, self.place / name, key=key, event_time="t", schema=schema, fileFormat="csv",
                watermark=us.Watermark.bounded("5 seconds"), **self.options,
            )  # fmt: skip
            return rows.where(stays, on_leave="delete").plan

        return {
            "buses": feed("buses", "bus", BUSES, "speed <> -1"),
            "routes": feed("routes", "route", ROUTES, "name <> 'gone'"),
        }

    def write(self, name, *rows):
        header = "bus,t,route,speed" if name == "buses" else "route,t,name"
        cells = [[row[0], f"2026-01-01 00:00:{row[1]:02d}", *row[2:]] for row in rows]
        self._files += 1
        write_csv(self.place / name / f"{self._files}.csv", header, cells)

    def change(self, kind, name, text=None, **values):
        record(self.checkpoint, Change(kind, name, text, **values))

    def run(self):
        start(self.plans(), self.checkpoint, availableNow=True).awaitTermination()

    def rows(self, name, order):
        columns = [field.name for field in DeltaTable(self._table(name)).schema().fields]
        shown = [each for each in columns if not each.startswith("_upstream") and each != "row_key"]
        return pl.read_delta(self._table(name)).select(shown).sort(order).rows()

    def versions(self, name):
        return DeltaTable(self._table(name)).version()

    def query(self, name):
        return registry_now(self.checkpoint).queries[name]

    def report(self, name):
        return Reports(folder_at(self.checkpoint)).read()[self.query(name).id]

    def _table(self, name):
        return str(self.place / "lake" / name)


def taken(query):
    """The version of the registry in the last batch."""
    offsets = [json.loads(each.endOffset) for each in query.lastProgress.sources if each.endOffset]
    return next(offset["version"] for offset in offsets if "upstream_queries" in offset)


def test_queries_come_change_fail_and_go_while_the_job_runs(spark, tmp_path):
    job = Hosted(spark, tmp_path)
    job.change("create", "per_route", PER_ROUTE)
    job.change("create", "recent", "SELECT COUNT(*) AS n FROM buses [RANGE 10 SECONDS]")
    job.write("buses", ("a", 1, "r1", 10), ("b", 2, "r1", 20), ("c", 3, "r2", 30))
    spark.conf.set("spark.sql.streaming.metricsEnabled", "true")
    try:
        query = start(job.plans(), job.checkpoint, name="host", processingTime="0 seconds")
    finally:
        spark.conf.unset("spark.sql.streaming.metricsEnabled")

    def settled():
        """The job has taken all files, and the registry of now, also right after its start."""
        wanted = Journal(job.checkpoint).version()
        query.processAllAvailable()
        assert taken(query) >= wanted

    settled()
    assert job.rows("per_route", "route") == [("r1", 2, 15.0), ("r2", 1, 30.0)]
    assert job.rows("recent", "n") == [], "it waits for the first low-watermark"
    assert not job.report("recent").begun
    assert places_of(query) == [str(job.place / "lake"), job.checkpoint], "what us.ui shows"
    assert absolute_location(running_queries(spark)[query.id]) == job.checkpoint
    # A bus changes its route, and another one goes: the groups change in one commit.
    version = job.versions("per_route")
    job.write("buses", ("a", 5, "r2", 50), ("b", 6, "r1", -1))
    settled()
    assert job.rows("per_route", "route") == [("r2", 2, 40.0)]
    assert job.versions("per_route") == version + 1
    # A query comes, another one is altered, one fails, one goes. The others go on.
    job.change("create", "per_bus", "SELECT bus, 60 / speed AS pace FROM LATEST(buses)")
    job.change("alter", "per_route", "SELECT route, MAX(speed) AS speed FROM LATEST(buses) GROUP BY route")
    job.change("create", "short", "SELECT bus FROM LATEST(buses)")
    settled()
    assert job.rows("per_route", "route") == [("r2", 50)], "it begins with the newest rows, which others keep"
    assert job.rows("per_bus", "bus") == [("a", 1.2), ("c", 2.0)]
    job.change("drop", "short")
    settled()
    job.write("buses", ("a", 7, "r2", 60), ("c", 8, "r1", 15))
    settled()
    assert job.rows("per_route", "route") == [("r1", 15), ("r2", 60)]
    assert job.rows("per_bus", "bus") == [("a", 1.0), ("c", 4.0)]
    job.write("buses", ("d", 9, "r2", 0), ("a", 9, "r2", 30))
    settled()
    assert taken(query) == Journal(job.checkpoint).version(), "with the change that the failure has made"
    assert not job.query("per_bus").active
    assert "division by zero" in job.query("per_bus").reason.lower()
    assert job.rows("per_bus", "bus") == [("a", 1.0), ("c", 4.0)], "a batch in which it failed commits nothing"
    assert job.rows("per_route", "route") == [("r1", 15), ("r2", 30)]
    assert job.rows("short", "bus") == [("a",), ("c",)], "its table stays as it was when it was dropped"
    wait_for(lambda: SparkTimes.read(folder_at(job.checkpoint), query.lastProgress.batchId), query.exception)
    application = SparkApplication.read(folder_at(job.checkpoint))
    assert CheckpointLease(folder_at(job.checkpoint)).read().process in application.processes
    (gauges,) = (each for each in _gauges.values() if each._context is spark.sparkContext)
    gauges.look()
    (shown,) = (each for each in gauges._tables.values() if each.name == "per_route")
    assert shown.values["rows_total"] == shown.gauges["rows_total"].value() > 0
    query.stop()
    assert query.exception() is None
    report = job.report("per_route")
    assert (report.begun, report.rows, report.late) == (True, 4, 0)
    table = str(tmp_path / "lake" / "per_route")
    rows = DeltaTable(table).to_pyarrow_dataset()
    assert duckdb.sql("SELECT route, speed FROM rows ORDER BY route").fetchall() == [("r1", 15), ("r2", 30)]
    assert rows.count_rows() == 2
    assert us.LatestTable(table).check().healthy
    # A restart goes on where the job was, with what was registered meanwhile.
    job.change("activate", "per_bus")
    job.write("buses", ("d", 10, "r2", 20))
    job.run()
    assert job.rows("per_route", "route") == [("r1", 15), ("r2", 30)]
    assert job.rows("per_bus", "bus") == [("a", 2.0), ("c", 4.0), ("d", 3.0)]


def job_states(checkpoint):
    records = StateRecords(folder_at(states_folder(str(checkpoint))))
    return records.before(max(int(each.stem) for each in Path(records.folder.location).glob("*.json")) + 1)


def test_two_streams_meet_over_restarts_in_as_many_shards_as_the_job_has_and_a_table_goes(spark, tmp_path):
    job = Hosted(spark, tmp_path)
    job.change(
        "view", "named", "SELECT bus, speed, name FROM LATEST(buses) AS b JOIN LATEST(routes) AS r USING (route)"
    )
    job.change("create", "per_name", "SELECT name, SUM(speed) AS speed FROM named GROUP BY name")
    job.change("create", "seen", "ISTREAM(SELECT bus FROM buses [NOW] WHERE speed > 25)")
    job.change("create", "goes", PER_ROUTE)
    job.write("buses", ("a", 1, "r1", 10), ("b", 2, "r1", 20), ("c", 3, "r2", 30))
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, 7)
    try:
        job.run()
        assert spark.conf.get(PARTITIONS) == "7"
    finally:
        spark.conf.set(PARTITIONS, before)
    states = job_states(tmp_path / "checkpoint")
    assert sorted(states) == [(stage, shard) for stage in (0, 1) for shard in range(3)]
    drop_query(job.checkpoint, "goes", delete_table=True)
    job.write("routes", ("r1", 1, "one"), ("r2", 1, "two"))
    job.write("buses", ("d", 20, "r2", 40), ("d", 21, "r2", 41), ("d", 22, "r2", 42))
    job.run()
    assert sorted(each.name for each in (tmp_path / "lake").iterdir()) == ["per_name", "seen"]
    assert job.rows("per_name", "name") == [("one", 30), ("two", 72)]
    job.write("routes", ("r1", 2, "uno"), ("r2", 2, "gone"))
    job.write("buses", ("d", 40, "r1", 1), ("d", 41, "r1", 1), ("d", 42, "r1", 2))
    job.run()
    assert job.rows("per_name", "name") == [("uno", 32)]
    assert [row[0] for row in job.rows("seen", ["time", "bus"])] == ["c", "d", "d", "d"]


def test_results_wait_for_their_turn_and_none_is_lost(spark, tmp_path):
    job = Hosted(spark, tmp_path)
    names = [f"q{number}" for number in range(5)]
    for number, name in enumerate(names):
        job.change("create", name, f"SELECT bus, speed + {number} AS v FROM LATEST(buses)")

    def run(**options):
        query = start(job.plans(), job.checkpoint, **options)
        query.awaitTermination()
        assert query.exception() is None

    def values():
        return [[value for _, value in job.rows(name, "bus")] for name in names]

    def costly():
        """Let each result have taken 100 s, as on a slow disk."""
        report = tmp_path / "checkpoint" / "queries" / "report.json"
        known = json.loads(report.read_text())
        for each in known["queries"].values():
            each["cost_s"] = 100.0
        report.write_text(json.dumps(known))

    job.write("buses", ("a", 1, "r1", 10))
    run(availableNow=True)
    # A job that stops while results wait leaves them for the next one.
    costly()
    job.write("buses", ("a", 2, "r1", 20), ("b", 2, "r1", 30))
    query = start(job.plans(), job.checkpoint, processingTime="3 seconds", batch_s=0.5)
    wait_for(lambda: any(job.report(name).waiting_since_us for name in names), query.exception)
    query.stop()
    assert any(len(each) == 1 for each in values()), "some wait"
    run(availableNow=True, batch_s=0.5)
    assert values() == [[20 + n, 30 + n] for n in range(5)], "the run ends with all of them"
    assert all(job.report(name).waiting_since_us is None for name in names)
    assert all(us.LatestTable(tmp_path / "lake" / name).check().healthy for name in names)
    # The only batch of a run puts out all, whatever the limit.
    costly()
    job.write("buses", ("c", 4, "r1", 60))
    run(once=True, batch_s=0.5)
    assert [each[-1] for each in values()] == [60, 61, 62, 63, 64]


def test_a_silent_stream_goes_on_by_its_clock_while_a_query_holds_rows(spark, tmp_path):
    job = Hosted(spark, tmp_path, idle="ets", etsDelay="1 second")
    job.change("create", "recent", "SELECT COUNT(*) AS n FROM buses [RANGE 3 SECONDS]")
    both = "SELECT bus, name FROM buses [RANGE 3 SECONDS] AS b JOIN routes [RANGE 1 HOUR] AS r USING (route)"
    job.change("create", "both", f"ISTREAM({both})")
    job.write("routes", ("r1", 1, "one"), ("r2", 1, "two"))
    job.write("buses", ("a", 1, "r1", 10), ("b", 2, "r2", 20), ("c", 8, "r1", 30))
    query = start(job.plans(), job.checkpoint, processingTime="0 seconds")
    query.processAllAvailable()
    # No row comes any more: both streams pass 8 s and 11 s, and then nothing is held by the first query.
    pairs = [("a", "one"), ("b", "two"), ("c", "one")]
    wait_for(lambda: [row[:2] for row in job.rows("both", "bus")] == pairs, query.exception)
    wait_for(lambda: job.rows("recent", "n") == [(0,)], query.exception)
    query.stop()
    assert query.exception() is None


def test_what_cannot_be_hosted_is_refused(spark, tmp_path):
    job = Hosted(spark, tmp_path)
    plans = job.plans()
    with pytest.raises(OptionError, match="routes missing"):
        start({"buses": plans["buses"], "other": plans["routes"]}, job.checkpoint)
    coalesced = us.read(
        spark, tmp_path / "buses", key="bus", event_time="t", schema=BUSES, fileFormat="csv", coalesce=True
    )
    with pytest.raises(SchemaError, match="'buses'"):
        start({**plans, "buses": coalesced.plan}, job.checkpoint)
    with pytest.raises(CheckpointError, match="no registry"):
        start(plans, str(tmp_path / "other"))


def test_a_queue_ends_with_the_newest_rows_and_no_file_has_a_secret(spark, tmp_path, monkeypatch, capfd):
    rows = [(f"b{number % 5}", f"2026-01-01 00:00:{number:02d}", "r", number) for number in range(40)]
    for file in range(4):
        write_csv(tmp_path / "feed" / f"{file}.csv", "bus,t,route,speed", rows[file * 10 : file * 10 + 10])
    secret = "hunter2-never-written"
    monkeypatch.setenv("FEED_TOKEN", secret)
    source = f"""
    CREATE SOURCE buses FROM '{tmp_path}/feed' WITH (
      key = 'bus', event_time = 't', watermark_delay = '5 seconds', schema = '{BUSES}', format = 'csv',
      max_files_per_trigger = 1, storage.token = env('FEED_TOKEN'),
      queue = 'in-place', queue.budget = 2, queue.shards = 2);
    """
    place = tmp_path / "lake"
    with pytest.raises(OptionError, match=r"buses: maxFilesPerTrigger=.env.'FEED_TOKEN'") as told:
        us.sql(spark, source.replace("trigger = 1", "trigger = env('FEED_TOKEN')"), to=tmp_path / "wrong")
    job = us.sql(spark, source + "CREATE MATERIALIZED VIEW now AS SELECT bus, speed FROM LATEST(buses);", to=place)
    job.start(availableNow=True).awaitTermination()
    assert sorted(job.scan("now").collect().rows()) == [(f"b{number}", 35 + number) for number in range(5)]
    reports = read_reports(queue_folder(job.checkpoint), QueueReport)
    assert sum(each.waiting for each in reports) == 0
    batches = [each for each in os.listdir(tmp_path / "lake_checkpoint" / "offsets") if each.isdigit()]
    assert len(batches) < 15, "forty rows would take twenty batches"
    with pytest.raises(QueryRefusedError, match="lacks rows that newer ones"):
        us.sql(spark, source + "CREATE MATERIALIZED VIEW n AS SELECT COUNT(*) AS n FROM buses", to=place, change=True)
    shown = [created("buses", registry_now(job.checkpoint)), job.explain("now"), str(told.value), *capfd.readouterr()]
    assert "env('FEED_TOKEN')" in shown[0]
    shown += [each.read_bytes().decode(errors="replace") for each in tmp_path.rglob("*") if each.is_file()]
    assert [each for each in shown if secret in each] == []
    assert any("env('FEED_TOKEN')" in each for each in shown[5:])


def test_one_job_at_a_time_hosts_a_checkpoint(spark, tmp_path):
    job = Hosted(spark, tmp_path)
    job.change("create", "per_route", PER_ROUTE)
    job.write("buses", ("a", 1, "r1", 10))

    def started():
        return start(job.plans(), job.checkpoint, processingTime="0 seconds")

    # Of two that start at the same moment one is refused in words, and the other one runs.
    with ThreadPoolExecutor(2) as pool:
        both = [each.exception() or each.result() for each in [pool.submit(started) for _ in range(2)]]
    refused, query = sorted(both, key=lambda each: not isinstance(each, Exception))
    assert isinstance(refused, CheckpointError)
    with pytest.raises(CheckpointError, match=f"another job hosts the queries of .*: process {os.getpid()} on .*,"):
        started()
    query.processAllAvailable()
    assert query.exception() is None
    assert job.rows("per_route", "route") == [("r1", 1, 10.0)]
    # It stops: the next one may start at once, here and, as its lease shows, elsewhere.
    query.stop()
    job.run()
    wait_for(lambda: CheckpointLease(folder_at(job.checkpoint)).read() is None)
    # One that lost its lease, as in a suspended process, fails in words before it changes a table.
    query = started()
    query.processAllAvailable()
    place = CheckpointLease(folder_at(job.checkpoint))
    place.release()
    other = Process("elsewhere", "another machine", 7, 7)
    place.hold("other", other, 60_000_000, now_us())
    version = job.versions("per_route")
    job.write("buses", ("b", 2, "r1", 20))
    with pytest.raises(
        StreamingQueryException, match=r"another job has taken over the queries .* process 7 on elsewhere"
    ):
        query.awaitTermination()
    assert job.versions("per_route") == version
    with pytest.raises(CheckpointError, match="process 7 on elsewhere"):
        started()


SLOTS = integers_with_hash(range(2))


def test_a_stream_keeps_its_operators_for_the_life_of_the_checkpoint(spark, tmp_path):
    place = str(tmp_path / "checkpoint")

    def host(*queued):
        streams = {}
        for name in ("two", "one"):
            stream = us.UpdateStream(csv_feed(spark, tmp_path / name), key="key", event_time="ms")
            streams[name] = (stream.queue(budget=None, shards=2) if name in queued else stream).plan
        return build_host(streams, place, SLOTS, lambda _: lambda _batches: iter(()), [])

    for name in ("one", "two"):
        write_csv(tmp_path / name / "1.csv", "key,ms,value", [("a", 1, 1)])
    for _ in range(2):
        run_to_end(host("two").writeStream.format("noop").option("checkpointLocation", place))
    with pytest.raises(CheckpointError, match="queue"):
        host()
