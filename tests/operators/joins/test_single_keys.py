"""Group-wise punctuation: results of joins come earlier by it, are the same, and it is passed on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.join_pairs import expected
from kit.key_promises import KeyPromises

from upstream.core.pushdown.ipc_frames import to_frame
from upstream.core.rows.sort_keys import in_order
from upstream.core.rows.split import split_punctuation
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.core.watermark.bounds import AFTER_ALL, BEFORE_ALL, times_of_bounds
from upstream.operators.joins.as_of_plan import AsOfPlan
from upstream.operators.joins.as_of_shard import AsOfShard
from upstream.operators.joins.band import LEFT, IntervalBand, TumblingBand
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.shard import JoinShard
from upstream.operators.runtime.feeds import ENDED, punctuation_rows
from upstream.operators.runtime.key_bounds import ALL_FEEDS
from upstream.operators.runtime.store import DictStore


def schema(name, kind):
    return pa.schema([("k", kind), ("t", pa.int64()), (name, pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def sides(kind):
    return tuple(JoinSide(("k",), "t", schema(name, kind), ("k",)) for name in "ab")


def frame(side, rows, bound, claims):
    """Rows (key, time, number), the feed's bound, and bounds of keys."""
    numbers = np.array([row[2] for row in rows], dtype=np.int64)
    columns = [pa.array([row[at] for row in rows], side.schema.field(at).type) for at in range(3)]
    system = system_array(source="f", seq=numbers, arrival_us=numbers)
    tables = [pa.table([*columns, system], schema=side.schema)]
    for key, at in [*claims, *([] if bound is None else [(None, bound)])]:
        time = times_of_bounds([at], pa.int64(), lambda one: in_order(one, pa.int64()))
        named = pa.array([key], side.schema.field("k").type)
        tables.append(punctuation_rows(side.schema, ["f"], 0, t=time, k=named).cast(side.schema))
    table = pa.concat_tables(tables)
    return [to_frame(table)] if table.num_rows else []


@st.composite
def streams(draw, keys):
    """Batches (rows, bound, bounds of keys) of both sides, with true claims."""
    both = [
        [
            (draw(st.sampled_from(keys)), draw(st.integers(-12, 24)), number)
            for number in range(draw(st.integers(0, 14)))
        ]
        for _ in range(2)
    ]
    count = draw(st.integers(1, 5))
    places = [sorted(draw(st.integers(0, count - 1)) for _ in rows) for rows in both]
    batches = []
    for batch in range(count):
        cells = []
        for rows, place in zip(both, places, strict=True):
            rest = [row for row, at in zip(rows, place, strict=True) if at > batch]
            bound = draw(st.none() | st.integers(-14, min((row[1] for row in rest), default=30)))
            claims = []
            for key in draw(st.lists(st.sampled_from([each for each in keys if each is not None]), max_size=3)):
                least = min((row[1] for row in rest if row[0] == key), default=ENDED)
                claims.append((key, least if draw(st.booleans()) else min(least, draw(st.integers(-14, 30)))))
            cells.append(
                (
                    [row for row, at in zip(rows, place, strict=True) if at == batch],
                    ENDED if batch == count - 1 else bound,
                    claims,
                )
            )
        batches.append(cells)
    return both, batches


TEXT_OR_NOT = st.booleans().flatmap(
    lambda text: st.tuples(
        st.just(pa.string() if text else pa.int64()), streams(["x", "y", None] if text else [1, 2, None])
    )
)
BANDS = st.one_of(
    st.tuples(st.integers(-3, 6), st.integers(-3, 6)).filter(lambda pair: sum(pair) >= 0).map(
        lambda pair: IntervalBand(*pair)
    ),
    st.integers(1, 7).map(TumblingBand),
)  # fmt: skip


def meets(band):
    if isinstance(band, TumblingBand):
        return lambda left, right: left[1] // band.size == right[1] // band.size
    return lambda left, right: -band.before <= right[1] - left[1] <= band.after


