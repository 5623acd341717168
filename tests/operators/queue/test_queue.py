"""The queue against a plain one, row by row, that follows the table of policies to the letter."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.core.rows.buckets import spark_hash
from upstream.operators.queue.cells import Updates
from upstream.operators.queue.keys import HashedKeys, NumberedKeys, key_numbers, numbers_tell
from upstream.operators.queue.monitor import StatisticsMonitor
from upstream.operators.queue.queue import POLICIES, UpdateQueue


class PlainQueue:
    """A list of (key, time, arrival, first_arrival, covered, serial), the next to be served first."""

    def __init__(self, policy, slow=frozenset(), cost=0.0, rate=None):
        self.policy, self.rows, self.cost, self.rate = policy, [], cost, rate
        self.serial = 0
        self.overloaded = False

    def enqueue(self, key, time, arrival):
        row = [key, time, arrival, arrival, 1, self.serial]
        self.serial += 1
        policy = self.policy
        if policy == "auto":
            policy = "linecutting" if self.overloaded else "append"
        if policy in ("append", "shed"):
            self.rows.append(row)
            return
        n = len(self.rows)
        place = next((i for i, each in enumerate(self.rows) if each[0] == key), None)
        residents = n + (place is None)
        slower = sum(rate for rate in self.rate if rate <= self.rate[key]) if self.rate is not None else 0
        slow = policy == "linecutting" and self.rate[key] * self.cost * residents < 1 - self.cost * slower
        if place is None:
            position = len(self.rows)
            kept = row
        else:
            old = self.rows.pop(place)
            newer = time >= old[1]
            kept = row if newer else old
            first, covered = min(old[3], arrival), old[4] + 1
            kept = [*kept[:3], first, covered, kept[5], *old[6:]]
            position = len(self.rows) if policy == "fifo" and newer else place
        if slow and len(kept) == 6:
            position = sum(1 for each in self.rows if len(each) > 6)  # behind those who cut the line before
            kept = [*kept, "cut"]
        self.rows.insert(position, kept)

    def dequeue(self, n):
        if self.policy == "auto" and not self.overloaded and len(self.rows) > n:
            merged = {}
            for row in self.rows:
                if row[0] not in merged:
                    merged[row[0]] = row
                else:
                    old = merged[row[0]]
                    new = row if row[1] >= old[1] else old
                    first, covered = min(old[3], row[3]), old[4] + row[4]
                    new = [*new]
                    new[3], new[4] = first, covered
                    merged[row[0]] = new
            self.rows = list(merged.values())
            self.overloaded = True
        served, self.rows = self.rows[:n], self.rows[n:]
        if not self.rows:
            self.overloaded = False
        return [tuple(row[:5]) for row in served]


batches = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=12), st.integers(0, 6)), max_size=12
)


class Rows:
    """Where rows lie, and a queue over them with keys of text, hashed into few values so that hashes collide."""

    def __init__(self, policy, monitor, hashes=3):
        self.keys = {}
        self.hashes = hashes
        self.index = HashedKeys(lambda at: [pa.chunked_array([pa.array([self.keys[int(x)] for x in at], pa.string())])])
        self.queue = UpdateQueue(policy, self.index, monitor=monitor, page_slots=2)

    def updates(self, keys, time, arrival):
        text = pa.array([f"k{key}" for key in keys], pa.string())
        return Updates(([pa.chunked_array([text])], np.array(keys, dtype=np.int64) % self.hashes), time, arrival)

    def put(self, locations, keys):
        for location, key in zip(locations, keys, strict=True):
            self.keys[int(location)] = f"k{key}"


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("policy", ["append", "fifo", "in-place", "linecutting", "auto"])
@given(batches=batches)
def test_queue_does_what_the_table_of_policies_says(policy, hashed, batches):
    rate = np.array([0.01, 0.1, 0.2, 1.0, 2.0, 5.0])
    if hashed:  # statistics are by hash there
        rate = rate[np.arange(6) % 3]
    monitor = StatisticsMonitor(cost_s=1.0, rate_per_s=rate)
    rows = Rows(policy, monitor)
    queue = rows.queue if hashed else UpdateQueue(policy, NumberedKeys(6), monitor=monitor, page_slots=2)
    plain = PlainQueue(policy, cost=1.0, rate=rate)
    held, now = {}, 0
    for arriving, budget in batches:
        keys = np.array([key for key, _ in arriving], dtype=np.int64)
        time = np.array([time for _, time in arriving], dtype=np.int64)
        # Rows of one instant keep the order in which they came.
        arrival = now + np.arange(len(arriving), dtype=np.int64) // 3
        now += len(arriving)
        batch = rows.updates(keys, time, arrival) if hashed else Updates(keys, time, arrival)
        took = queue.enqueue(batch, now)
        rows.put(took.locations, keys[took.rows])
        for key, when, at in zip(keys, time, arrival, strict=True):
            plain.enqueue(int(key), int(when), int(at))
        for row, location in zip(took.rows, took.locations, strict=True):
            held[int(location)] = int(keys[row])
        assert len(queue) == len(plain.rows)
        out = queue.dequeue(budget, now)
        cells = out.cells
        got = [
            (held[int(at)], *figures)
            for at, *figures in zip(
                out.locations,
                cells.time.tolist(),
                cells.arrival.tolist(),
                cells.first_arrival.tolist(),
                cells.covered.tolist(),
                strict=True,
            )
        ]
        assert got == plain.dequeue(budget)
        assert queue.pages.used == len(queue)


def test_unknown_policy_is_refused_by_name():
    with pytest.raises(OptionError, match=r"lifo.*in-place"):
        UpdateQueue("lifo", NumberedKeys(1))


@pytest.mark.parametrize("policy", POLICIES)
@given(batches=batches, cut=st.integers(0, 12))
def test_restart_between_batches_changes_nothing(policy, batches, cut):
    def run(restart):
        queue = UpdateQueue(policy, NumberedKeys(6), monitor=StatisticsMonitor(cost_s=1.0), page_slots=2, seed=7)
        served, now = [], 0
        for number, (arriving, budget) in enumerate(batches):
            keys = np.array([key for key, _ in arriving], dtype=np.int64)
            time = np.array([time for _, time in arriving], dtype=np.int64)
            now += 10
            queue.enqueue(Updates(keys, time, np.full(len(keys), now)), now, drop=0.4)
            cells = queue.dequeue(budget, now).cells
            served.append([cells.number.tolist(), cells.time.tolist(), cells.covered.tolist()])
            if restart and number == cut:
                state = queue.snapshot()
                queue = UpdateQueue(
                    policy, NumberedKeys(6), monitor=StatisticsMonitor(cost_s=1.0), page_slots=2, seed=7
                )
                queue.restore(state)
        return served, len(queue)

    assert run(True) == run(False)


@given(batches=batches)
def test_shedding_loses_no_age(batches):
    """What stands for dropped rows says so: the covered counts of all served, waiting and remembered rows are the rows
    that came.
    """
    queue = UpdateQueue("shed", NumberedKeys(6), page_slots=2, seed=3)
    came = gone = 0
    for now, (arriving, budget) in enumerate(batches):
        keys = np.array([key for key, _ in arriving], dtype=np.int64)
        took = queue.enqueue(Updates(keys, None, np.full(len(keys), now)), now, drop=0.5)
        assert took.shed <= len(keys)
        came += len(keys)
        gone += int(queue.dequeue(budget, now).cells.covered.sum())
    held = np.flatnonzero(queue.pages.held)
    assert came == gone + int(queue.cells(held).covered.sum())


def test_weight_serves_first_what_counts_more():
    queue = UpdateQueue("in-place", NumberedKeys(2))
    queue.enqueue(Updates(np.array([0, 1]), None, np.array([0, 5]), weight=np.array([1.0, 3.0])), 5)
    assert queue.read(1, 10).cells.number.tolist() == [1]  # 3 * 5 > 1 * 10
    assert queue.read(1, 6).cells.number.tolist() == [0]  # 3 * 1 < 1 * 6


def test_no_result_sooner_than_the_access_interval():
    queue = UpdateQueue("in-place", NumberedKeys(2))

    def arrive(now):
        queue.enqueue(Updates(np.array([0, 1]), None, np.full(2, now), interval_us=np.array([100, 0])), now)

    arrive(0)
    assert sorted(queue.dequeue(None, 0).cells.number) == [0, 1]
    arrive(10)
    assert queue.dequeue(None, 20).cells.number.tolist() == [1]
    assert (len(queue), queue.next_ready_us()) == (1, 100)
    late = queue.dequeue(None, 100).cells
    assert (late.number.tolist(), late.first_arrival.tolist()) == ([0], [10])


def test_ties_are_reported_for_conflicts():
    queue = UpdateQueue("in-place", NumberedKeys(2))
    took = queue.enqueue(Updates(np.array([0, 0, 1]), np.array([5, 5, 5]), np.zeros(3, np.int64)), 0)
    assert took.batch_ties.tolist() == [[1, 0]]
    again = queue.enqueue(Updates(np.array([0]), np.array([5]), np.ones(1, np.int64)), 1)
    assert again.ties.tolist() == [[0, took.locations[0]]]


def test_large_batch_over_many_pending_keys():
    queue = UpdateQueue("in-place", NumberedKeys(1_000_000))
    queue.enqueue(Updates(np.arange(1_000_000), None, np.arange(1_000_000)), 0)
    keys = np.random.default_rng(1).integers(0, 1_000_000, 100_000)
    took = queue.enqueue(Updates(keys, None, np.full(100_000, 2_000_000)), 0)
    assert len(queue) == 1_000_000
    assert took.superseded == 100_000
    assert queue.dequeue(10, 0).cells.number.tolist() == list(range(10))


@given(keys=st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3)), min_size=1, unique=True))
def test_numbers_of_whole_keys_tell_them_apart(keys):
    for kind in (pa.int64(), pa.timestamp("us")):
        column = pa.chunked_array([pa.array(keys, pa.int64()).cast(kind)])
        assert numbers_tell([kind])
        assert len(set(key_numbers([column]).tolist())) == len(keys)
    assert not numbers_tell([pa.string()])
    assert not numbers_tell([pa.int64(), pa.int64()])
    assert not numbers_tell([pa.float64()])  # 0.0 and -0.0 are one key


@given(batches=batches)
def test_stored_queue_serves_as_one_in_memory(batches):
    """Where rows lie differs; which are served, and when, does not. Numbers of the keys alone, no look at rows."""

    def run(stored):
        index = HashedKeys(None) if stored else NumberedKeys(6)
        queue, served, now = UpdateQueue("in-place", index, page_slots=2, stored=stored), [], 0
        for arriving, budget in batches:
            keys = np.array([key for key, _ in arriving], dtype=np.int64)
            time = np.array([time for _, time in arriving], dtype=np.int64)
            now += 10
            both = ([pa.chunked_array([keys])], keys) if stored else keys
            took = queue.enqueue(Updates(both, time, np.full(len(keys), now)), now)
            assert len(set(took.locations.tolist())) == len(took.locations)
            cells = queue.dequeue(budget, now).cells
            served.append([cells.number.tolist(), cells.time.tolist(), cells.covered.tolist()])
            assert set(queue.changed().tolist()) <= set(queue.pages.pages().tolist())
        return served, len(queue)

    assert run(True) == run(False)


def test_hashes_spread_as_in_spark():
    assert spark_hash([pa.array([1, 2])]).dtype == np.int32


def test_slow_updaters_that_are_too_many_do_not_cut():
    """Eight keys at 0.18 a second each are more than a server of one row a second can do: the two fast ones must get
    their turn.
    """
    rate = np.array([0.18] * 8 + [1.8] * 2)
    monitor = StatisticsMonitor(cost_s=1.0, rate_per_s=rate)
    assert not monitor.slow(np.arange(10), np.full(10, 2)).any()
    few = StatisticsMonitor(cost_s=1.0, rate_per_s=rate[5:])
    assert few.slow(np.arange(5), np.full(5, 2)).tolist() == [True] * 3 + [False] * 2
    assert not few.slow(np.arange(5), np.full(5, 3)).any()  # 0.18 * 3 > 1 - 3 * 0.18


def test_rates_count_what_a_coalesced_row_stands_for():
    one_by_one, coalesced = StatisticsMonitor(), StatisticsMonitor()
    one_by_one.arrived(np.array([3, 3, 3, 4]), 0)
    coalesced.arrived(np.array([3, 4]), 0, np.array([3, 1]))
    keys = np.array([3, 4, 5])
    assert coalesced.rate_per_s(keys).tolist() == one_by_one.rate_per_s(keys).tolist()
    assert coalesced.rate_per_s(keys)[0] > coalesced.rate_per_s(keys)[1] > 0
