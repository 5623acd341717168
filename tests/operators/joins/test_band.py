import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.join_batches import HOWS, meets, streams
from kit.join_batches import plan as join_plan
from kit.join_pairs import expected

from upstream.conf.errors import OptionError, SchemaError, StateLimitError
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.core.watermark.bounds import AFTER_ALL, BEFORE_ALL
from upstream.operators.joins.band import (
    LEFT,
    RIGHT,
    Interval,
    IntervalBand,
    TumblingBand,
    band_of,
    cut_time,
    distance_of,
    shifted,
    shifted_bound,
    tumbling_band,
    unit_of,
)
from upstream.operators.joins.shard import JoinShard
from upstream.operators.runtime.feeds import ENDED
from upstream.operators.state.store import DictStore

from .batches import flat, run_all


def test_a_window_holds_its_first_time_and_not_that_of_the_next():
    band = TumblingBand(5)
    least, greatest = band.partners(LEFT, np.array([4, 5, 9, -1]))
    assert least.tolist() == [0, 5, 5, -5]
    assert greatest.tolist() == [4, 9, 9, -1]
    assert [band.kept_from(LEFT, bound) for bound in (4, 5, 9, 10, -1)] == [0, 5, 5, 10, -5]


@pytest.mark.parametrize("band", [IntervalBand(2, 3), IntervalBand(-3, 5), TumblingBand(5)])
@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_infinite_bounds_stay_infinite_and_many_bounds_let_go_as_each_does(band, side):
    assert (band.kept_from(side, LOWEST), band.kept_from(side, ENDED)) == (LOWEST, ENDED)
    bounds = [BEFORE_ALL, BEFORE_ALL + 1, -7, 0, 13, AFTER_ALL - 1, AFTER_ALL]
    each = band.kept_from_each(side, np.array(bounds, dtype=np.int64)).tolist()
    assert each == [band.kept_from(side, bound) for bound in bounds]


def test_times_do_not_wrap_at_the_ends_of_int64():
    ends = np.array([LOWEST, LOWEST + 1, 0, HIGHEST - 1, HIGHEST])
    assert shifted(ends, 2).tolist() == [LOWEST + 2, LOWEST + 3, 2, HIGHEST, HIGHEST]
    assert shifted(ends, -2).tolist() == [LOWEST, LOWEST, -2, HIGHEST - 3, HIGHEST - 2]
    assert shifted_bound(HIGHEST - 1, 5) == HIGHEST - 1
    assert shifted_bound(LOWEST + 1, -5) == LOWEST + 1
    assert TumblingBand(5).partners(LEFT, ends)[0].tolist()[0] == LOWEST


BAND = IntervalBand(6, 6)


def plan(how="inner", limit=None, on_limit="drop_oldest", band=BAND, **changes):
    return join_plan(band, how, state_limit=limit, on_limit=on_limit, **changes)


def kept_bytes(store):
    return sum(len(value) for (kind, _), value in store.values.items() if kind != "head")


def test_the_cut_is_the_end_of_a_part_of_time_unless_nothing_would_be_left():
    times = np.array([31, 5, 12, 9, 31, 14], dtype=np.int64)
    sides = [(times, 600), (np.array([13], dtype=np.int64), 100)]
    assert cut_time(sides, 10, 1) == 10
    assert cut_time(sides, 10, 200) == 10
    assert cut_time(sides, 10, 201) == 20
    assert cut_time(sides, 10, 501) == 32  # both rows of one time
    assert cut_time(sides, 10, 10_000) == 32
    assert cut_time([(np.array([5, 10], dtype=np.int64), 200)], 10, 1) == 10
    assert cut_time([(times, 600), (times[:0], 0)], 100, 300) == 13
    assert cut_time([(np.array([-11, -9, 40], dtype=np.int64), 300)], 10, 1) == -10


@given(streams(), st.sampled_from(HOWS), st.sampled_from([4000, 6000, 9000]))
def test_dropping_rows_leaves_results_out_and_makes_none_up(case, how, limit):
    both, batches = case
    found, _, reports = run_all(JoinShard, plan(how, limit), batches)
    pairs, whole, last = flat(found), expected(*both, meets(BAND), how), reports[-1]
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) <= set(whole)
    if not last.left_shed and not last.right_shed:
        assert pairs == whole
        assert last.left_unsure == last.right_unsure == 0
    # Each row of an outer join is in a result, or counted.
    if how == "full":
        for at, (name, rows) in enumerate(zip(("left", "right"), both, strict=True)):
            absent = sum(row[0] is not None for row in rows) - len({pair[at] for pair in pairs if pair[at] >= 0})
            assert absent <= getattr(last, f"{name}_shed") + getattr(last, f"{name}_unsure")
    assert run_all(JoinShard, plan(how, limit), batches)[0] == found


def many(batches=20, rows=300):
    """Rows of many keys of which one of each side meets one of the other, within the reach of the join."""
    found = []
    for batch in range(batches):
        cells = []
        for _ in range(2):
            some = [(at, batch * rows + at, batch * rows + at) for at in range(rows)]
            cells += [some, 0]
        found.append(tuple(cells))
    return found