def run_all(shard, join, batches, store=None):
    """Pairs, promises and reports of each batch; each is run by a shard that has just read its state."""
    store = store or DictStore()
    found, reports, promised = [], [], KeyPromises()
    for number, (left, right) in enumerate(batches):
        result, report = shard(0, join, store).run(frame(join.left, *left), frame(join.right, *right), number)
        if report.left_late + report.right_late == 0:
            promised.check(result, ("k",), getattr(join, "time", join.left.time))
        rows = [] if result is None else split_punctuation(result)[0].to_pylist()
        number_of = [[row.get(name) for row in rows] for name in "ab"]
        found.append([
            (-1 if one is None else one, -1 if two is None else two) for one, two in zip(*number_of, strict=True)
        ])  # fmt: skip
        reports.append(report)
    return found, reports


def flat(found):
    return sorted(pair for pairs in found for pair in pairs)


@given(TEXT_OR_NOT, BANDS, st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]))
def test_true_claims_of_keys_change_no_result_but_when_it_comes(case, band, how):
    kind, ((left, right), batches) = case
    join = JoinPlan(*sides(kind), band, how=how)
    store = DictStore()
    found, reports = run_all(JoinShard, join, batches, store)
    assert flat(found) == expected(left, right, meets(band), how)
    assert reports[-1].left_late + reports[-1].right_late == 0
    assert store.values.keys() == {("head", 0)}
    # What leaves is never too old for what was promised, except rows without a key, which have no partner to wait for.
    for batch, pairs in enumerate(found[1:], 1):
        promised = reports[batch - 1].promised
        for one, two in pairs:
            ends = [row[1] for row in ([left[one]] if one >= 0 else []) + ([right[two]] if two >= 0 else [])]
            assert promised is None or max(ends) >= promised or (one >= 0 and left[one][0] is None)


@given(TEXT_OR_NOT, st.sampled_from(["inner", "left"]), st.none() | st.integers(0, 9))
def test_true_claims_of_keys_change_no_result_of_a_join_as_of_a_time(case, how, tolerance):
    kind, ((left, right), batches) = case
    join = AsOfPlan(*sides(kind), how, tolerance)
    found, reports = run_all(AsOfShard, join, batches)
    pairs = []
    for key, time, number in left:
        known = [
            row for row in right if key is not None and row[0] == key and row[1] <= time
            and (tolerance is None or row[1] >= time - tolerance)
        ]  # fmt: skip
        partner = max(known, key=lambda row: (row[1], row[2]), default=None)
        if partner is not None or how == "left":
            pairs.append((number, -1 if partner is None else partner[2]))
    assert flat(found) == sorted(pairs)
    assert (reports[-1].left_kept, reports[-1].left_late, reports[-1].right_late) == (0, 0, 0)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_a_key_whose_partners_have_all_come_is_given_and_dropped_alone(kind):
    one, two = (1, 2) if kind == pa.int64() else ("x", "y")
    join = JoinPlan(*sides(kind), IntervalBand(2, 3), how="left")
    store = DictStore()
    start = [(([(one, 10, 0), (two, 10, 1), (one, 11, 2)]), None, []), ([], 0, [])]
    # 13 is the last time at which 10 can have a partner: the bound 14 lets go of it.
    for bound, given_then, kept in ((13, [], 3), (14, [(0, -1)], 3), (15, [(0, -1), (2, -1)], 1)):
        state = DictStore()
        found, reports = run_all(JoinShard, join, [start, [([], None, []), ([], None, [(one, bound)])]], state)
        assert (sorted(found[1]), reports[1].left_kept) == (given_then, kept)
        late_rows = [([], None, []), ([(one, 11, 5), (two, 11, 6)], None, [])]
        again, later = run_all(JoinShard, join, [late_rows, [([], None, []), ([], 99, [])]], state)
        # The late row of the key meets what has not been given; nothing is given twice.
        late = {13: [(0, 5), (1, 6), (2, 5)], 14: [(1, 6), (2, 5)], 15: [(1, 6)]}[bound]
        assert (sorted(again[0]), again[1]) == (late, [])
        assert later[1].right_late == 1
    run_all(JoinShard, join, [start], store)
    assert [each for each, _ in store.values if each.endswith("keys")] == []


