"""Joins that give rows without a partner at once: after each batch the table is the join of all rows so far."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.join_batches import BANDS, LEFT, RIGHT, streams
from kit.join_batches import meets as meet_in
from kit.join_batches import plan as join_plan
from kit.join_pairs import expected

from upstream.conf.errors import CheckpointError
from upstream.core.rows.frames import split_punctuation
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.joins.band import IntervalBand
from upstream.operators.joins.shard import JoinShard
from upstream.operators.runtime.feeds import ENDED
from upstream.operators.state.store import DictStore

from .batches import frames


def plan(band, how, output="all", early=True, condition=None):
    made = join_plan(band, how, output=output, early=early, condition=condition)
    return dataclasses.replace(made, left=dataclasses.replace(made.left, key=("k",)))


class Table:
    """What a latest table holds: the newest row of each key by time, then the order in which the operator gave them."""

    def __init__(self, join, key=None):
        self.join, self.key, self.rows = join, join.key if key is None else key, {}
        self.promised = -(1 << 62)

    def apply(self, result):
        if result is None:
            return
        rows, punctuation = split_punctuation(result)
        seen = set()
        for row in sorted(rows.to_pylist(), key=lambda row: row[SYSTEM]["seq"]):
            key, order = tuple(row[name] for name in self.key), (row[self.join.time], row[SYSTEM]["seq"])
            assert self.join.early is False or len(self.key) == 1 or key not in seen
            seen.add(key)
            if row[SYSTEM]["deleted"] and len(self.key) > 1:
                assert not self.rows[key][1][SYSTEM]["deleted"], "it is taken back once"
                assert order[0] == self.rows[key][0][0], "at its own time"
            assert row[self.join.time] >= self.promised or row["k"] is None
            if key not in self.rows or order >= self.rows[key][0]:
                self.rows[key] = order, row
        if punctuation.num_rows:
            (bound,) = punctuation.column(self.join.time).to_pylist()
            self.promised = ENDED if bound is None else max(self.promised, bound)

    @property
    def held(self):
        return [row for _, row in self.rows.values() if not row[SYSTEM]["deleted"]]

    @property
    def pairs(self):
        """As pairs of numbers, -1 for no row."""
        return sorted((_number(row["a"]), _number(row.get("b"))) for row in self.held)


def _number(value):
    return -1 if value is None else value


def run(join, store, left, left_bound, right, right_bound):
    return JoinShard(0, join, store).run(frames(LEFT, left, left_bound), frames(RIGHT, right, right_bound))


def meets(band, condition=None):
    near = meet_in(band)
    return lambda one, two: near(one, two) and (condition is None or one[2] >= two[2])


@given(streams(), BANDS, st.sampled_from(["left", "right", "full", "anti"]), st.none() | st.just("l.a >= r.b"))
def test_after_each_batch_the_table_is_the_join_of_all_rows_so_far(case, band, how, condition):
    """By the rows' numbers; and by value, whether the operator gives only the newest results or the table takes all."""
    _, batches = case
    join = plan(band, how, condition=condition)
    newest_of = join if how == "anti" else plan(band, how, "latest", condition=condition)
    stores, left, right = (DictStore(), DictStore()), {}, {}
    table, every, latest = Table(join), Table(join, ("k",)), Table(newest_of, ("k",))
    for batch in batches:
        result, report = run(join, stores[0], *batch)
        table.apply(result)
        left |= {row[2]: row for row in batch[0]}
        right |= {row[2]: row for row in batch[2]}
        pairs = expected(left.values(), right.values(), meets(band, condition), how)
        assert table.pairs == pairs
        assert report.unmatched == sum(-1 in pair for pair in pairs)
        assert report.needs is None
        if how == "anti":
            continue

        def order(one, two, left=left, right=right):
            times = [rows[at][1] for rows, at in ((left, one), (right, two)) if at >= 0]
            # A pair is newer than a row without a partner.
            return max(times), len(times), min(times)

        newest = {}
        for one, two in pairs:
            key = left[one][0] if one >= 0 else right[two][0]
            newest[key] = max(newest.get(key, (-99,)), order(one, two))
        every.apply(result)
        latest.apply(run(newest_of, stores[1], *batch)[0])
        found = [{row["k"]: order(_number(row["a"]), _number(row["b"])) for row in t.held} for t in (latest, every)]
        assert found[0] == newest
        # Of several results with one time, this table keeps the one that came last.
        assert {key: each[0] for key, each in found[1].items()} == {key: each[0] for key, each in newest.items()}
    assert (report.left_kept, report.right_kept) == (0, 0)


@pytest.mark.parametrize("arrived", [5, 90])
def test_a_tombstone_arrives_with_the_row_that_caused_it_and_not_before_what_it_takes_back(arrived):
    join, store = plan(IntervalBand(2, 3), "left"), DictStore()
    run(join, store, [(1, 10, 50)], None, [], None)
    result, _ = run(join, store, [], None, [(1, 10, arrived)], None)
    tombstone = result.to_pylist()[0][SYSTEM]
    assert (tombstone["deleted"], tombstone["arrival"].microsecond) == (True, max(50, arrived))


def test_a_late_row_that_meets_nothing_kept_is_given_and_never_taken_back():
    join, store = plan(IntervalBand(2, 3), "left"), DictStore()
    run(join, store, [], None, [], 20)
    result, report = run(join, store, [(1, 16, 0)], None, [], None)
    assert [row["a"] for row in result.to_pylist()] == [0]
    assert report.left_kept == 0
    result, _ = run(join, store, [], None, [(1, 19, 0)], None)  # late itself, and its partner is gone
    assert result is None
    result, report = run(join, store, [(1, 17, 1)], None, [], None)  # 20 - 3: may meet what is to come
    assert report.left_kept == 1


@pytest.mark.parametrize(("output", "promised"), [("all", 7), ("latest", 10)])
def test_the_promise_is_held_back_by_what_may_be_taken_back_only_if_tombstones_are_given(output, promised):
    result, _ = run(plan(IntervalBand(2, 3), "left", output), DictStore(), [], 20, [], 10)
    assert result.column("join_time").to_pylist() == [promised]


def test_a_checkpoint_is_bound_to_it():
    store = DictStore()
    run(plan(IntervalBand(2, 3), "left"), store, [(1, 10, 0)], 0, [], 0)
    with pytest.raises(CheckpointError):
        JoinShard(0, plan(IntervalBand(2, 3), "left", early=False), store)
