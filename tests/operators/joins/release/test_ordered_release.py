"""Results of a join in the order of time: every way to it, every switch between them, restarts, and late rows."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.join_batches import BANDS, HOWS, LEFT, RIGHT, meets, plan, streams
from kit.join_pairs import expected

from upstream.conf.errors import CheckpointError
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.core.rows.frames import split_punctuation
from upstream.operators.joins.band import IntervalBand
from upstream.operators.joins.release.choice import ReleasePlan
from upstream.operators.joins.release.ordered_release import ArrivalRates, TimeQueue
from upstream.operators.joins.shard import JoinShard
from upstream.operators.runtime.feeds import ENDED
from upstream.operators.state.store import DictStore

from ..batches import frames

MODES = st.lists(st.sampled_from([None, "sync", "filter"]), min_size=4, max_size=4)


def ordered(release="adaptive", **changes):
    return plan(release=ReleasePlan(release), **changes)


def numbers(join, rows):
    """Pairs of row numbers, -1 for none, with the results' times."""
    found = rows.to_pylist()
    if join.left_alone:
        return [((row["a"], -1), row["t"]) for row in found]
    none = {None: -1}
    return [((none.get(row["a"], row["a"]), none.get(row["b"], row["b"])), row["join_time"]) for row in found]


class Run:
    """Batches of (left rows, left bound, right rows, right bound), each with a mode to change to."""

    def __init__(self, join, batches, modes=(), clock=lambda: 0.0):
        store = DictStore()
        self.given, self.late, self.promises, self.reports = [], [], [], []
        modes = list(modes) + [None] * len(batches)
        for number, ((left, left_bound, right, right_bound), mode) in enumerate(zip(batches, modes, strict=False)):
            shard = JoinShard(0, join, store, clock=clock)  # as a restart does
            result, report = shard.run(
                frames(LEFT, left, left_bound, feed="left/f"),
                frames(RIGHT, right, right_bound, feed="right/f"),
                number,
                mode,
            )
            self.given.append([])
            promise = None
            if result is not None:
                rows, punctuation = split_punctuation(result)
                self.given[-1] = numbers(join, rows)
                promise = punctuation.column(join.time).to_pylist()[-1] if punctuation.num_rows else None
            self.late += [] if shard.late is None else numbers(join, shard.late)
            self.promises.append(promise)
            self.reports.append(report)
        self.kinds = {kind for kind, _ in store.values}

    @property
    def pairs(self):
        return sorted(pair for batch in self.given for pair, _ in batch)

    @property
    def times(self):
        return [time for batch in self.given for _, time in batch]


@given(streams(), BANDS, st.sampled_from(HOWS), MODES, st.sampled_from(["adaptive", "adaptive", "sync", "filter"]))
def test_all_results_leave_once_in_the_order_of_time_across_switches(case, band, how, modes, release):
    (left, right), batches = case
    join = ordered(release, band=band, how=how)
    run = Run(join, batches, modes)
    assert run.pairs == expected(left, right, meets(band), how)
    assert run.times == sorted(run.times)
    assert run.late == []
    promised = -(1 << 62)
    for batch, promise in zip(run.given, run.promises, strict=True):
        assert all(time >= promised for _, time in batch)
        promised = promised if promise is None else max(promised, promise)
    last = run.reports[-1]
    assert (last.left_kept, last.right_kept, last.queued, last.held, last.needs) == (0, 0, 0, 0, None)
    assert run.kinds == {"head"}
    if release != "adaptive":
        assert {each.release for each in run.reports} == {release}, "it does not change, whatever is asked"


@st.composite
def late_streams(draw):
    """Bounds that rows of later batches fall below."""
    both, batches = [[], []], []
    count = draw(st.integers(2, 5))
    for batch in range(count):
        cells = []
        for rows in both:
            new = [
                (draw(st.sampled_from([1, 2])), draw(st.integers(0, 20)), len(rows) + at)
                for at in range(draw(st.integers(0, 4)))
            ]
            rows.extend(new)
            cells += [new, ENDED if batch == count - 1 else draw(st.none() | st.integers(0, 22))]
        batches.append(tuple(cells))
    return both, batches


@given(late_streams(), BANDS, st.sampled_from(HOWS), MODES)
def test_late_rows_break_no_order_and_held_results_and_those_set_aside_are_those_of_the_plain_join(
    case, band, how, modes
):
    (left, right), batches = case
    adaptive = Run(ordered(band=band), batches, modes)
    assert adaptive.times == sorted(adaptive.times)
    both = [*adaptive.pairs, *(pair for pair, _ in adaptive.late)]
    assert len(both) == len(set(both))
    assert set(both) <= set(expected(left, right, meets(band), "inner"))
    run = Run(ordered("filter", band=band, how=how), batches)
    plain = Run(plan(band, how), batches)
    assert run.times == sorted(run.times)
    assert sorted([*run.pairs, *(pair for pair, _ in run.late)]) == plain.pairs
    assert run.reports[-1].late_results == len(run.late)
    assert run.reports[-1].results == len(run.pairs)


