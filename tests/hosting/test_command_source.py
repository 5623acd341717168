import itertools
import math
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.registries import begun, planned, register
from pyspark.sql.streaming.datasource import ReadAllAvailable

from upstream.core.feedback.checkpoint_layout import stage_folder
from upstream.core.feedback.control import ControlChange, ControlLog, taken_in
from upstream.core.feedback.reports import StageReport, write_report
from upstream.hosting import command_source
from upstream.hosting.command_source import (
    Candidate,
    CommandPlanner,
    CommandSource,
    chosen,
    next_served,
    seconds_for_results,
)
from upstream.hosting.edits import record
from upstream.hosting.journal import Change
from upstream.hosting.messages import TICK, command_of_batch
from upstream.hosting.output import BatchOutcome
from upstream.hosting.registry import registry_now
from upstream.hosting.reports import HostReport, HostTimes, QueryReport, Reports
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
    for each in range(1, number + 1):
        (folder / f"{each:020d}.json").write_text('{"kind": "view", "name": "v", "nonce": "n"}')


def reader_of(checkpoint):
    return CommandSource({"checkpoint": str(checkpoint), "slots": "5,-7"}).streamReader(None)


def test_the_first_batch_comes_even_without_a_query(tmp_path, clock):
    reader = reader_of(tmp_path)
    start = reader.initialOffset()
    first = reader.latestOffset(start, LIMIT)
    assert (start["version"], first["version"]) == (-1, 0)
    known = {"upstream_queries": str(tmp_path), "version": 0, "tick": 0, "served": None}
    assert {name: first[name] for name in known} == known
    clock[0] += 9
    assert reader.latestOffset(first, LIMIT) == first


def test_a_change_on_a_disk_counts_at_once(tmp_path, clock):
    """So it is in force when `processAllAvailable` returns."""
    reader = reader_of(tmp_path)
    offset = reader.latestOffset(reader.initialOffset(), LIMIT)
    (tmp_path / "offsets").mkdir()
    for version in (1, 2, 3):
        change(tmp_path, version)
        offset = reader.latestOffset(offset, LIMIT)
        assert offset["version"] == version
        (tmp_path / "offsets" / f"{version * 2}").write_text("")
    assert [taken_in(offset["taken"], version)[0] for version in (1, 2, 3)] == [0, 3, 5]


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
    found = reader.latestOffset(start, LIMIT)
    assert found.pop("taken")[-1][0] == 4
    assert found.pop("batchDuration") == "none"
    assert found == after


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
        outcome = BatchOutcome(rows=dict.fromkeys(costs, 1), waiting=waiting or {}, began=dict.fromkeys(began))
        active = [each.id for each in registry_now(self.checkpoint).active.values()]
        self.reports.take(self.batch, outcome, active, {}, HostTimes(committed_s=0.5 + sum(costs.values())), costs)


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


def test_a_duration_of_batches_changes_while_the_job_runs_and_is_undone(tmp_path, clock):
    job = Job(tmp_path)
    for name in ("a", "b"):
        register(job.checkpoint, name)
    log = ControlLog(folder_at(job.checkpoint))
    first = (planner := job.planner(None)).plan(planner.initial(), 0)
    job.after({1: 0.5, 2: 0.9}, {}, (1, 2))
    assert (first["batchDuration"], planner.plan(first, 0)) == ("none", first)
    log.put(0, ControlChange("job", "batchDuration", "1 second", 1))
    second = job.planner(None).plan(first, 5)
    assert (second["batchDuration"], second["served"], second["control"]["taken"]) == ("1 second", [1], [[1, 0, 5]])
    assert job.planner(None).plan(second, 6) == second, "by a planner that knows the journal alone"
    log.put(1, ControlChange("job", "batchDuration", "none", 1))
    assert job.planner(1.0).plan(second, 7)["served"] is None
    log.put(2, ControlChange("job", "batchDuration", None, 1))
    third = job.planner(1.0).plan(second, 7)
    assert (third["batchDuration"], third["served"]) == ("1 second", [1])


def test_a_request_for_rows_of_a_part_is_in_the_command_of_the_next_batch_and_of_all_later_ones(tmp_path, clock):
    job = Job(tmp_path)
    first = (planner := job.planner(None)).plan(planner.initial(), 0)
    log = ControlLog(folder_at(job.checkpoint))
    for seen, part in enumerate(("a", "b", "a")):
        log.put(seen, ControlChange(f"part/{part}", "sample", "now", 1))
    second = job.planner(None).plan(first, 5)
    assert job.planner(None).plan(second, 6) == second
    log.put(3, ControlChange("sink", "target", "none", 1))
    third = job.planner(None).plan(second, 7)
    for batch, offset in enumerate((first, second, third)):
        planned(Path(job.checkpoint), batch, offset)
    commands = [command_of_batch(job.checkpoint, batch).samples for batch in range(3)]
    assert commands == [(), (("b", 2), ("a", 3)), (("b", 2), ("a", 3))]


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


