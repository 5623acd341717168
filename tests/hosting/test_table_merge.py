"""From rows of both stages to tables of the lake, without Spark: merged in tasks, committed beside them."""

import dataclasses
import functools
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pytest
from kit.continuous import BUSES, TRADE
from kit.hosting import scanned
from kit.local_host import LocalHost

from upstream.conf.errors import TableError
from upstream.core.rows.frames import from_frame, to_frame
from upstream.delta_format.latest_table import BUCKET
from upstream.hosting import table_merge
from upstream.hosting.edits import define_stream, opened, record
from upstream.hosting.host_plan import HostPlans
from upstream.hosting.journal import Change
from upstream.hosting.messages import Command
from upstream.hosting.output import OutputControl, outcome_of
from upstream.hosting.registry import registry_at
from upstream.hosting.table_merge import GivenForTables, MergeInShard, MergeStep, shown_to_tasks, tables_of
from upstream.operators.runtime.pack import PACKED
from upstream.sink.figures.waits import complete_to
from upstream.sink.results.result_tables import ResultTables

SHARDS = 3


class Job:
    """Batches of hosted queries, and their tables."""

    def __init__(self, place):
        self.checkpoint = str(place / "checkpoint")
        opened(self.checkpoint, str(place / "lake"), SHARDS)
        define_stream(self.checkpoint, BUSES)
        define_stream(self.checkpoint, TRADE)
        registry_of = functools.partial(registry_at, self.checkpoint)
        self.plans = HostPlans(registry_of, range(SHARDS))
        self.host = LocalHost(registry_of, SHARDS)
        self.sink = ResultTables("host", self.checkpoint)
        self.batch = -1

    def register(self, name, text, buckets=1):
        self.version = record(self.checkpoint, Change("create", name, text, buckets=buckets)).version

    def left(self, rows):
        self.batch += 1
        return self.host.batch(Command(self.batch, self.version), {BUSES.name: [rows]})

    def commit(self, left, tasks=2):
        """Merge what left in so many tasks, by the bucket that its control names, and commit what they staged."""
        tables = tables_of(self.plans, self.version)
        seen = self.sink.look(tables.values())
        step = MergeStep(self.plans, self.version, seen.tables)
        found = []
        for task in range(tasks):
            own = [each for each in left if (each.leaving.query + each.leaving.bucket) % tasks == task]
            for batch in step(iter(packed(own).to_batches())):
                found += [(row["control"], row["frame"]) for row in batch.to_pylist()]
        outcome = outcome_of(found)
        staged = {tables[number].name: each for number, each in outcome.staged.items()}
        self.commits = self.sink.commit(
            tables.values(), staged, self.batch, None, outcome.bounds(self.plans(self.version).queries)
        )
        return outcome

    def rows(self, name):
        location = next(each.location for each in tables_of(self.plans, self.version).values() if each.name == name)
        frame = pl.read_delta(location)
        return sorted(frame.drop([each for each in frame.columns if each.startswith("_upstream")]).rows())


def packed(left):
    controls = [each.leaving.control() for each in left]
    nothing = pa.nulls(len(left), pa.int32())
    return pa.table([nothing, pa.array([each.frame for each in left], pa.binary()), pa.array(controls)], schema=PACKED)


def buses(*rows, deleted=None, bounds=None):
    """Rows of vehicle, route, speed and second."""
    columns = list(zip(*rows, strict=True))
    columns[-1] = [second * 1_000_000 for second in columns[-1]]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, BUSES.schema, strict=True)]
    frame = pl.from_arrow(pa.table(arrays, schema=BUSES.schema))
    return scanned(BUSES, frame, [second for *_, second in rows], bounds, deleted=deleted)


def test_groups_that_keys_leave_and_enter_reach_the_tables_once(tmp_path):
    job = Job(tmp_path)
    job.register("per_route", "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id", buckets=3)
    job.register("fast", "SELECT vehicle_id, speed FROM LATEST(buses) WHERE speed > 10")
    outcome = job.commit(job.left(buses(("a", "r1", 5, 1), ("b", "r1", 15, 2), ("c", "r2", 20, 3))))
    assert [row[-2:] for row in job.rows("per_route")] == [("r1", 2), ("r2", 1)]
    assert job.rows("fast") == [("b", 15.0), ("c", 20.0)]
    assert (outcome.rows, sorted(outcome.began), outcome.failed) == ({1: 2, 2: 2}, [1, 2], {})
    moved = job.left(buses(("a", "r2", 30, 4), ("b", "r1", 15, 5), deleted=[False, True]))
    job.commit(moved)
    assert [row[-2:] for row in job.rows("per_route")] == [("r2", 2)]
    assert job.rows("fast") == [("a", 30.0), ("c", 20.0)]
    job.commit(moved)  # the batch runs again
    assert [row[-2:] for row in job.rows("per_route")] == [("r2", 2)]
    # In which task a bucket is merged does not matter, nor how many tasks there are.
    job.commit(job.left(buses(("c", "r3", 1, 6))), tasks=5)
    assert [row[-2:] for row in job.rows("per_route")] == [("r2", 1), ("r3", 1)]
    assert job.rows("fast") == [("a", 30.0)]