def test_a_late_result_is_set_aside_below_the_promise_and_given_at_it():
    first = ([(1, 10, 0), (1, 11, 1)], 12, [], 11)
    for time, late in ((10, True), (11, False)):
        run = Run(ordered("filter", band=IntervalBand(1, 1)), [first, ([], None, [(1, time, 0)], None)])
        assert run.late == ([((0, 0), 10)] if late else [])
        assert ((1, 0), 11) in run.given[1]


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("release", ["sync", "filter"])
def test_what_is_needed_releases_what_is_held(how, release):
    """Otherwise a silent feed would be asked for more, and more, for nothing."""
    join = ordered(release, band=IntervalBand(2, 3), how=how)
    batches = [([(1, 10, 0), (1, 30, 1)], 31, [(1, 11, 0), (2, 30, 1)], 8)]
    before = Run(join, batches)
    needs = before.reports[-1].needs
    assert needs is not None
    after = Run(join, [*batches, ([], None, [], needs)])
    one, two = before.reports[-1], after.reports[-1]
    assert two.results > one.results or two.queued < one.queued or two.held < one.held
    assert two.needs is None or two.needs > needs
    done = Run(join, [*batches, ([], 100, [], 100)])
    assert done.reports[-1].needs is None


def test_a_switch_back_empties_what_is_held_in_step():
    """§6, steps E to K: what is held leaves at the bound that lets it go, beside what enters in order by then."""
    join = ordered(band=IntervalBand(6, 6))
    batches = [
        ([(1, 1, 0)], 1, [(1, 5, 0), (1, 7, 1)], 7),
        ([(1, 2, 1)], 2, [(1, 8, 2)], 8),
        ([(1, 6, 2)], 6, [], None),
        ([(1, 9, 3)], 9, [], None),
    ]
    run = Run(join, batches, ["filter", "sync"])
    assert [each.release for each in run.reports] == ["filter", "sync", "sync", "sync"]
    assert [(each.held, each.queued) for each in run.reports] == [(2, 0), (4, 1), (3, 1), (0, 1)]
    assert run.given[2] == [((0, 0), 5), ((1, 0), 5), ((2, 0), 6)]
    assert run.times == sorted(run.times)


def test_a_switch_to_holding_lets_waiting_rows_enter_at_once():
    join = ordered(band=IntervalBand(6, 6))
    batches = [([(1, 5, 0)], 5, [(1, 3, 0)], 3), ([], None, [], None)]
    run = Run(join, batches, [None, "filter"])
    assert [(each.held, each.queued) for each in run.reports] == [(0, 1), (1, 0)]


def test_what_is_compared_is_counted_and_timed_by_the_given_clock():
    ticks = iter(range(100))
    batches = [([(1, 1, 0), (1, 2, 1)], 0, [(1, 1, 0)], 0), ([(1, 2, 2)], 0, [], None)]
    run = Run(ordered("filter"), batches, clock=lambda: next(ticks) * 0.5)
    assert [each.comparisons for each in run.reports] == [2, 1]
    assert [each.spent_s for each in run.reports] == [0.5, 0.5]


def test_an_ordered_join_takes_no_state_of_one_without_an_order_but_of_one_with_another_way():
    store, other = DictStore(), DictStore()
    JoinShard(0, plan(), store).run(frames(LEFT, [(1, 1, 0)], 0), [])
    with pytest.raises(CheckpointError, match="order"):
        JoinShard(0, ordered("sync"), store)
    JoinShard(0, ordered("sync"), other).run(frames(LEFT, [(1, 1, 0)], 0), [])
    JoinShard(0, ordered("filter"), other)


@pytest.mark.parametrize(
    ("release", "queued", "held"), [("sync", [1, 2, 2], [0] * 5), ("filter", [0] * 3, [0, 1, 2, 2, 0])]
)
def test_the_motivating_example(release, queued, held):
    """§1, Fig. 1 C: S and T by the clock of arrival, keys a to d as numbers, w = 6.

    Fig. 3: b9 and c10 wait in the queue of T. Fig. 4: their results are held instead. Either way <a8,a5> leaves at 11,
    and <b6,b9> and then <c4,c10> at 12.
    """
    a, b, c, d = range(1, 5)
    batches = [
        ([(d, 2, 2), (c, 4, 4), (b, 6, 6)], 6, [(a, 1, 1), (a, 5, 5)], 5),
        ([], None, [(b, 9, 9)], 9),
        ([], None, [(c, 10, 10)], 10),
        ([(a, 8, 8)], 8, [], None),
        ([(a, 12, 12)], 12, [], None),
    ]
    run = Run(ordered(release, band=IntervalBand(6, 6)), batches)
    assert [[pair for pair, _ in found] for found in run.given] == [[], [], [], [(8, 5)], [(6, 9), (4, 10)]]
    assert [each.promised for each in run.reports[1:]] == [6, 6, 8, 10]
    assert [each.queued for each in run.reports[1:4]] == queued
    assert [each.held for each in run.reports] == held