def run(weights, costs, seconds, batches):
    """Serve queries that have results in each batch of a second; return the batches in which each was served."""
    served: list[list[int]] = [[] for _ in weights]
    since = [0] * len(weights)
    for now in range(1, batches + 1):
        every = zip(weights, costs, since, strict=True)
        found = chosen((Candidate(n, w, now - s, c) for n, (w, c, s) in enumerate(every)), seconds)
        for number in found:
            served[number].append(now)
            since[number] = now
    return served


def staleness(served, end):
    """The mean over time of how old the oldest row is that no batch has put out; a row comes at each moment."""
    begins = [0, *served]
    return sum((until - at) ** 2 / 2 for at, until in itertools.pairwise([*begins, end])) / end


def best(weights, costs, seconds, length):
    """The least weighted staleness of all schedules that repeat after up to some batches."""
    numbers = range(len(weights))
    sets = [
        some
        for size in range(1, len(weights) + 1)
        for some in itertools.combinations(numbers, size)
        if size == 1 or sum(costs[each] for each in some) <= seconds
    ]
    sets = [one for one in sets if not any(set(one) < set(other) for other in sets)]
    least = math.inf
    for period in range(1, length + 1):
        for schedule in itertools.product(sets, repeat=period):
            total = 0.0
            for number in numbers:
                at = [place for place, some in enumerate(schedule) if number in some]
                if not at:
                    total = math.inf
                    break
                gaps = [later - earlier for earlier, later in itertools.pairwise([*at, at[0] + period])]
                total += weights[number] * sum(gap**2 / 2 for gap in gaps) / period
            least = min(least, total)
    return least


@given(
    weights=st.lists(st.sampled_from([1.0, 2.0, 4.0, 9.0]), min_size=2, max_size=4),
    costs=st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=4, max_size=4),
    seconds=st.sampled_from([1.0, 2.0, 3.0, 4.0]),
)
def test_the_weighted_staleness_is_near_the_least_that_there_is(weights, costs, seconds):
    costs = [min(each, seconds) for each in costs[: len(weights)]]
    batches = 600
    served = run(weights, costs, seconds, batches)
    got = sum(w * staleness(each, batches) for w, each in zip(weights, served, strict=True))
    assert got <= 1.25 * best(weights, costs, seconds, 6)


@pytest.mark.parametrize(
    ("weight", "cost", "seconds"), [(1.0, 8.0, 12.0), (8.0, 1.0, 3.0), (27.0, 1.0, 3.0), (8.0, 8.0, 12.0)]
)
def test_the_time_between_turns_follows_cost_and_weight(weight, cost, seconds):
    served = run([1.0] * 240 + [weight], [1.0] * 240 + [cost], seconds, 1_000)
    turns = len(served[0]) / len(served[-1])
    assert turns == pytest.approx((cost / weight) ** (2 / 3), rel=0.1)


@given(
    weights=st.lists(st.sampled_from([0.01, 1.0, 100.0, 1e6]), min_size=2, max_size=6),
    costs=st.lists(st.sampled_from([0.01, 1.0, 5.0, 100.0]), min_size=6, max_size=6),
    seconds=st.sampled_from([0.0, 1.0, 6.0]),
)
def test_no_query_starves(weights, costs, seconds):
    costs = costs[: len(weights)]
    # It is served when its gain passes what all others can have after the batches that they need.
    light = min(range(len(weights)), key=lambda each: weights[each] / costs[each])
    ratio = max(weights) / min(weights) * max(costs) / min(costs)
    longest = math.ceil((ratio ** (2 / 3)) * len(weights)) + len(weights)
    now, age = 0, [1.0] * len(weights)
    age[light] = longest
    while True:
        every = zip(weights, age, costs, strict=True)
        found = chosen((Candidate(n, w, a, c) for n, (w, a, c) in enumerate(every)), seconds)
        assert found
        if light in found:
            return
        now += 1
        assert now <= len(weights)
        age = [1.0 if n in found else a + 1 for n, a in enumerate(age)]


