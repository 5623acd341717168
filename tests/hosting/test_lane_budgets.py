"""How many rows a batch gives to readers of every row, so that it lasts as long as it should."""

import pytest
from kit.hosting import Versions

from upstream.core.feedback.checkpoint_layout import stage_folder
from upstream.core.feedback.lanes import LANE_FIGURES, StreamLanes, read_lanes
from upstream.core.feedback.reports import write_report
from upstream.hosting import lane_budgets
from upstream.hosting.host_plan import HostPlan
from upstream.hosting.lane_budgets import LaneBudgets
from upstream.hosting.reports import HostTimes, PartCost, PartsReport
from upstream.storage.folder import TableFolder

NEWEST = "SELECT vehicle_id FROM LATEST(buses) WHERE speed > 1"
EVERY = "SELECT vehicle_id, COUNT(*) AS n FROM buses [RANGE 10 MINUTES] GROUP BY vehicle_id"
BOTH = {1: NEWEST, 2: EVERY}
FIXED_S, NEWEST_S, EVERY_S = 0.3, 1e-6, 4e-6


class Job:
    """A job on two cores, whose batches last as long as the rows of their lanes say."""

    def __init__(self, folder, queries, duration="none"):
        self.place, self.queries, self.duration = TableFolder(str(folder)), queries, duration
        self.budgets = LaneBudgets(self.place)
        self.number = 0
        self.owed = 0

    def plan(self):
        names = {f"q{number}": (number, text) for number, text in self.queries.items()}
        return HostPlan.of(Versions({1: names})(1), range(4))

    def batch(self, came, *, waits=False):
        """Run a batch for rows that came; return its seconds."""
        lanes = read_lanes(self.place)[0].get("buses")
        budget = None if lanes is None else lanes.budget
        apart = lanes is not None and lanes.newest and budget is not None and (self.owed or came > 2 * budget)
        every = min(came + self.owed, budget) if apart else came
        self.owed = came + self.owed - every if apart else 0
        since = 7 if self.owed else None
        self.number += 1
        seconds = FIXED_S + (NEWEST_S * came if 1 in self.queries else 0) + EVERY_S * every
        for shard in range(4):
            parts = [
                PartCost("n", [1], NEWEST_S * came / 4, 0, 0, 0), PartCost("e", [2], EVERY_S * every / 2, 0, 0, 0),
            ]  # fmt: skip
            spent = sum(part.spent_s for part in parts)
            report = PartsReport(shard, self.number, 0, spent, {"x": (self.number, parts)})
            write_report(stage_folder(self.place.location, 0), report)
        figures = {"stream": "buses", "budget": budget, "newest": came, "every": every, "owed": self.owed}
        offsets = [
            {"batch": self.number, LANE_FIGURES: {**figures, "since_us": since}},
            {"batchDuration": self.duration},
        ]
        times = HostTimes(0, 0.1, seconds - 0.1, seconds, 2)
        self.lagging = self.budgets.take(self.number, offsets, self.plan(), times)
        assert self.budgets.take(self.number, offsets, self.plan(), times) == self.lagging  # a batch counts once
        return seconds

    def now(self):
        return read_lanes(self.place)[0]["buses"]


@pytest.fixture(autouse=True)
def _always(monkeypatch):
    monkeypatch.setattr(lane_budgets, "_INTERVAL_S", 0.0)


@pytest.mark.parametrize(("duration", "least", "most"), [("none", 0.55, 0.75), ("2 seconds", 1.7, 2.2)])
def test_a_batch_with_newest_rows_lasts_as_long_as_it_should_while_the_others_lag(tmp_path, duration, least, most):
    job = Job(tmp_path, BOTH, duration)
    seconds = job.batch(1_000_000)
    for _ in range(12):
        seconds = job.batch(round(400_000 * seconds))  # 1.6 seconds of work a second for every row
    assert least < seconds < most
    assert job.owed > 0
    assert job.lagging == {2: 7}
    restarted = Job(tmp_path, BOTH, duration)
    assert restarted.budgets._cost.per_row == pytest.approx(job.budgets._cost.per_row, rel=0.1)


def test_newest_rows_that_take_most_of_the_time_are_not_slowed_down_without_end(tmp_path):
    job = Job(tmp_path, BOTH)
    seconds = 1.0
    for _ in range(40):
        seconds = job.batch(round(600_000 * seconds))
    assert seconds < 2.5


def test_readers_of_every_row_alone_are_limited_by_the_duration_and_not_without(tmp_path):
    job = Job(tmp_path / "a", {2: EVERY})
    job.batch(5_000_000)
    assert job.now() == StreamLanes(newest=False, every=True)
    job = Job(tmp_path / "b", {2: EVERY}, "2 seconds")
    job.batch(1_000_000)
    for _ in range(8):
        job.batch(job.now().budget)
    assert job.batch(job.now().budget) == pytest.approx(2, rel=0.15)


def test_batches_that_are_too_long_but_do_not_grow_get_shorter(tmp_path):
    job = Job(tmp_path, BOTH, "2 seconds")
    assert [job.batch(1_000_000) > 4 for _ in range(2)] == [True, False]


def test_quiet_batches_teach_nothing(tmp_path):
    job = Job(tmp_path, BOTH, "2 seconds")
    for _ in range(8):
        job.batch(100_000)
    before = job.now()
    for came in (10, 0, 1, 300):
        job.batch(came)
    assert job.now() == before
    assert job.lagging == {}


def test_only_readers_of_newest_rows_have_no_budget(tmp_path):
    job = Job(tmp_path, {1: NEWEST}, "2 seconds")
    job.batch(1_000_000)
    assert job.now() == StreamLanes(newest=True, every=False)
    job.queries = BOTH
    job.batch(1_000_000)
    assert job.now().every
    assert job.now().budget is not None
