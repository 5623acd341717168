"""A join's shard against each row compared with each other: every order, split, punctuation and restart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.join_batches import BANDS, HOWS, LEFT, RIGHT, frame, meets, plan, streams, texts
from kit.join_pairs import expected

from upstream.conf.errors import CheckpointError, MalformedRowError, SchemaError
from upstream.core.rows.split import split_punctuation
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.joins.band import IntervalBand
from upstream.operators.joins.shard import JoinShard
from upstream.operators.runtime.store import DictStore


def given_by(join, result):
    """The results of a shard as pairs of numbers, and what it promises."""
    if result is None:
        return [], None
    rows, punctuation = split_punctuation(result)
    promised = punctuation.column(join.time).to_pylist() if punctuation.num_rows else []
    found = rows.to_pylist()
    if join.left_alone:
        return [(row["a"], -1) for row in found], (promised or [None])[-1]
    pairs = [(-1 if row["a"] is None else row["a"], -1 if row["b"] is None else row["b"]) for row in found]
    return pairs, (promised or [None])[-1]


def flat(found):
    return [pair for pairs in found for pair in pairs]


def run_all(join, batches, store=None):
    """Each batch is (left rows, left bound, right rows, right bound)."""
    store = store or DictStore()
    found, promises, reports = [], [], []
    for number, (left, left_bound, right, right_bound) in enumerate(batches):
        result, report = JoinShard(0, join, store).run(
            [frame(join.left.schema, left, left_bound, "left/f")] if left or left_bound is not None else [],
            [frame(join.right.schema, right, right_bound, "right/f")] if right or right_bound is not None else [],
            number,
        )
        pairs, promised = given_by(join, result)
        found.append(pairs)
        promises.append(promised)
        reports.append(report)
    return found, promises, reports


def test_the_example_of_two_batches():
    join = plan(IntervalBand(2, 3))
    batches = [
        ([(1, 10, 10), (1, 14, 14)], 13, [(1, 9, 9), (1, 16, 16)], 12),
        ([(1, 18, 18)], 18, [(1, 12, 12), (1, 20, 20)], 19),
    ]
    found, promises, reports = run_all(join, batches)
    assert sorted(found[0]) == [(10, 9), (14, 16)]
    assert sorted(found[1]) == [(10, 12), (14, 12), (18, 16), (18, 20)]
    assert promises == [12, 18]
    assert [(each.left_rows, each.right_rows, each.results) for each in reports] == [(2, 2, 2), (3, 4, 6)]
    assert reports[1].needs is None


@given(streams(), BANDS, st.sampled_from(HOWS))
def test_each_pair_and_each_row_without_a_partner_is_given_once_and_no_promise_is_broken(case, band, how):
    (left, right), batches = case
    join = plan(band, how)
    store = DictStore()
    found, promises, reports = run_all(join, batches, store)
    assert sorted(flat(found)) == expected(left, right, meets(band), how)
    promised = -(1 << 62)
    for pairs, promise in zip(found, promises, strict=True):
        for one, two in pairs:
            ends = [left[one][1]] if one >= 0 else []
            ends += [right[two][1]] if two >= 0 and not join.left_alone else []
            assert max(ends) >= promised or (one >= 0 and left[one][0] is None)
        promised = promised if promise is None else max(promised, promise)
    # Both have ended: nothing is kept.
    assert (reports[-1].left_kept, reports[-1].right_kept) == (0, 0)
    assert {kind for kind, _ in store.values} == {"head"}


@given(streams(texts=True), BANDS, st.sampled_from(HOWS))
def test_keys_of_text(case, band, how):
    (left, right), batches = case
    found, _, _ = run_all(plan(band, how, texts(LEFT), texts(RIGHT)), batches)
    assert sorted(flat(found)) == expected(left, right, meets(band), how)


@given(streams(), BANDS, st.sampled_from(HOWS))
def test_a_condition_counts_before_anything_else(case, band, how):
    (left, right), batches = case
    found, _, _ = run_all(plan(band, how, condition="l.a >= r.b OR r.b = 3"), batches)
    near = meets(band)
    assert sorted(flat(found)) == expected(
        left, right, lambda one, two: near(one, two) and (one[2] >= two[2] or two[2] == 3), how
    )


@given(streams(), BANDS, st.sampled_from(["inner", "left", "right", "full"]))
def test_latest_ends_with_the_newest_pair_of_each_key_however_rows_came(case, band, how):
    (left, right), batches = case
    found, _, _ = run_all(plan(band, how, output="latest"), batches)

    def order(pair):
        ends = [left[pair[0]][1]] if pair[0] >= 0 else []
        ends += [right[pair[1]][1]] if pair[1] >= 0 else []
        return max(ends), min(ends)

    def key(pair):
        return left[pair[0]][0] if pair[0] >= 0 else right[pair[1]][0]

    table = {}
    for pairs in found:
        assert len({key(pair) for pair in pairs}) == len(pairs)
        for pair in pairs:
            if key(pair) not in table or order(pair)[0] >= order(table[key(pair)])[0]:
                table[key(pair)] = pair
    newest = {}
    for pair in expected(left, right, meets(band), how):
        newest[key(pair)] = max(newest.get(key(pair), order(pair)), order(pair))
    assert {each: order(pair) for each, pair in table.items()} == newest


def test_a_row_at_the_last_time_is_kept_and_one_before_it_is_not():
    for left_time, kept in ((7, 1), (6, 0)):
        _, _, reports = run_all(plan(IntervalBand(2, 3)), [([(1, left_time, 0)], None, [], 10)])
        assert reports[0].left_kept == kept
    for right_time, kept in ((8, 1), (7, 0)):
        _, _, reports = run_all(plan(IntervalBand(2, 3)), [([], 10, [(1, right_time, 0)], None)])
        assert reports[0].right_kept == kept


def test_late_rows_meet_what_is_still_kept_and_are_counted():
    found, _, reports = run_all(
        plan(IntervalBand(2, 3)),
        [([(1, 10, 0), (1, 3, 1)], 20, [], 9), ([], None, [(1, 5, 0), (1, 8, 1)], None)],
    )
    # The left's row at 3 is let go by the right's bound, 9; that at 10 meets the late row at 8.
    assert found == [[], [(0, 1)]]
    assert reports[-1].right_late == 2
    assert reports[-1].left_late == 0


def test_what_no_interval_join_can_use_is_refused():
    join = plan()
    with pytest.raises(SchemaError, match="tombstones"):
        JoinShard(0, join, DictStore()).run([frame(LEFT, [(1, 1, 1)], deleted=True)], [])
    with pytest.raises(SchemaError, match="coalesced"):
        JoinShard(0, join, DictStore()).run([], [frame(RIGHT, [(1, 1, 1)], covered=2)])
    with pytest.raises(MalformedRowError, match="no time"):
        JoinShard(0, join, DictStore()).run([frame(LEFT, [(1, None, 1)])], [])


def test_another_join_or_other_columns_do_not_take_the_state():
    store = DictStore()
    run_all(plan(), [([(1, 10, 0)], 0, [], 0)], store)
    for other in (plan(IntervalBand(2, 4)), plan(how="left"), plan(output="latest"), plan(condition="l.a > 1")):
        with pytest.raises(CheckpointError):
            JoinShard(0, other, store)
    fewer = pa.schema([field for field in LEFT if field.name != "a"])
    with pytest.raises(CheckpointError, match="other columns are kept"):
        JoinShard(0, plan(left=fewer), store)


def test_rows_that_are_kept_get_null_in_a_new_column():
    store = DictStore()
    run_all(plan(), [([(1, 10, 0)], 0, [], 0)], store)
    more = pa.schema([*list(LEFT)[:3], ("c", pa.string()), LEFT.field(SYSTEM)])
    result, _ = JoinShard(0, plan(left=more), store).run([], [frame(RIGHT, [(1, 11, 7)], feed="right/f")])
    assert [(row["a"], row["b"], row["c"]) for row in result.to_pylist()] == [(0, 7, None)]


def test_batches_of_thousands_of_rows_are_merged_and_read_by_time():
    chance = np.random.default_rng(1)
    join = plan(IntervalBand(50, 50))
    left = [(int(key), at // 10, at) for at, key in enumerate(chance.integers(0, 400, 30_000))]
    right = [(int(key), at // 10, at) for at, key in enumerate(chance.integers(0, 400, 30_000))]
    store = DictStore()
    batches = [
        (left[at : at + 1500], at // 10 + 150, right[at : at + 1500], at // 10 + 150) for at in range(0, 30_000, 1500)
    ]
    found, _, reports = run_all(join, batches, store)
    by_key = {}
    for row in right:
        by_key.setdefault(row[0], []).append(row)
    pairs = [(one[2], two[2]) for one in left for two in by_key.get(one[0], ()) if abs(two[1] - one[1]) <= 50]
    assert sorted(flat(found)) == sorted(pairs)
    # λ(F + lag): ten rows a unit, 50 units and the part of time that is not over yet.
    assert reports[-1].left_kept <= 10 * (50 + join.band.segment + 1)
