"""The queue against a plain one that follows the table of policies to the letter, and figure by figure."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError
from upstream.operators.queue.cells import Updates
from upstream.operators.queue.keys import HashedKeys, NumberedKeys, key_numbers, numbers_tell
from upstream.operators.queue.monitor import StatisticsMonitor
from upstream.operators.queue.queue import POLICIES, UpdateQueue


class PlainQueue:
    """A list of (key, time, arrival, first_arrival, covered, serial), the next to be served first."""

    def __init__(self, policy, slow=frozenset(), cost=0.0, rate=None):
        self.policy, self.rows, self.cost, self.rate = policy, [], cost, rate
        self.serial = self.superseded = 0
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
            self.superseded += 1
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
            self.superseded += len(self.rows) - len(merged)
            self.rows = list(merged.values())
            self.overloaded = True
        served, self.rows = self.rows[:n], self.rows[n:]
        if not self.rows:
            self.overloaded = False
        return [tuple(row[:5]) for row in served]


batches = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=12), st.integers(0, 6)), max_size=12
)


def columns_of(arriving):
    """Keys and times of what arrives."""
    return (np.array([each[at] for each in arriving], dtype=np.int64) for at in (0, 1))


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
        keys, time = columns_of(arriving)
        # Rows of one instant keep the order in which they came.
        arrival = now + np.arange(len(arriving), dtype=np.int64) // 3
        now += len(arriving)
        batch = rows.updates(keys, time, arrival) if hashed else Updates(keys, time, arrival)
        took = queue.enqueue(batch, now)
        rows.put(took.locations, keys[took.rows])
        plain.superseded = 0
        for key, when, at in zip(keys, time, arrival, strict=True):
            plain.enqueue(int(key), int(when), int(at))
        for row, location in zip(took.rows, took.locations, strict=True):
            held[int(location)] = int(keys[row])
        assert len(queue) == len(plain.rows)
        look = queue.read(budget, now).cells.number.tolist()
        out = queue.dequeue(budget, now)
        cells = out.cells
        assert look == cells.number.tolist() or policy == "auto", "a look takes nothing"
        columns = (cells.time, cells.arrival, cells.first_arrival, cells.covered)
        figures = zip(out.locations, *(column.tolist() for column in columns), strict=True)
        assert [(held[int(at)], *rest) for at, *rest in figures] == plain.dequeue(budget)
        assert took.superseded + out.superseded == plain.superseded
        assert queue.pages.used == len(queue)


@pytest.mark.parametrize("policy", POLICIES)
@given(batches=batches, cut=st.integers(0, 12))
def test_restart_between_batches_changes_nothing(policy, batches, cut):
    def fresh():
        return UpdateQueue(policy, NumberedKeys(6), monitor=StatisticsMonitor(cost_s=1.0), page_slots=2, seed=7)

    def run(restart):
        queue, served = fresh(), []
        for number, (arriving, budget) in enumerate(batches):
            keys, time = columns_of(arriving)
            now = 10 * number
            queue.enqueue(Updates(keys, time, np.full(len(keys), now)), now, drop=0.4)
            cells = queue.dequeue(budget, now).cells
            served.append([cells.number.tolist(), cells.time.tolist(), cells.covered.tolist()])
            if restart and number == cut:
                state, queue = queue.snapshot(), fresh()
                queue.restore(state)
        return served, len(queue)

    assert run(True) == run(False)


@given(batches=batches)
def test_shedding_loses_no_age(batches):
    queue = UpdateQueue("shed", NumberedKeys(6), page_slots=2, seed=3)
    came = gone = 0
    for now, (arriving, budget) in enumerate(batches):
        keys, _ = columns_of(arriving)
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

    def run(stored):
        index = HashedKeys(None) if stored else NumberedKeys(6)
        queue, served, now = UpdateQueue("in-place", index, page_slots=2, stored=stored), [], 0
        for arriving, budget in batches:
            keys, time = columns_of(arriving)
            now += 10
            both = ([pa.chunked_array([keys])], keys) if stored else keys
            took = queue.enqueue(Updates(both, time, np.full(len(keys), now)), now)
            assert len(set(took.locations.tolist())) == len(took.locations)
            cells = queue.dequeue(budget, now).cells
            served.append([cells.number.tolist(), cells.time.tolist(), cells.covered.tolist()])
            assert set(queue.changed().tolist()) <= set(queue.pages.pages().tolist())
        return served, len(queue)

    assert run(True) == run(False)


def numbers(*values):
    return np.array(values, dtype=np.int64)


def made(policy, keys=4, **options):
    return UpdateQueue(policy, NumberedKeys(keys), page_slots=2, **options)


def updates(keys, time, arrival, **more):
    given = {name: None if value is None else np.array(value) for name, value in more.items()}
    return Updates(numbers(*keys), None if time is None else numbers(*time), numbers(*arrival), **given)


def served(queue, budget, now):
    """Key, time, arrival, first arrival and covered of each row that is served."""
    cells = queue.dequeue(budget, now).cells
    columns = (cells.number, cells.time, cells.arrival, cells.first_arrival, cells.covered)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def counts_of(enqueued):
    return enqueued.rows.tolist(), enqueued.superseded, enqueued.older, enqueued.shed


def test_what_becomes_of_rows_that_replace_others():
    queue = made("in-place")
    assert counts_of(queue.enqueue(updates((), (), ()), 0)) == ([], 0, 0, 0)
    first = queue.enqueue(updates((0, 1, 0), (5, 5, 6), (1, 2, 3)), 3)
    assert counts_of(first) == ([1, 2], 1, 0, 0)
    again = queue.enqueue(updates((0, 1, 2), (4, 7, 1), (4, 5, 6)), 6)
    assert counts_of(again) == ([1, 2], 2, 1, 0)
    assert again.locations[0] == first.locations[0], "in its place"
    assert len(queue) == 3
    assert served(queue, None, 6) == [(0, 6, 3, 1, 3), (1, 7, 5, 2, 2), (2, 1, 6, 6, 1)]
    assert (len(queue), queue.next_ready_us(), queue.pages.used) == (0, None, 0)


def test_rows_that_were_coalesced_count_what_they_stand_for():
    for policy, superseded in (("in-place", 6), ("append", 0)):
        queue = made(policy)
        batch = updates((0, 0, 1), None, (10, 11, 12), first_arrival=(3, 2, 1), covered=(4, 1, 3))
        assert queue.enqueue(batch, 12).superseded == superseded
        one, several = [(0, 0, 11, 2, 5)], [(0, 0, 10, 3, 4), (0, 0, 11, 2, 1)]
        assert sorted(served(queue, None, 12)) == [*(one if superseded else several), (1, 0, 12, 1, 3)]


def test_shedding_keeps_since_when_a_key_is_stale():
    queue = made("shed")
    assert counts_of(queue.enqueue(updates((0, 1), (1, 1), (1, 2)), 2, drop=1.0)) == ([0, 1], 0, 0, 2)
    assert (len(queue), queue.pages.used) == (0, 2)
    took = queue.enqueue(updates((0, 0, 2), (2, 3, 4), (5, 6, 7)), 7, drop=0.0)
    assert counts_of(took) == ([0, 1, 2], 0, 0, 0)
    assert queue.column("arrival", took.locations).tolist() == [5, 6, 7]
    assert (len(queue), queue.pages.used) == (3, 4)
    assert served(queue, None, 7) == [(0, 2, 5, 1, 2), (0, 3, 6, 6, 1), (2, 4, 7, 7, 1)]
    assert queue.pages.used == 1, "of the key that is still stale"
    state = queue.snapshot()
    appended = made("append")
    appended.restore(state)
    assert (len(appended), appended.pages.used) == (0, 0)
    goes_on = made("shed")
    goes_on.restore(state)
    assert goes_on.pages.used == 1
    goes_on.enqueue(updates((1,), (9,), (9,)), 9)
    assert served(goes_on, 1, 9) == [(1, 9, 9, 2, 2)]


def test_shedding_draws_anew_for_each_batch_and_the_same_again():
    def dropped(seed):
        queue = made("shed", seed=seed)
        return [queue.enqueue(updates(range(4), None, range(4)), 0, drop=0.5).shed for _ in range(12)]

    assert dropped(1) == dropped(1)
    assert dropped(1) != dropped(2)
    assert len(set(dropped(1))) > 1


def test_of_slow_updaters_that_came_at_one_time_the_first_goes_first():
    rate = np.array([0.01, 0.01, 5.0, 5.0])
    queue = made("linecutting", monitor=StatisticsMonitor(cost_s=1.0, rate_per_s=rate))
    queue.enqueue(updates((2, 3, 2, 3, 0), (1, 1, 1, 1, 1), (5, 5, 5, 5, 5)), 5)
    queue.enqueue(updates((1,), (1,), (5,)), 5)
    assert [row[0] for row in served(queue, None, 5)] == [0, 1, 2, 3]


def test_a_key_rests_for_its_interval_to_the_microsecond():
    queue = made("in-place")
    queue.enqueue(updates((0, 1), (5, 5), (1, 2), interval_us=(100, 0)), 2)
    assert [row[0] for row in served(queue, None, 10)] == [0, 1]
    assert queue.pages.used == 1, "the one that rests"
    assert counts_of(queue.enqueue(updates((0,), (4,), (20,), interval_us=(100,)), 20)) == ([], 1, 1, 0)
    queue.enqueue(updates((0,), (5,), (21,), interval_us=(100,)), 21)
    assert queue.next_ready_us() == 110
    again = made("in-place")
    again.restore(queue.snapshot())
    for each in (queue, again):
        assert served(each, None, 109) == []
        assert served(each, None, 110) == [(0, 5, 21, 21, 1)]
        assert served(each, None, 209) == []
        assert each.pages.used == 1
        assert served(each, None, 210) == []
        assert each.pages.used == 0, "it has rested"
    rests = made("in-place")
    rests.enqueue(updates((0, 1), (5, 5), (1, 2), interval_us=(100, 0)), 2)
    rests.dequeue(1, 10)
    shed = made("shed")
    shed.restore(rests.snapshot())
    assert (len(shed), shed.pages.used) == (1, 1), "who rests is forgotten by policies that keep several rows of a key"
    shortly = made("in-place")
    shortly.enqueue(updates((0,), (5,), (1,), interval_us=(1,)), 2)
    shortly.dequeue(None, 2)
    assert shortly.pages.used == 1
    appended = made("append")
    appended.enqueue(updates((0,), (5,), (1,), interval_us=(100,)), 2)
    appended.dequeue(None, 2)
    assert appended.pages.used == 0


def test_the_heaviest_age_is_served_first_and_who_cut_the_line_before():
    rate = np.array([5.0, 5.0, 0.01, 5.0])
    queue = made("linecutting", monitor=StatisticsMonitor(cost_s=1.0, rate_per_s=rate))
    queue.enqueue(updates((0, 1, 2, 3), None, (0, 5, 9, 5), weight=(1.0, 3.0, 1.0, 3.0)), 9)
    assert [row[0] for row in served(queue, 3, 10)] == [2, 1, 3]
    fifo = made("fifo")
    fifo.enqueue(updates((0, 1), None, (0, 5), weight=(1.0, 9.0)), 9)
    assert [row[0] for row in served(fifo, 1, 10)] == [0], "weights are for policies that choose"


def test_the_state_is_bound_to_its_version_and_pages():
    queue = made("append", seed=3)
    queue.enqueue(updates((0, 1, 0), (5, 1, 6), (1, 2, 3)), 3)
    counters = queue.counters()
    counters.pop("monitor")
    stored = {"version": 1, "slots": 2, "drawn": 0, "serial": 3}
    assert counters == {**stored, "overloaded": False, "one_per_key": False}
    state = queue.snapshot()
    assert (state["held"].tolist(), state["cells"].number.tolist()) == (queue.locations.tolist(), [0, 1, 0])
    for other in (state | {"version": 2}, state | {"slots": 3}):
        with pytest.raises(CheckpointError, match="queue state of version"):
            made("append").restore(other)
    one = made("in-place")
    one.restore(state)
    assert len(one) == 2
    assert served(one, None, 3) == [(0, 6, 3, 1, 2), (1, 1, 2, 2, 1)]
    assert one.counters()["serial"] == 3


def test_pages_that_changed():
    queue = made("in-place", stored=True)
    assert queue.changed().tolist() == []
    queue.enqueue(updates((0, 1, 2), (5, 5, 5), (1, 2, 3)), 3)
    assert queue.changed().tolist() == [0, 1]
    again = made("in-place", stored=True)
    again.restore(queue.snapshot())
    assert again.changed().tolist() == []
    again.enqueue(updates((2,), (4,), (4,)), 4)
    assert again.changed().tolist() == [1], "the row that stays stands for one more"
    beside = again.enqueue(updates((2, 3), (6, 1), (5, 6)), 6)
    assert beside.locations.tolist() == [3, 4], "what is newer lies beside what comes, not where it lay"
    rests = made("in-place", stored=True)
    rests.enqueue(updates((3,), (1,), (4,), interval_us=(9,)), 4)
    once = made("in-place", stored=True)
    once.restore(rests.snapshot())
    once.dequeue(None, 4)
    assert once.changed().tolist() == [0], "it rests now"
    assert made("in-place").changed().tolist() == []
