"""The update queue's answers, figure by figure; what it serves in general is in tests/operators/queue/test_queue.py."""

import numpy as np
import pytest

from upstream.conf.errors import CheckpointError
from upstream.operators.queue.cells import Updates
from upstream.operators.queue.keys import NumberedKeys
from upstream.operators.queue.monitor import StatisticsMonitor
from upstream.operators.queue.queue import UpdateQueue


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


def test_a_fifo_puts_what_is_newer_at_the_tail_and_leaves_what_is_older():
    queue = made("fifo")
    queue.enqueue(updates((0, 1, 2), (5, 5, 5), (1, 2, 3)), 3)
    assert counts_of(queue.enqueue(updates((0, 1), (6, 4), (4, 5)), 5)) == ([0], 2, 1, 0)
    assert served(queue, None, 5) == [(1, 5, 2, 2, 2), (2, 5, 3, 3, 1), (0, 6, 4, 1, 2)]


def test_rows_that_were_coalesced_count_what_they_stand_for():
    for policy, superseded in (("in-place", 6), ("append", 0)):
        queue = made(policy)
        batch = updates((0, 0, 1), None, (10, 11, 12), first_arrival=(3, 2, 1), covered=(4, 1, 3))
        assert queue.enqueue(batch, 12).superseded == superseded
        wanted = (
            [(1, 0, 12, 1, 3), (0, 0, 11, 2, 5)]
            if superseded
            else [(0, 0, 10, 3, 4), (0, 0, 11, 2, 1), (1, 0, 12, 1, 3)]
        )
        assert served(queue, None, 12) == wanted


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


def test_rows_wait_in_order_and_a_look_takes_nothing():
    queue = made("append")
    queue.enqueue(updates((0, 1, 2), None, (7, 5, 5)), 7)
    queue.enqueue(updates((3, 1), None, (5, 9)), 9)
    assert queue.read(2, 9).cells.number.tolist() == [1, 2]
    assert (len(queue), len(queue.locations)) == (5, 5)
    assert served(queue, 0, 9) == []
    assert [row[0] for row in served(queue, 2, 9)] == [1, 2]
    assert [row[0] for row in served(queue, 2, 9)] == [3, 0]
    assert [row[0] for row in served(queue, 5, 9)] == [1]
    at = queue.enqueue(updates((2,), None, (11,)), 11).locations
    assert (queue.column("arrival", at).tolist(), queue.cells(at).number.tolist()) == ([11], [2])


def test_auto_keeps_one_row_of_a_key_from_overload_until_it_is_empty():
    queue = made("auto")
    queue.enqueue(updates((0, 1, 0, 2), (5, 1, 5, 1), (1, 2, 3, 4)), 4)
    assert queue.dequeue(4, 4).superseded == 0, "all fit into the budget"
    queue.enqueue(updates((0, 1, 0, 2, 0), (5, 1, 5, 1, 4), (5, 6, 7, 8, 9)), 9)
    assert not queue.counters()["overloaded"]
    out = queue.dequeue(2, 9)
    assert out.superseded == 2
    assert len(out.ties) == 1
    assert out.cells.number.tolist() == [0, 1]
    assert (out.cells.arrival.tolist(), out.cells.covered.tolist()) == ([7, 6], [3, 1])
    assert queue.counters()["overloaded"]
    again = made("auto")
    again.restore(queue.snapshot())
    assert again.counters()["overloaded"]
    for each in (queue, again):
        assert counts_of(each.enqueue(updates((2, 2), (3, 2), (10, 11)), 11)) == ([0], 2, 0, 0)
        assert served(each, None, 11) == [(2, 3, 10, 8, 3)]
        assert not each.counters()["overloaded"]
        assert counts_of(each.enqueue(updates((2, 2), (3, 2), (12, 13)), 13)) == ([0, 1], 0, 0, 0)


def test_slow_updaters_cut_the_line_one_behind_the_other():
    rate = np.array([0.01, 0.01, 5.0, 5.0])
    queue = made("linecutting", monitor=StatisticsMonitor(cost_s=1.0, rate_per_s=rate))
    queue.enqueue(updates((2, 3), (1, 1), (1, 2)), 2)
    queue.enqueue(updates((1,), (1,), (3,)), 3)
    queue.enqueue(updates((0, 2), (1, 2), (4, 5)), 5)
    queue.enqueue(updates((1,), (2,), (6,)), 6)
    assert served(queue, None, 6) == [(1, 2, 6, 3, 2), (0, 1, 4, 4, 1), (2, 2, 5, 1, 2), (3, 1, 2, 2, 1)]


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
    assert counters == {
        "version": 1,
        "slots": 2,
        "drawn": 0,
        "serial": 3,
        "overloaded": False,
        "one_per_key": False,
    }
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