def test_what_fits_exactly_is_served():
    three = [Candidate(n, 1.0, 1.0, 0.1) for n in range(4)]
    assert chosen(three, 0.1 + 0.1 + 0.1) == {0, 1, 2}
    assert chosen(three, 0.3) == {0, 1, 2}, "sums of decimals are not exact"
    assert chosen(three, 0.29) == {0, 1}
    assert chosen(three, 0.0) == {0}, "one has its turn"
    assert chosen([], 1.0) == frozenset()


def test_a_cheap_one_takes_the_time_that_is_left():
    assert chosen([Candidate(1, 9.0, 1.0, 1.0), Candidate(2, 9.0, 1.0, 2.0), Candidate(3, 0.1, 1.0, 0.5)], 1.6) == {
        1,
        3,
    }


def test_idle_queries_take_no_turn_and_no_time():
    idle = [Candidate(n, 1e6, 1.0, 1.0, likely=0.001) for n in range(20)]
    waiting = Candidate(99, 1.0, 1.0, 5.0)
    assert chosen([*idle, waiting], 1.0) == {*range(20), 99}
    busy = Candidate(50, 1e6, 1.0, 1.0, likely=0.5)
    assert chosen([busy, waiting], 1.0) == {50}


def test_urgent_ones_are_served_whatever_they_cost():
    urgent = [Candidate(n, 0.001, 0.0, 10.0, urgent=True) for n in (1, 2)]
    assert chosen([*urgent, Candidate(3, 1.0, 1.0, 1.0), Candidate(4, 1.0, 1.0, 1.0)], 5.0) == {1, 2, 3}


def test_results_take_what_is_left_of_a_batch():
    assert seconds_for_results(2.0, 0.5) == 1.5
    assert seconds_for_results(2.1, 2.0) == pytest.approx(0.1)
    assert seconds_for_results(2.0999, 2.0) == 0.1, "at least a twentieth of the rest"
    assert seconds_for_results(2.0, 40.0) == 2.0


SECOND = 1_000_000


def report(**queries):
    return HostReport(7, {int(name[1:]): each for name, each in queries.items()}, batch_s=1.0, fixed_s=0.5)


def test_all_are_served_while_there_is_time():
    begun = QueryReport(begun=True, cost_s=0.25)
    assert next_served({1: 1.0, 2: 4.0}, report(q1=begun, q2=begun), 1.0, 9 * SECOND) is None
    assert next_served({1: 1.0, 2: 4.0}, report(q1=begun, q2=begun), 0.9, 9 * SECOND) == {2}
    assert next_served({}, HostReport(), 1.0, 0) is None
    assert next_served({1: 1.0, 2: 1.0}, HostReport(), 0.001, 0) is None, "new ones"


def test_rows_that_come_during_a_batch_are_as_old_as_the_batch():
    fresh = QueryReport(begun=True, cost_s=1.0)
    waits = QueryReport(begun=True, cost_s=1.0, waiting_since_us=5 * SECOND)
    queries = report(q1=fresh, q2=waits)
    # A weight of 8 is worth as much as four times the age.
    assert next_served({1: 8.0, 2: 1.0}, queries, 1.0, 9 * SECOND - 1) == {1}
    assert next_served({1: 8.0, 2: 1.0}, queries, 1.0, 9 * SECOND + 1) == {2}


def test_a_query_that_has_not_begun_is_served_beside_the_others():
    waits = QueryReport(begun=True, cost_s=1.0, waiting_since_us=0)
    queries = report(q1=waits, q2=waits, q3=QueryReport())
    assert next_served({1: 1.0, 2: 2.0, 3: 0.1, 4: 0.1}, queries, 1.0, SECOND) == {2, 3, 4}
    assert next_served({1: 1.0, 2: 2.0}, queries, 1.0, SECOND) == {2}, "what is no longer registered is no candidate"


def test_what_is_seldom_there_costs_little():
    seldom = QueryReport(begun=True, cost_s=1.0, likely=0.01)
    many = report(**{f"q{n}": seldom for n in range(40)})
    weights = dict.fromkeys(range(40), 1.0)
    assert next_served(weights, many, 1.0, 0) is None
    found = next_served(weights, many, 0.8, 0)
    assert found is not None
    assert len(found) == 30
    unknown = report(q1=QueryReport(begun=True, cost_s=1.0), q2=QueryReport(begun=True, waiting_since_us=0))
    assert next_served({1: 1.0, 2: 1.0}, unknown, 2.0, 9 * SECOND) == {2}, "a cost that is not known is as the others'"
