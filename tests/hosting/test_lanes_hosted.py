"""Queries of every row lag behind those of newest rows, and in the end have the results that they would have."""

import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.continuous import BUSES
from kit.hosting import Tables, Versions, run
from kit.journal import through_json
from kit.local_host import LocalHost
from kit.memory_connector import MemoryConnector

from upstream.core.feedback.lanes import LANE_FIGURES, LaneReader, StreamLanes, write_lanes
from upstream.core.rows.key import Key
from upstream.core.watermark.bounds import AFTER_ALL
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.options import SourceOptions
from upstream.datasource.planner import BatchPlanner
from upstream.datasource.schema import leaving_schema, shape_of
from upstream.datasource.task import Reading
from upstream.hosting.messages import Command
from upstream.storage.folder import TableFolder

S = 1_000_000
BASE = 1_700_000_000 * S
WINDOWS = (
    "SELECT window_end, route_id, COUNT(*) AS n, SUM(speed) AS v FROM TUMBLE(buses, timestamp, INTERVAL '10' SECONDS) "
)
WINDOWS += "GROUP BY window_end, route_id EMIT ON WINDOW CLOSE"
QUERIES = {
    "newest": "SELECT vehicle_id, route_id, speed FROM LATEST(buses)",
    "by_route": "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id",
    "windows": WINDOWS,
    "range": "SELECT vehicle_id, COUNT(*) AS n FROM buses [RANGE UNBOUNDED] GROUP BY vehicle_id",
    "both": "SELECT a.vehicle_id, a.route_id FROM LATEST(buses) AS a JOIN buses [RANGE 1 HOUR] AS b "
    "ON a.vehicle_id = b.vehicle_id WHERE b.speed > 5",
}  # fmt: skip


class Job:
    """A job with its source, whose batches each run in a process that knows nothing but the journal."""

    def __init__(self, folder, versions):
        self.place = TableFolder(str(folder))
        self.options = SourceOptions(
            key=Key(BUSES.key), time=BUSES.event_time, progress="bounded", progress_delay_us=2 * S, confirmations=1,
            checkpoint_location=str(folder), min_partitions=3,
        )  # fmt: skip
        self.shape = shape_of(leaving_schema(BUSES.schema, self.options), self.options)
        self.connector = MemoryConnector({feed: BUSES.schema.empty_table() for feed in "ab"})
        self.host = LocalHost(versions, 3, random.Random(1))
        self.offset = BatchPlanner.initial()
        self.tables = Tables(self.host.plan(1))
        self.number = 0

    def send(self, feed, rows):
        rows = [(f"v{key}", f"r{route}", float(speed), BASE + at * S) for key, route, speed, at in rows]
        columns = [list(each) for each in zip(*rows, strict=True)] or [[], [], [], []]
        sent = pa.table([pa.array(c, f.type) for c, f in zip(columns, BUSES.schema, strict=True)], schema=BUSES.schema)
        self.connector.tables[feed] = pa.concat_tables([self.connector.tables[feed], sent])

    def batch(self, budget, version=1):
        write_lanes(self.place, {"buses": StreamLanes(True, True, budget)}, {})
        reader = LaneReader(self.place, "buses")
        now = BASE + self.number * S
        planner = BatchPlanner(self.connector, self.options, self.shape, clock=lambda: now, lanes=reader)
        start, end = self.offset, through_json(planner.plan(self.offset, Limit()))
        if end == start:
            return False
        self.offset = end
        reading, tasks = Reading(self.options, self.shape, self.connector, None), []
        for task in planner.tasks(start, end):
            if batches := list(reading.read(task)):
                tasks.append(pa.Table.from_batches(batches).replace_schema_metadata({"lane": task.lane}))
        self._run(tasks, version)
        return True

    def rest(self, version):
        """Run the batches that the command source starts while periods are still to come."""
        for _ in range(8):
            self._run([], version)

    def _run(self, tasks, version):
        self.tables.plan = self.host.plan(version)
        self.host = run(self.host, Command(self.number, version), {"buses": tasks}, self.tables)
        self.number += 1


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 9), st.integers(0, 4)), max_size=12
)  # fmt: skip
STEPS = st.lists(st.tuples(ROWS, ROWS, st.sampled_from([1, 4, 9, None])), min_size=3, max_size=5)
VERSIONS = {1: {name: (number, text) for number, (name, text) in enumerate(QUERIES.items(), 1)}}
VERSIONS[2] = {**VERSIONS[1], "later": (10, WINDOWS), "newest_later": (11, QUERIES["newest"] + " WHERE speed >= 0")}


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(STEPS, st.integers(0, 6))
def test_a_lag_changes_no_result_and_queries_of_newest_rows_have_none(tmp_path_factory, steps, begins):
    job, other = (Job(tmp_path_factory.mktemp("job"), Versions(VERSIONS)) for _ in range(2))
    for number, (left, right, budget) in enumerate(steps):
        version = 2 if number >= begins else 1
        for one, most in ((job, budget), (other, None)):
            one.send("a", [(key, route, speed, 5 * number + at) for key, route, speed, at in left])
            one.send("b", [(key, route, speed, 5 * number + at) for key, route, speed, at in right])
            one.batch(most, version)
        for query in (1, 2):
            assert job.tables.contents(query) == other.tables.contents(query)
    for one, most in ((job, 4), (other, None)):
        one.connector.ended = frozenset("ab")
        while one.batch(most, 2):
            pass
        one.rest(2)
        assert one.offset[LANE_FIGURES]["owed"] == 0
    assert not job.tables.failed
    assert job.tables.late == other.tables.late
    for query in range(1, 6):
        assert job.tables.contents(query) == other.tables.contents(query), query
    sent = Counter(f"v{row[0]}" for left, right, _ in steps for row in (*left, *right))
    assert sum(sent.values()) == job.tables.late["buses"] + sum(n for _, n in job.tables.contents(4))
    assert job.tables.contents(11) == other.tables.contents(11)
    # A window query that begins in the lag has all windows from the time on that it promises.
    if (since := job.tables.begun.get(10, AFTER_ALL)) is not None:
        whole = [row for row in other.tables.contents(3) if round(row[0].timestamp() * S) - 10 * S >= since]
        mine = job.tables.contents(10)
        assert Counter({row: mine[row] for row in whole}) == Counter(whole)