@pytest.mark.parametrize("release", ["sync", "filter"])
def test_punctuation_of_a_key_does_not_let_go_of_what_a_waiting_row_will_meet(release):
    """The right's row at 10 has come and waits; that no other row of its key comes below 50 is no reason to forget."""
    join, store = ordered(release), DictStore()
    right = frames(RIGHT, [(1, 10, 0)], 9, [(1, 50)], "right/f")
    result, _ = JoinShard(0, join, store).run(frames(LEFT, [(1, 8, 0)], 9, feed="left/f"), right)
    assert numbers(join, split_punctuation(result)[0]) == []
    result, _ = JoinShard(0, join, store).run(
        frames(LEFT, [], 20, feed="left/f"), frames(RIGHT, [], 20, feed="right/f")
    )
    assert numbers(join, split_punctuation(result)[0]) == [((0, 0), 10)]


S = 1_000_000


def test_rows_are_divided_by_the_time_in_which_they_came():
    rates = ArrivalRates().seen(7, 9, 100 * S)
    assert rates.per_second == (0.0, 0.0), "nobody knows since when these came"
    rates = rates.seen(3, 30, 103 * S)
    assert rates.per_second == pytest.approx((1.0, 10.0))
    for second in range(104, 400):
        rates = rates.seen(2, 10, second * S)
    assert rates.per_second == pytest.approx((2.0, 10.0), rel=0.02)


def test_what_came_a_half_life_ago_counts_half():
    rates = ArrivalRates().seen(0, 0, S).seen(8, 0, 2 * S, half_life_s=1)
    # One second of eight rows, then one of none: half of the first, and the second.
    assert rates.seen(0, 0, 3 * S, half_life_s=1).per_second[0] == pytest.approx(8 * 0.5 / 1.5)


def test_a_clock_that_jumps_back_stands_still_and_a_tick_before_all_rows_is_no_arrival():
    rates = ArrivalRates().seen(0, 0, 0)
    assert rates.clock_us is None
    rates = rates.seen(1, 1, 10 * S).seen(1, 1, 12 * S)
    back = rates.seen(4, 0, 5 * S)
    assert back.clock_us == 12 * S
    assert back.seconds == rates.seconds
    assert back.left == rates.left + 4


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 10**9)), max_size=8))
def test_what_is_saved_goes_on_as_if_it_had_not_been(batches):
    one = two = ArrivalRates()
    for batch in batches:
        one = one.seen(*batch)
        two = ArrivalRates.from_json(json.loads(json.dumps(two.to_json()))).seen(*batch)
    assert one == two
    assert all(rate >= 0 for rate in one.per_second)


SCHEMA = pa.schema([("t", pa.int64()), ("n", pa.int64())])


def queue(store, saved):
    return TimeQueue(store, "held", SCHEMA, "t", json.loads(json.dumps(saved)))


def rows(times, first):
    return pa.table({"t": times, "n": range(first, first + len(times))}, schema=SCHEMA)


STEPS = st.lists(
    st.tuples(st.lists(st.integers(-5, 20), max_size=6), st.sampled_from([LOWEST, *range(-6, 22)]), st.booleans()),
    max_size=25,
)


@given(STEPS)
def test_each_row_leaves_once_at_the_first_bound_that_lets_it_go(steps):
    store, saved, waiting, number, passed = DictStore(), {}, [], 0, LOWEST
    for times, bound, drained in steps:
        held = queue(store, saved)
        new = rows(times, number)
        waiting += zip(times, range(number, number + len(times)), strict=True)
        number += len(times)
        found = held.release(new, bound)
        passed = max(passed, bound)
        wanted = [each for each in waiting if each[0] <= passed and passed > LOWEST]
        assert sorted(zip(*found.to_pydict().values(), strict=True)) == sorted(wanted)
        waiting = [each for each in waiting if each not in wanted]
        assert held.rows == len(waiting)
        assert held.first == min((time for time, _ in waiting), default=None)
        if drained:
            assert sorted(zip(*held.drain().to_pydict().values(), strict=True)) == sorted(waiting)
            waiting = []
            assert (held.rows, held.first) == (0, None)
        saved = held.to_json()
    last = queue(store, saved)
    assert last.release(rows([], 0), HIGHEST).num_rows == len(waiting)
    assert not store.values


def test_thousands_of_rows_leave_in_parts_and_their_runs_are_given_back():
    store, saved, left = DictStore(), {}, 0
    for batch in range(60):
        held = queue(store, saved)
        found = held.release(rows([batch * 100 + at for at in range(500)], 0), batch * 100)
        left += found.num_rows
        saved = held.to_json()
        assert held.rows == 500 * (batch + 1) - left
    assert held.rows < 3000
    assert len(store.values) <= 20


def test_rows_that_wait_get_null_in_a_new_column():
    store = DictStore()
    held = queue(store, {})
    held.release(rows([5], 0), 1)
    more = TimeQueue(store, "held", pa.schema([*SCHEMA, ("c", pa.string())]), "t", held.to_json())
    new = pa.table({"t": [5], "n": [1], "c": ["x"]})
    assert more.release(new, 5).to_pylist() == [{"t": 5, "n": 0, "c": None}, {"t": 5, "n": 1, "c": "x"}]
