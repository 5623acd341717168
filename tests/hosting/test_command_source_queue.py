"""The queue of a materialized view: its place in the plan, its refusals, and its batches."""

import re
from pathlib import Path

import polars as pl
import pytest
from kit.continuous import BUSES, CATALOG
from kit.hosting import Tables, scanned
from kit.local_host import LocalHost
from kit.registries import begun, register

from upstream.conf.errors import OptionError, QueryRefusedError, SchemaError
from upstream.core.feedback.checkpoint_layout import query_queue_folder
from upstream.core.feedback.reports import QueueReport, read_reports
from upstream.hosting.command_source import CommandPlanner
from upstream.hosting.edits import record
from upstream.hosting.journal import Change
from upstream.hosting.messages import QUEUES, Command
from upstream.hosting.output import result_rows
from upstream.hosting.registry import registry_at, registry_now
from upstream.language import ViewQueue, bind, plan_text

IN_PLACE = {"queue": "in-place", "budget": "2"}
SCORED = "SELECT vehicle_id, speed * 2 AS score FROM LATEST(buses)"


def queued(text, **options):
    return ViewQueue.put(bind(text, CATALOG), "v", options or IN_PLACE)


def test_conditions_without_python_come_before_the_queue():
    text = f"SELECT * FROM ({SCORED} WHERE speed > 1) WHERE doubled(score) > 3 AND score < 9"
    lines = plan_text(queued(text)).splitlines()
    (queue,) = [at for at, line in enumerate(lines) if "Queue in-place" in line]
    assert re.search(r"where .*doubled.* AND .* < ", lines[queue])
    assert "a row that waits, and a result per (vehicle_id)" in lines[queue]
    assert "Where" in lines[queue + 1]
    assert "doubled" not in lines[queue + 1]


def test_a_weight_is_an_expression_of_the_streams_columns():
    assert "Queue in-place by (speed + 1.0), then" in plan_text(queued(SCORED, **IN_PLACE, key_weight="speed + 1"))
    with pytest.raises(SchemaError, match="key_weight='score'"):
        queued(SCORED, **IN_PLACE, key_weight="score")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id", "the operator 'aggregate'.*LATEST"),
        ("SELECT b.vehicle_id FROM LATEST(buses) AS b JOIN LATEST(buses) AS c ON b.route_id = c.route_id", "'join'"),
        ("SELECT vehicle_id FROM buses [RANGE 1 MINUTE]", "'changes'"),
        ("SELECT DISTINCT vehicle_id FROM LATEST(buses)", "'distinct'"),
        ("SELECT vehicle_id FROM LATEST(buses) ORDER BY speed LIMIT 3", "'top'"),
        ("SELECT vehicle_id FROM LATEST(buses) UNION SELECT 'a' FROM LATEST(buses)", "'set'"),
        ("SELECT speed FROM LATEST(buses)", "lack the key vehicle_id"),
        ("SELECT upper(vehicle_id) AS vehicle_id FROM LATEST(buses)", "lack the key vehicle_id"),
    ],
)
def test_a_plan_that_cannot_have_a_queue_is_refused(text, message):
    with pytest.raises(QueryRefusedError, match=message):
        queued(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": "append"}, "queue = 'append'.*'fifo', 'in-place', 'linecutting', 'auto'"),
        ({"budget": "5"}, "budget without a queue"),
        ({"queue": "fifo", "budget": "few"}, "budget='few'"),
        ({"queue": "fifo", "access_interval": "soon"}, "access_interval='soon'"),
        ({"queue": "fifo", "key_weight": "route_id"}, "key_weight='route_id' is of string"),
    ],
)
def test_wrong_options_are_refused_when_the_view_is_created(tmp_path, options, message):
    checkpoint = begun(tmp_path)
    with pytest.raises(OptionError, match=message):
        register(checkpoint, "v", SCORED, queue=options)


def test_another_budget_lets_the_query_continue_and_another_policy_restarts_it(tmp_path):
    checkpoint = begun(tmp_path)
    first = register(checkpoint, "v", SCORED, queue=IN_PLACE).queries["v"]
    more = record(checkpoint, Change("alter", "v", queue={**IN_PLACE, "budget": "9"})).queries["v"]
    assert (more.id, more.queue["budget"], more.bound) == (first.id, "9", first.bound)
    other = record(checkpoint, Change("alter", "v", queue={"queue": "fifo"})).queries["v"]
    assert other.id > first.id
    none = record(checkpoint, Change("alter", "v", queue={})).queries["v"]
    assert none.id > other.id
    assert none.text == SCORED