def test_the_oldest_rows_go_and_the_state_stays_below_its_limit():
    join = plan("full", 100_000, band=IntervalBand(100_000, 100_000))
    store = DictStore()
    for batch in many():
        _, _, (report,) = run_all(JoinShard, join, [batch], store)
        assert kept_bytes(store) <= 100_000
        assert report.left_kept > 0
    assert report.left_kept + report.left_shed == 6000
    assert report.right_kept + report.right_shed == 6000
    oldest = 6000 - report.left_kept
    found, _, _ = run_all(JoinShard, join, [([], None, [(oldest % 300, 6000, 9999)], None)], store)
    assert flat(found) == [(number, 9999) for number in range(oldest, 6000, 300)]
    # The counts are those of whole parts of time where a part is small.
    _, _, (report,) = run_all(
        JoinShard, plan("full", 100_000, band=IntervalBand(100, 100)), [many(1, 3000)[0]], DictStore()
    )
    assert report.left_shed % 50 == 0
    assert report.left_shed > 0


def test_a_row_that_may_have_had_a_partner_is_not_given_as_one_without():
    store = DictStore()
    rows = [(key, 10, key) for key in range(200)]
    found, _, reports = run_all(JoinShard, plan("left", 6000), [([], 0, rows, 0)], store)
    assert reports[0].right_shed > 0
    late = [([(1, 10, 1), (1, 17, 2), (1, 16, 3)], 0, [], 0), ([], ENDED, [], ENDED)]
    found, _, reports = run_all(JoinShard, plan("left", 6000), late, store)
    assert found == [[], [(2, -1)]]  # 17 meets nothing before 11: no row of that time was dropped
    assert reports[-1].left_unsure == 2


def test_a_shard_over_its_part_of_the_limit_fails_and_goes_on_with_a_higher_one():
    store, batches = DictStore(), many(2, 30)
    run_all(JoinShard, plan("inner", 40_000, "fail", shards=4), batches[:1], store)
    before = dict(store.values)
    with pytest.raises(StateLimitError, match=r"at most 1,000.*state_limit=4000"):
        run_all(JoinShard, plan("inner", 4_000, "fail", shards=4), batches[:1], store)
    store.values = before  # as Spark does with a task that fails
    _, _, (report,) = run_all(JoinShard, plan("inner", None, shards=4), batches[1:], store)
    assert (report.left_rows, report.left_shed) == (60, 0)
    assert plan("inner", 40_000).identity() == plan().identity()
    assert plan("inner", 40_000).changeable() == {"state limit": "40,000 bytes, then drop_oldest"}


def test_rows_that_only_wait_for_their_part_of_time_go_before_any_is_dropped():
    store = DictStore()
    band = IntervalBand(4000, 4000)
    rows = [(key, key, key) for key in range(300)]
    join = plan("inner", None, band=band)
    run_all(JoinShard, join, [(rows, None, [], None)], store)
    size = kept_bytes(store)
    found, _, reports = run_all(JoinShard, plan("inner", size - 2000, "fail", band=band), [([], None, [], 4200)], store)
    assert (found, reports[0].left_kept) == ([[]], 100)
    assert kept_bytes(store) < size // 2


@pytest.mark.parametrize(
    ("kind", "time_format", "unit"),
    [
        (pa.timestamp("us", tz="UTC"), None, 1),
        (pa.timestamp("ms"), None, 1),
        (pa.date32(), None, 86_400_000_000),
        (pa.int64(), None, None),
        (pa.int64(), "epoch_s", 1_000_000),
        (pa.int64(), "epoch_ms", 1_000),
        (pa.int64(), "epoch_us", 1),
        (pa.int64(), "epoch_ns", None),
    ],
)
def test_the_unit_of_a_time(kind, time_format, unit):
    assert unit_of("t", kind, time_format) == unit


def test_times_without_a_distance_are_refused():
    for kind in (pa.float64(), pa.string()):
        with pytest.raises(SchemaError, match="a join by the time 't'"):
            unit_of("t", kind, None)


def test_durations_are_rounded_down_to_whole_units():
    assert distance_of("before", "1500 ms", 1_000) == 1500
    assert distance_of("before", "1500 ms", 1_000_000) == 1
    # Whole seconds are at least one and a half seconds later if they are two seconds later.
    assert distance_of("before", "-1500 ms", 1_000_000) == -2
    assert distance_of("before", 7, None) == distance_of("before", 7, 1_000) == 7
    assert distance_of("before", "2 minutes", 1) == 120_000_000


@pytest.mark.parametrize(
    ("value", "unit"), [("soon", 1), (7, 86_400_000_000), (True, None), ("1 minute", None), (1 << 61, None), (None, 1)]
)
def test_what_is_no_distance_is_refused(value, unit):
    with pytest.raises(OptionError, match="before="):
        distance_of("before", value, unit)


def test_bands():
    assert band_of(Interval(before="1 s", after="2 s"), 1_000) == IntervalBand(1_000, 2_000)
    assert band_of(Interval(before=-3, after=3), None) == IntervalBand(-3, 3)
    assert band_of("1 minute", 1_000_000) == IntervalBand(60, 60)
    assert band_of(4, None) == IntervalBand(4, 4)
    assert tumbling_band("1 minute", 1_000_000) == TumblingBand(60)
    for within, match in (
        (None, "without a bound"),
        (True, "within=True"),
        (Interval(before=-4, after=3), "no time is that far"),
        ("a while", "within='a while'"),
        (-1, "within=-1"),
    ):
        with pytest.raises(OptionError, match=match):
            band_of(within, None if isinstance(within, Interval) else 1_000_000)
    with pytest.raises(OptionError, match="at least one unit"):
        tumbling_band("100 ms", 1_000_000)
