"""Readers of every row get each row once, in order, with the promises that hold for it, however far they lag."""

import dataclasses
from collections import Counter
from contextvars import copy_context

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.journal import through_json

from upstream.conf.errors import CheckpointError
from upstream.core.feedback.control import ControlChange, ControlLog
from upstream.core.feedback.lanes import LANE_FIGURES, NEWEST, LaneReader, StreamLanes, write_lanes
from upstream.core.rows.key import Key
from upstream.core.rows.system_column import SYSTEM
from upstream.datasource import lanes as lanes_module
from upstream.datasource.connectors.contract import Limit, Range, joined
from upstream.datasource.planner import BatchPlanner
from upstream.datasource.task import Reading
from upstream.delta_format.append_table import count_dead_letters
from upstream.storage.folder import TableFolder

from .driven_feeds import BASE, DearConnector, Driver, MemoryConnector, S


class Joining(MemoryConnector):
    """Ranges of one arrival may adjoin."""

    joins_ranges = True


class Job(Driver):
    """A source with both kinds of readers, and what each of them has: the rows by feed, and the promises."""

    def __init__(self, folder, **changes):
        super().__init__(
            "a", "b", checkpoint_location=str(folder), dead_letters=f"{folder}/dead",
            **{"connector": Joining, **changes},
        )  # fmt: skip
        self.place = TableFolder(str(folder))
        self.rows = {lane: {"a": [], "b": []} for lane in ("newest", "every")}
        self.last_seq = {"newest": -1, "every": -1}
        self.bounds = {}
        self.reads = Counter()
        # By number of rows that came of each feed: what was promised of these without a lag.
        self.promises = {}
        self.read_again = False

    def say(self, budget, *, newest=True, every=True):
        write_lanes(self.place, {"s": StreamLanes(newest, every, budget)}, {})

    def planner(self):
        reader = LaneReader(self.place, "s")
        clock = lambda: self.now  # noqa: E731
        return BatchPlanner(self.connector, self.options, self.shape, clock=clock, new_id=lambda: "t", lanes=reader)

    def batch(self, limit=None, *, frozen=False, all_at_once=False):
        """Plan and read a batch as a process does that knows nothing but the journal; whether there was one."""
        planner = self.planner()
        if frozen:
            planner.freeze()
        start, end = self.offset, through_json(planner.plan(self.offset, Limit(rows=limit), all_at_once=all_at_once))
        if end == start:
            return False
        tasks = self.planner().tasks(start, end)
        assert tasks == planner.tasks(start, end)
        for task in tasks:
            self.take(task)
        self.offset = end
        intake = {feed: int(at) for feed, at in end["position"].items()}
        self.promises[tuple(sorted(intake.items()))] = {
            feed: state["bound"] for feed, state in end["progress"].items() if state["bound"] is not None
        }
        self.check()
        return True

    def take(self, task):
        reading = Reading(self.options, self.shape, self.connector, self.options.dead_letters)
        for lane in ("newest", "every"):
            if task.lane in (lane, "both"):
                for first, part in task.ranges:
                    assert first > self.last_seq[lane]
                    self.last_seq[lane] = first + part.span - 1
        for _, part in task.ranges:
            self.reads[part.feed] += part.span
        for rows in reading.read(task):
            for row in rows.to_pylist():
                system = row["_upstream"]
                if system["punctuation"]:
                    assert task.lane != "newest"
                    continue
                for lane in ("newest", "every"):
                    if task.lane in (lane, "both"):
                        self.rows[lane][system["source"]].append(row[self.options.time])
        for feed, bound in task.punctuation.items():
            assert bound >= self.bounds.get(feed, bound)
            self.bounds[feed] = bound

    def check(self):
        """What each reader has after a batch."""
        figures, came = self.offset[LANE_FIGURES], self.sent()
        intake = dict(self.offset["position"])
        for feed, rows in self.rows["newest"].items():
            assert rows == came[feed][: intake.get(feed, 0)], "the newest rows wait for nothing"
        lacking = 0
        for feed, rows in self.rows["every"].items():
            assert rows == came[feed][: len(rows)]
            lacking += intake.get(feed, 0) - len(rows)
        assert figures["owed"] == lacking
        assert (figures["since_us"] is None) == (lacking == 0)
        # Promises are those after some intake, and all its rows are there.
        mine = {feed: len(rows) for feed, rows in self.rows["every"].items()}
        for feed, bound in self.bounds.items():
            assert not [time for time in came[feed][mine[feed] :] if time < bound]
        if not lacking:
            assert self.bounds == self.promises[tuple(sorted(intake.items()))]

    def sent(self):
        return {feed: table.column("us").to_pylist() for feed, table in self.connector.tables.items()}


