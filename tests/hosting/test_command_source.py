import subprocess
import sys

import pyarrow as pa
import pytest
from kit.registries import begun, register
from pyspark.sql.streaming.datasource import ReadAllAvailable

from upstream.core.feedback.checkpoint_layout import stage_folder
from upstream.core.feedback.reports import StageReport, write_report
from upstream.hosting import command_source
from upstream.hosting.command_source import CommandPlanner, CommandSource
from upstream.hosting.messages import TICK
from upstream.hosting.output import BatchOutcome, Began
from upstream.hosting.registry.changes import Change
from upstream.hosting.registry.edits import record
from upstream.hosting.registry.registry import registry_now
from upstream.hosting.reports import Reports
from upstream.storage.folder import folder_at

LIMIT = ReadAllAvailable()


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(command_source.time, "monotonic", lambda: now[0])
    return now


def change(checkpoint, number):
    folder = checkpoint / "queries" / "changes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:020d}.json").write_text("{}")


def reader_of(checkpoint):
    return CommandSource({"checkpoint": str(checkpoint), "slots": "5,-7"}).streamReader(None)


def test_the_first_batch_comes_even_without_a_query(tmp_path, clock):
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    first = reader.latestOffset(start, LIMIT)
    assert (start["version"], first["version"]) == (-1, 0)
    assert first == {"upstream_queries": str(tmp_path), "version": 0, "tick": 0, "served": None}
    clock[0] += 9
    assert reader.latestOffset(first, LIMIT) == first


def test_a_change_on_a_disk_counts_at_once(tmp_path, clock):
    """So it is in force when `processAllAvailable` returns."""
    reader = reader_of(tmp_path)
    offset = reader.latestOffset(reader.initialOffset(), LIMIT)
    for version in (1, 2, 3):
        change(tmp_path, version)
        offset = reader.latestOffset(offset, LIMIT)
        assert offset["version"] == version