def test_a_tables_commit_has_the_time_up_to_which_its_rows_are_complete(tmp_path):
    job = Job(tmp_path)
    job.register("fast", "SELECT vehicle_id FROM LATEST(buses)")
    job.commit(job.left(buses(("a", "r1", 5, 1), bounds={"f": 9_000_000, "g": 8_000_000})))
    assert complete_to(job.commits["fast"]) == "1970-01-01 00:00:08 UTC"
    assert job.commits["fast"].low_watermark == "1970-01-01T00:00:08.000000Z", "as in other tables"
    job.commit(job.left(buses(("b", "r1", 5, 9), bounds={"f": None, "g": None})))
    assert (complete_to(job.commits["fast"]), job.commits["fast"].rows) == ("the end", 1)
    # Another query by that name begins anew, with its own streams.
    job.version = record(job.checkpoint, Change("drop", "fast")).version
    job.register("fast", "SELECT sym FROM trade")
    job.commit(job.left(buses(("c", "r1", 5, 3))))
    assert complete_to(job.commits["fast"]) == "no known time"


def test_late_rows_of_two_shards_are_two(tmp_path):
    job = Job(tmp_path)
    job.register("fast", "SELECT vehicle_id FROM LATEST(buses)")
    late = OutputControl("late", name="buses", count=1, queries=(1,)).control()
    nothing = pa.nulls(2, pa.int32()), pa.nulls(2, pa.binary())
    (batch,) = MergeStep(job.plans, job.version, {})(iter([pa.record_batch([*nothing, [late, late]], schema=PACKED)]))
    assert batch.to_pylist() == [{"slot": None, "frame": None, "control": late}] * 2


def test_a_table_that_cannot_take_its_rows_fails_its_query_alone(tmp_path):
    job = Job(tmp_path)
    for name in ("one", "two", "three"):
        job.register(name, "SELECT vehicle_id, speed FROM LATEST(buses)")
    left = job.left(buses(("a", "r1", 5, 1)))
    tables = tables_of(job.plans, job.version)
    seen = job.sink.look([tables[1], tables[2]])  # that of the third was refused
    named = {each.leaving.name: each for each in left if each.leaving.kind == "rows"}
    frame = named["two"].frame
    assert frame is not None
    nameless = to_frame(from_frame(frame).set_column(0, "vehicle_id", pa.nulls(1, pa.string())))
    rows = packed([each for name, each in named.items() if name != "two"]).to_pylist()
    rows.append({"slot": None, "frame": nameless, "control": named["two"].leaving.control()})
    step = MergeStep(job.plans, job.version, seen.tables)
    batches = list(step(iter(pa.Table.from_pylist(rows, schema=PACKED).to_batches())))
    outcome = outcome_of((row["control"], row["frame"]) for batch in batches for row in batch.to_pylist())
    assert list(outcome.staged) == [1]
    ((name, reason),) = outcome.failed.values()
    assert (list(outcome.failed), name) == ([2], "two")
    assert "vehicle_id" in reason


def test_a_worker_of_the_second_stage_merges_unless_other_shards_have_rows_of_a_bucket(tmp_path, monkeypatch):
    job = Job(tmp_path)
    job.register("fast", "SELECT vehicle_id, speed FROM LATEST(buses)")
    batches = packed(job.left(buses(("a", "r1", 5, 1), ("b", "r1", 6, 1)))).to_batches()
    properties = {}
    monkeypatch.setattr(table_merge, "task_property", properties.get)
    session = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=properties.__setitem__))

    def merged():
        step = MergeInShard(lambda: Command(job.batch, job.version), job.plans, GivenForTables())
        return pa.Table.from_batches(step(iter(batches))).to_pylist()

    tables = tables_of(job.plans, job.version)
    with shown_to_tasks(session, job.sink.look(tables.values()).tables):
        outcome = outcome_of((row["control"], row["frame"]) for row in merged())
    assert (outcome.rows, list(outcome.staged)) == ({1: 2}, [1])
    job.sink.commit(tables.values(), {"fast": outcome.staged[1]}, job.batch, None, {})
    assert job.rows("fast") == [("a", 5.0), ("b", 6.0)]
    job.register("per_speed", "SELECT speed, COUNT(*) AS n FROM LATEST(buses) GROUP BY speed")
    assert merged() == pa.Table.from_batches(batches).to_pylist()


def test_a_disk_that_fails_is_no_reason_against_a_query(tmp_path):
    job = Job(tmp_path)
    job.register("one", "SELECT vehicle_id, speed FROM LATEST(buses)", buckets=2)
    job.commit(job.left(buses(("b", "r1", 5, 1))))
    (table,) = tables_of(job.plans, job.version).values()
    (there,) = (path.name for path in Path(table.location).glob(f"{BUCKET}=*"))
    place = Path(table.location, f"{BUCKET}={1 - int(there[-1])}")
    place.touch()  # no folder can be made here, as on a full disk
    left = job.left(buses(("a", "r1", 5, 2), ("c", "r1", 5, 2), ("d", "r1", 5, 2)))
    with pytest.raises(TableError, match="cannot be written"):
        job.commit(left)
    place.unlink()
    assert job.commit(left).failed == {}
    assert job.rows("one") == [(key, 5.0) for key in "abcd"]


def test_what_is_given_for_all_tables_reaches_each(tmp_path):
    job = Job(tmp_path)
    job.register("fast", "SELECT vehicle_id FROM LATEST(buses)")
    given = GivenForTables((("storage.region", "eu"),), overwrite=True)
    plain = tables_of(job.plans, job.version)
    told = tables_of(job.plans, job.version, given)
    assert plain.keys() == told.keys() != set()
    for number, table in told.items():
        assert (table.options, table.overwrite) == (given.options, True)
        assert dataclasses.replace(table, options=(), overwrite=False) == plain[number]
        assert tables_of(job.plans, job.version, given)[number] is table
