"""A join as of a time whose results are revised: after each batch, the table is that join of all rows so far."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError
from upstream.core.rows.frames import split_punctuation
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.joins.as_of_shard import AsOfShard, EarlyAsOfShard
from upstream.operators.joins.plan import AsOfPlan, JoinSide
from upstream.operators.runtime.feeds import ENDED
from upstream.operators.state.store import DictStore

from .batches import TEXTS, as_of_expected, as_of_streams, frames

LEFT, RIGHT = TEXTS


def plan(how="left", tolerance=None, early=True):
    return AsOfPlan(JoinSide(("k",), "t", LEFT, ("k",)), JoinSide(("k",), "t", RIGHT), how, tolerance, early=early)


def run(join, store, left, left_bound, right, right_bound, shard=EarlyAsOfShard):
    return shard(0, join, store).run(frames(LEFT, left, left_bound), frames(RIGHT, right, right_bound))


def pairs_of(rows):
    return sorted((row["a"], -1 if row["b"] is None else row["b"]) for row in rows)


class Table:
    """The newest result of each row of the left; each later one has the same time, and a greater number."""

    def __init__(self):
        self.rows, self.promised = {}, -(1 << 62)

    def apply(self, result):
        if result is None:
            return []
        rows, punctuation = split_punctuation(result)
        found = rows.to_pylist()
        assert len({row["left_row"] for row in found}) == len(found)
        for row in found:
            assert row["t"] >= self.promised
            was = self.rows.get(row["left_row"])
            assert was is None or (
                (was["t"], was["k"]) == (row["t"], row["k"])
                and was[SYSTEM]["seq"] < row[SYSTEM]["seq"]
                and was[SYSTEM]["arrival"] <= row[SYSTEM]["arrival"]
                and (was["a"], was["b"]) != (row["a"], row["b"])
            )
            if row[SYSTEM]["deleted"]:
                assert (row["a"], row["b"]) == (None, None)
            self.rows[row["left_row"]] = row
        if punctuation.num_rows:
            (bound,) = punctuation.column("t").to_pylist()
            self.promised = ENDED if bound is None else bound
        return found

    @property
    def held(self):
        return pairs_of(row for row in self.rows.values() if not row[SYSTEM]["deleted"])


@given(as_of_streams(), st.sampled_from(["inner", "left"]), st.none() | st.integers(0, 6))
def test_after_each_batch_the_table_is_the_join_of_all_rows_so_far(case, how, tolerance):
    join, store, table, left, right = plan(how, tolerance), DictStore(), Table(), [], []
    _, batches = case
    for batch in batches:
        result, report = run(join, store, *batch)
        table.apply(result)
        left += batch[0]
        right += batch[2]
        assert table.held == as_of_expected(left, right, how, tolerance)
        assert report.needs is None
        assert report.unmatched == [two for _, two in as_of_expected(left, right, "left", tolerance)].count(-1)
    assert report.left_kept == 0
    # The end is that of the join that waits.
    waits, store, final = plan(how, tolerance, early=False), DictStore(), []
    for batch in batches:
        result, _ = run(waits, store, *batch, shard=AsOfShard)
        final += [] if result is None else split_punctuation(result)[0].to_pylist()
    assert table.held == pairs_of(final)


def test_a_row_that_is_final_is_not_given_again():
    join, store, table = plan("inner"), DictStore(), Table()
    rows = [("x", 10, 0, False)]
    assert len(table.apply(run(join, store, rows, None, [("x", 8, 0, False)], 10)[0])) == 1
    assert len(table.apply(run(join, store, [], None, [("x", 10, 1, False)], 11)[0])) == 1
    assert table.apply(run(join, store, [], None, [("x", 10, 2, False)], None)[0]) == []  # late, though it lies there


def test_all_pages_are_looked_at_when_twice_as_many_rows_wait_and_at_the_end_and_not_in_each_batch():
    join, store, read = plan(), DictStore(), set()
    get = store.get
    store.get = lambda kind, page: (kind == "waiting" and read.add(page)) or get(kind, page)

    def batch(first, count, bound=0):
        """Rows of new keys: how many are kept, and how many pages are read."""
        read.clear()
        rows = [(f"key {number}", 10, number, False) for number in range(first, first + count)]
        _, report = run(join, store, rows, bound, [], bound)
        return report.left_kept, len(read)

    assert batch(0, 6000)[1] > 4
    assert [batch(first, 1) for first in range(6000, 6005)] == [(first + 1, 1) for first in range(6000, 6005)]
    batch(6005, 7018)
    assert batch(13_023, 1) == (13_024, 1)
    assert batch(13_024, 1) == (13_025, 16), "twice as many, and 1024"
    assert batch(13_025, 1, bound=ENDED) == (0, 16), "their keys have no more rows"


def test_a_checkpoint_is_bound_to_it():
    store = DictStore()
    run(plan(), store, [("x", 10, 0, False)], 0, [], 0)
    side = JoinSide(("k",), "t", LEFT.remove(2), ("k",))
    with pytest.raises(CheckpointError, match="columns"):
        EarlyAsOfShard(0, AsOfPlan(side, JoinSide(("k",), "t", RIGHT), "left", early=True), store)