def test_an_object_store_is_asked_for_changes_once_in_a_while(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(command_source.Journal, "is_local", False)
    reader = reader_of(tmp_path)
    first = reader.latestOffset(reader.initialOffset(), LIMIT)
    change(tmp_path, 1)
    change(tmp_path, 12)
    (tmp_path / "queries" / "changes" / ".13.json.tmp").write_text("")  # another one is being written
    clock[0] += 0.9
    assert reader.latestOffset(first, LIMIT) == first
    clock[0] += 0.2
    assert reader.latestOffset(first, LIMIT)["version"] == 12


def test_a_run_that_takes_what_is_there_ends(tmp_path, clock):
    change(tmp_path, 1)
    reader = reader_of(tmp_path)
    reader.prepareForTriggerAvailableNow()
    change(tmp_path, 2)
    clock[0] += 9
    first = reader.latestOffset(reader.initialOffset(), LIMIT)
    clock[0] += 9
    assert first["version"] == 1
    assert reader.latestOffset(first, LIMIT) == first


def test_a_moved_checkpoint_starts_no_batch_by_itself(tmp_path, clock):
    change(tmp_path, 3)
    start = {"upstream_queries": "/elsewhere", "version": 3, "tick": 2, "served": None}
    reader = reader_of(tmp_path)
    assert reader.latestOffset(start, LIMIT) == start
    change(tmp_path, 4)
    clock[0] += 1
    after = {"upstream_queries": str(tmp_path), "version": 4, "tick": 2, "served": None}
    assert reader.latestOffset(start, LIMIT) == after


def test_each_shard_is_woken(tmp_path):
    reader = reader_of(tmp_path)
    (part,) = reader.partitions(reader.initialOffset(), {"version": 1})
    rows = pa.Table.from_batches(list(reader.read(part))).to_pylist()
    assert rows == [{"slot": slot, "frame": None, "control": TICK} for slot in (5, -7)]


class Job:
    """A checkpoint with queries, and what its job has reported."""

    def __init__(self, path):
        self.checkpoint = begun(path)
        self.reports = Reports(folder_at(self.checkpoint))
        self.batch = -1

    def planner(self, batch_s=1.0):
        return CommandPlanner(self.checkpoint, (5, -7), batch_s)

    def after(self, costs, waiting=None, began=()):
        """Report a batch that has put out results at some costs; others wait."""
        self.batch += 1
        outcome = BatchOutcome(
            rows=dict.fromkeys(costs, 1), waiting=waiting or {}, began={each: Began(None) for each in began}
        )
        active = [each.id for each in registry_now(self.checkpoint).active.values()]
        self.reports.take(self.batch, outcome, active, {}, 0.5 + sum(costs.values()), costs)


def test_while_results_wait_batches_put_out_some(tmp_path, clock):
    job = Job(tmp_path)
    for weight, name in ((1, "a"), (4, "b"), (1, "c")):
        register(job.checkpoint, name, weight=weight)
    planner = job.planner()
    first = planner.plan(planner.initial(), 0)
    assert (first["version"], first["served"], first["tick"]) == (3, None, 0), "new ones are served"
    assert planner.plan(first, 0) == first
    # They have taken longer than a batch is to take: the next one puts out less, also if nothing waits.
    job.after({1: 0.5, 2: 0.5, 3: 0.5}, began=(1, 2, 3))
    second = planner.plan(first, 1_000_000)
    assert (second["served"], second["tick"]) == ([2], 1)
    assert planner.plan(second, 1_500_000) == second, "nothing waits"
    job.after({2: 0.5}, {1: 1_200_000, 3: 1_300_000})
    third = planner.plan(second, 9_000_000)
    assert (third["served"], third["tick"]) == ([1], 2)
    # A new weight and a new query count at once.
    register(job.checkpoint, "d")
    record(job.checkpoint, Change("alter", "c", weight=2))
    clock[0] += 2
    job.after({1: 0.5}, {3: 1_300_000})
    fourth = planner.plan(third, 9_000_000)
    assert (fourth["version"], fourth["served"], fourth["tick"]) == (5, [3, 4], 3)
    # What no longer runs does not wait; when all have time, all are served.
    record(job.checkpoint, Change("deactivate", "c"))
    clock[0] += 2
    job.after({}, {3: 1_300_000}, began=(4,))
    assert job.reports.read().keys() == {1, 2, 4}
    fifth = planner.plan(fourth, 9_000_000)
    assert (fifth["version"], fifth["tick"]) == (6, 3)
    wide = job.planner(9.0)
    job.after({}, {2: 8_000_000})
    sixth = wide.plan(fifth, 9_000_000)
    assert (sixth["served"], sixth["tick"]) == (None, 4)
    job.after({2: 0.5})
    for _ in range(2):
        assert wide.plan(sixth, 9_000_000) == sixth


def test_a_run_without_a_limit_puts_out_what_an_earlier_one_has_left(tmp_path, clock):
    job = Job(tmp_path)
    register(job.checkpoint, "a")
    planner = job.planner(None)
    start = {**planner.initial(), "version": 1, "tick": 6, "served": [1]}
    after = planner.plan(start, 0)
    assert after == {**start, "tick": 7, "served": None}
    assert planner.plan(after, 0) == after


def test_while_a_query_is_behind_batches_go_on_without_rows(tmp_path, clock):
    job = Job(tmp_path)
    register(job.checkpoint, "a")
    planner = job.planner(None)
    first = planner.plan(planner.initial(), 0)
    for stage in (0, 1):
        write_report(stage_folder(job.checkpoint, stage), StageReport(0, behind=stage == 1))
    assert planner.plan(first, 0) == first, "reports are read once in a while"
    clock[0] += 1
    second = planner.plan(first, 0)
    assert second == {**first, "tick": 1}
    write_report(stage_folder(job.checkpoint, 1), StageReport(0))
    assert planner.plan(second, 0) == second
    # A run that takes what is there ends when no query is behind.
    write_report(stage_folder(job.checkpoint, 1), StageReport(0, behind=True))
    planner.stop()
    assert planner.plan(second, 0)["tick"] == 2


def test_the_limit_is_an_option(tmp_path, clock):
    job = Job(tmp_path)
    for name in ("a", "b"):
        register(job.checkpoint, name)
    reader = CommandSource({"checkpoint": job.checkpoint, "slots": "5", "batchSeconds": "1.0"}).streamReader(None)
    first = reader.latestOffset(reader.initialOffset(), LIMIT)
    job.after({1: 0.5, 2: 0.9}, {}, (1, 2))
    assert reader.latestOffset(first, LIMIT)["served"] == [1]


_PLANNING = """
import sys
from upstream.hosting.command_source import CommandPlanner

planner = CommandPlanner(sys.argv[1], (5, -7), 1.0)
print(planner.plan(planner.initial(), 1_000_000)["served"])
print(*sorted({"polars", "sqlglot", "deltalake", "pandas"} & sys.modules.keys()))
"""


def test_the_process_that_plans_for_spark_imports_no_parser_and_no_frames(tmp_path):
    job = Job(tmp_path)
    for name in ("a", "b"):
        register(job.checkpoint, name)
    job.after({1: 0.5, 2: 0.9}, {}, (1, 2))
    done = subprocess.run([sys.executable, "-c", _PLANNING, job.checkpoint], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[1]", ""]