STEPS = st.lists(
    st.tuples(
        st.integers(0, 25),  # rows of each feed
        st.integers(0, 9),
        st.one_of(st.none(), st.integers(1, 30)),  # the budget from now on; None for none
        st.sampled_from([(True, True), (True, True), (True, False), (False, True)]),
        st.sampled_from([None, None, 3, 20]),  # the user's limit
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.booleans(), st.sampled_from([4096, 3]))
def test_every_row_comes_once_in_order_to_both_lanes_and_no_promise_overtakes_it(tmp_path_factory, steps, dear, most):
    job = Job(
        tmp_path_factory.mktemp("job"), connector=type("Feeds", (DearConnector, Joining), {}) if dear else Joining
    )
    before, lanes_module._MOST_RANGES = lanes_module._MOST_RANGES, most
    try:
        for number, (left, right, budget, (newest, every), limit) in enumerate(steps):
            job.now += S
            times = [BASE + (number * 100 + each) * S for each in range(max(left, right))]
            job.send("a", *times[:left])
            job.send("b", *times[:right])
            job.say(budget, newest=newest, every=every)
            job.batch(limit)
        while job.batch():
            job.now += 1
    finally:
        lanes_module._MOST_RANGES = before
    assert job.rows["every"] == job.rows["newest"] == job.sent()
    assert not job.offset.get("owed")


def test_a_job_that_keeps_up_reads_each_row_once(tmp_path):
    job = Job(tmp_path)
    job.say(10)
    for number in range(5):
        job.send("a", *[BASE + number * S] * 20)  # twice the budget is not too much yet
        assert job.batch()
    assert job.reads["a"] == 100
    job.send("a", *[BASE + 9 * S] * 21)
    job.batch()
    assert (len(job.rows["newest"]["a"]), len(job.rows["every"]["a"])) == (121, 107)
    assert job.reads["a"] == 100 + 21 + 7
    assert job.planner().backlog(job.offset) == {"owed": 14, "owed_since_us": BASE}


def test_a_lag_needs_no_new_rows_to_end_and_an_end_of_the_run_waits_for_it(tmp_path):
    job = Job(tmp_path)
    job.say(7)
    job.send("a", *range(BASE, BASE + 40))
    batches = 0
    while job.batch(frozen=True):
        batches += 1
    assert batches == 6
    assert job.rows["every"] == job.sent()


def test_one_batch_for_everything_leaves_nothing_owed(tmp_path):
    job = Job(tmp_path)
    job.say(7)
    job.send("a", *range(BASE, BASE + 40))
    job.batch()
    job.send("a", *range(BASE + 40, BASE + 60))
    assert job.batch(all_at_once=True)
    assert job.rows["every"] == job.sent()
    assert not job.batch()


def test_neighbours_in_a_lag_are_put_together(tmp_path):
    job = Job(tmp_path)
    job.say(1000)
    job.send("a", *[BASE] * 3000)
    job.batch()
    for number in range(300):
        job.send("a", BASE + number)
        job.send("b", BASE + number)
        job.batch(all_at_once=False)
        job.say(8 * 50) if number == 100 else None
    assert len(job.offset.get("owed", ())) <= 8
    assert sum(len(each["ranges"]) for each in job.offset.get("owed", ())) < 450


def test_only_readers_of_every_row_are_a_limit_for_the_source(tmp_path):
    job = Job(tmp_path)
    job.say(7, newest=False)
    job.send("a", *range(BASE, BASE + 40))
    job.batch()
    assert job.offset["position"]["a"] == 7
    assert job.batch(3)
    assert job.offset["position"]["a"] == 10
    assert job.offset[LANE_FIGURES] == {
        "stream": "s", "budget": 7, "newest": 3, "every": 3, "owed": 0, "since_us": None,
    }  # fmt: skip


def test_a_malformed_row_and_a_sample_of_a_row_are_noted_once(tmp_path):
    job = Job(tmp_path)
    job.say(7)
    ControlLog(job.place).put(0, ControlChange("source/t", "sample", "now", 1))
    job.send("a", *range(BASE, BASE + 30))
    job.send("a", BASE, key=None)
    tasks = []
    job.take = tasks.append
    for _ in range(9):
        planner, start = job.planner(), job.offset
        job.offset = through_json(planner.plan(start, Limit()))
        if job.offset == start:
            break
        for task in planner.tasks(start, job.offset):
            tasks.append(task)
            list(Reading(job.options, job.shape, job.connector, job.options.dead_letters).read(task))
    assert {task.lane for task in tasks} == {"newest", "every"}
    assert count_dead_letters(TableFolder(job.options.dead_letters)) == 1
    assert all(task.sample is None and not task.states for task in tasks if task.lane == "every")


def test_rows_stamped_on_entry_have_the_same_stamps_in_both_lanes(tmp_path):
    job = Job(tmp_path, progress="arrival")
    job.say(3)
    for _ in range(6):
        job.now += S
        job.send("a", *[0] * 9)
        planner, start = job.planner(), job.offset
        job.offset = through_json(planner.plan(start, Limit()))
        for task in planner.tasks(start, job.offset):
            job.take(task)
    while planner.plan(job.offset, Limit()) is not job.offset:
        start, job.offset = job.offset, planner.plan(job.offset, Limit())
        for task in planner.tasks(start, job.offset):
            job.take(task)
    assert job.rows["every"]["a"] == job.rows["newest"]["a"]


def test_a_stream_whose_steps_no_longer_run_in_its_tasks_is_refused_while_it_lags(tmp_path):
    job = Job(tmp_path)
    job.say(3)
    job.send("a", *range(BASE, BASE + 30))
    job.batch()
    other = BatchPlanner(job.connector, job.options, job.shape, clock=lambda: 1)
    with pytest.raises(CheckpointError, match="some queries lag"):
        other.plan(job.offset, Limit())
    while job.batch():
        pass
    assert other.plan(job.offset, Limit()) is job.offset


def text(low, high, mark="m", arrival=5, **more):
    return Range("a", {"path": "p", "from": low, "to": high, "head": 9, "mark": mark, **more}, high - low, arrival)


def test_ranges_that_adjoin_are_one_with_the_arrivals_of_both():
    both = joined(text(0, 10, "m"), text(10, 30, "n"))
    assert both == text(0, 30, "n")
    later = joined(both, text(30, 35, "o", 8))
    assert later == dataclasses.replace(text(0, 35, "o", None, arrivals=[[30, 5], [35, 8]]))
    assert joined(later, text(35, 40, "q", 8)) == text(0, 40, "q", None, arrivals=[[30, 5], [40, 8]])
    for other in (text(11, 30), dataclasses.replace(text(10, 30), feed="b"), text(10, 30, codec="gzip")):
        assert joined(text(0, 10), other) is None
    groups = Range("a", {"path": "p", "groups": [0, 2]}, 7, 5)
    assert joined(groups, groups) is None


@pytest.mark.parametrize(
    ("allowed", "sequence", "times"),
    [
        ((("k",), "us"), Key(), [5, 4]),
        ((("k",), "us"), Key(("us",)), [3, 5, 1, 4]),
        ((("k",), "other"), Key(), [3, 5, 1, 4]),
        (None, Key(), [3, 5, 1, 4]),
    ],
)
def test_a_task_reads_newest_rows_alone_where_the_steps_behind_allow_it_by_the_same_order(allowed, sequence, times):
    driver = Driver("f", sequence=sequence)
    for key, time in zip("xxxy", [3, 5, 1, 4], strict=True):
        driver.send("f", time, key=key)
    tasks = driver.tasks()
    assert tasks is not None
    reading = Reading(driver.options, driver.shape, driver.connector, "unused")

    def read():
        NEWEST.set(allowed)
        return pa.Table.from_batches(reading.read(tasks[0]))

    rows = copy_context().run(read)
    found = [(row["us"], row[SYSTEM]["covered"]) for row in rows.to_pylist() if not row[SYSTEM]["punctuation"]]
    assert found == [(time, {5: 3, 4: 1}[time] if len(times) == 2 else 1) for time in times]