def test_a_waiting_row_of_a_join_as_of_a_time_is_given_at_the_bound_of_its_key():
    join = AsOfPlan(*sides(pa.int64()), "left")
    start = [[([(1, 10, 0), (2, 10, 1), (1, 20, 2)], None, []), ([(1, 9, 5)], 0, [])]]
    for bound, given_then in ((10, []), (11, [(0, 5)])):
        found, reports = run_all(AsOfShard, join, [*start, [([], None, []), ([], None, [(1, bound)])]])
        assert (found[1], reports[1].left_kept) == (given_then, 3 - len(given_then))


def test_a_row_that_comes_when_its_key_is_over_does_not_wait():
    both = [[([(1, 10, 0), (2, 10, 1)], None, []), ([], 0, [(1, 14)])]]
    found, reports = run_all(JoinShard, JoinPlan(*sides(pa.int64()), IntervalBand(2, 3), how="left"), both)
    assert (found, reports[0].left_kept) == ([[(0, -1)]], 1)
    found, reports = run_all(AsOfShard, AsOfPlan(*sides(pa.int64()), "left"), both)
    assert (found, reports[0].left_kept) == ([[(0, -1)]], 1)


def test_bands_let_go_of_many_bounds_as_of_one():
    bounds = np.array([BEFORE_ALL, BEFORE_ALL + 1, -7, 0, 13, AFTER_ALL - 1, AFTER_ALL], dtype=np.int64)
    for band in (IntervalBand(2, 3), IntervalBand(-3, 5), TumblingBand(7)):
        for side in (LEFT, 1 - LEFT):
            each = band.kept_from_each(side, bounds).tolist()
            assert each == [band.kept_from(side, bound) for bound in bounds.tolist()]


def promised_of(result):
    rows = [] if result is None else split_punctuation(result)[1].to_pylist()
    return [(row["k"], row["join_time"], row[SYSTEM]["source"]) for row in rows]


def test_punctuation_of_a_key_is_passed_on_where_both_sides_allow_it():
    join, store = JoinPlan(*sides(pa.int64()), IntervalBand(2, 3), how="left"), DictStore()
    # A row of the left without a partner leaves when the right has passed it by 3.
    for left, right, wanted in (
        (([], 5, []), ([], 4, [(1, 20)]), [(None, 1, "join/0"), (1, 5, ALL_FEEDS)]),
        (([], None, [(1, 30), (2, 30)]), ([], None, []), [(1, 17, ALL_FEEDS)]),
        (([], None, []), ([], 10, []), [(None, 5, "join/0"), (2, 7, ALL_FEEDS)]),
        (([], None, [(1, ENDED)]), ([], None, [(1, ENDED)]), [(1, None, ALL_FEEDS)]),
        (([], 50, []), ([], 50, []), [(None, 47, "join/0")]),
        (([], None, []), ([], None, []), []),
    ):
        result, _ = JoinShard(0, join, store).run(frame(join.left, *left), frame(join.right, *right))
        assert promised_of(result) == wanted


def test_nothing_is_promised_of_a_key_that_the_results_do_not_have():
    """They are rows of the left, whose update key is another column."""
    own = pa.schema([("u", pa.int64()), *sides(pa.int64())[0].schema])
    left, right = JoinSide(("k",), "t", own, ("u",)), sides(pa.int64())[1]
    found = []
    for join, shard in (
        (JoinPlan(left, right, IntervalBand(2, 3), how="semi"), JoinShard),
        (AsOfPlan(left, right), AsOfShard),
    ):
        punctuation = punctuation_rows(right.schema, ["f", "f"], 0, t=pa.array([4, 30]), k=pa.array([None, 1]))
        whole = punctuation_rows(own, ["f"], 0, t=pa.array([4]))
        result, _ = shard(0, join, DictStore()).run([to_frame(whole)], [to_frame(punctuation)])
        found.append([(row["k"], row["u"]) for row in result.to_pylist()])
    assert found == [[(None, None)], [(None, None)]]