class Job:
    """A job of one view with a queue, with the planner and the stages that Spark runs."""

    def __init__(self, path: Path, **options: str) -> None:
        self.checkpoint = begun(path)
        self.id = register(self.checkpoint, "v", SCORED, queue={"queue": "in-place", **options}).queries["v"].id
        self.planner = CommandPlanner(self.checkpoint, tuple(range(8)))
        self.host = LocalHost(lambda version: registry_at(self.checkpoint, version), 8, checkpoint=self.checkpoint)
        self.offset = self.planner.initial()
        self.batches = 0
        self.tables = Tables(self.host.plan(1))

    def batch(self, now_us: int, *rows: tuple[str, float]) -> list[tuple[str, int]] | None:
        """Run a batch, and return the key and the first arrival of each result; None if no batch is due."""
        offset = self.planner.plan(self.offset, now_us)
        if offset == self.offset and not rows:
            return None
        self.offset, self.batches = offset, self.batches + 1
        queues = {int(query): tick for query, tick in offset.get(QUEUES, {}).items()}
        frame = pl.DataFrame(
            {
                **{name: [None] * len(rows) for name in BUSES.schema.names},
                "vehicle_id": [key for key, _ in rows],
                BUSES.event_time: [now_us] * len(rows),
                "speed": [speed for _, speed in rows],
            }
        )
        task = scanned(BUSES, frame, [now_us - len(rows) + at for at in range(len(rows))])
        left = self.host.batch(Command(self.batches, offset["version"], queues=queues), {"buses": [task]})
        self.tables.take(left)
        self.waiting = [since for each in left for since in each.leaving.since]
        found = []
        for frame in [each.frame for each in left if each.leaving.kind == "rows"]:
            made = result_rows([frame])
            found += zip(made.rows.column("vehicle_id").to_pylist(), made.first_arrival_us.tolist(), strict=True)
        return found

    def reports(self) -> list[QueueReport]:
        return read_reports(query_queue_folder(self.checkpoint, self.id), QueueReport)


def test_batches_follow_until_no_row_waits_and_each_releases_the_budget(tmp_path):
    job = Job(tmp_path, budget="8")  # one row of each shard
    keys = [f"b{number}" for number in range(40)]
    first = job.batch(1_000_000, *((key, 1.0) for key in keys))
    assert 0 < len(first) <= 8
    waiting = set(keys) - {key for key, _ in first}
    assert sum(each.waiting for each in job.reports()) == len(waiting)
    assert min(job.waiting) == min(999_960 + keys.index(key) for key in waiting)
    second = job.batch(2_000_000)
    oldest = sorted(waiting, key=keys.index)[:8]
    assert sorted(second) == sorted((key, 999_960 + keys.index(key)) for key in oldest), "the oldest of all shards"
    batches = 0
    while job.batch(3_000_000 + batches) is not None:
        batches += 1
    assert batches == -(-(len(waiting) - 8) // 8)
    assert {key for key, _ in job.tables.contents(job.id)} == set(keys)
    assert not job.waiting


def test_the_planner_finds_the_budget_by_the_reports(tmp_path):
    job = Job(tmp_path, budget="auto")
    rows = [(f"b{number}", 1.0) for number in range(3000)]
    job.batch(1_000_000, *rows)
    assert sum(each.waiting for each in job.reports()) >= 1000
    job.batch(2_000_000)
    tick = job.offset[QUEUES][str(job.id)]
    assert (tick["tick"], tick["asked"], tick["budget"]) == (1, "auto", 2000)


def test_another_budget_holds_from_the_next_batch_on_also_while_no_row_waits(tmp_path):
    job = Job(tmp_path, budget="80")
    keys = [f"b{number}" for number in range(40)]
    assert len(job.batch(1_000_000, *((key, 1.0) for key in keys))) == 40
    record(job.checkpoint, Change("alter", "v", queue={"queue": "in-place", "budget": "8"}))
    assert job.batch(2_000_000) == [], "the tick that has it"
    assert 0 < len(job.batch(3_000_000, *((key, 2.0) for key in keys))) <= 8
    assert (job.offset[QUEUES][str(job.id)]["asked"], job.offset["version"]) == ("8", 2)


def test_rows_wait_in_the_queue_while_its_view_is_paused_with_its_state(tmp_path):
    job = Job(tmp_path, budget="8")
    keys = [f"b{number}" for number in range(40)]
    first = job.batch(1_000_000, *((key, 1.0) for key in keys))
    cost = job.offset[QUEUES][str(job.id)]["cost"]
    record(job.checkpoint, Change("deactivate", "v", kept_since_us=1_500_000))
    assert job.batch(2_000_000) == [], "the tick that pauses it"
    assert job.batch(3_000_000) is None
    assert job.batch(4_000_000, *((key, 2.0) for key in keys[:20])) == []
    assert job.batch(5_000_000, ("b0", 3.0), ("new", 3.0)) == []
    waiting = {*keys} - {key for key, _ in first} | {*keys[:20], "new"}
    assert sum(each.waiting for each in job.reports()) == len(waiting)
    assert sum(each.superseded for each in job.reports()) > 0
    record(job.checkpoint, Change("activate", "v"))
    sizes = []
    while (found := job.batch(9_000_000 + len(sizes))) is not None:
        sizes.append(len(found))
        assert job.offset[QUEUES][str(job.id)]["cost"] == cost or len(sizes) > 1, "the pause is no batch"
    assert sum(sizes) == len(waiting)
    assert max(sizes) == 8
    assert not job.waiting
    expected = dict.fromkeys(keys, 2.0) | dict.fromkeys(keys[:20], 4.0) | {"b0": 6.0, "new": 6.0}
    assert {row[0]: row[1] for row in job.tables.contents(job.id)} == expected


def test_a_dropped_view_has_no_tick(tmp_path):
    job = Job(tmp_path, budget="1")
    job.batch(1_000_000, *((f"b{number}", 1.0) for number in range(40)))
    record(job.checkpoint, Change("drop", "v"))
    assert job.planner.plan(job.offset, 2_000_000)[QUEUES] == {}
    assert registry_now(job.checkpoint).queries == {}
