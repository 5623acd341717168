"""A join as of a time against each row compared with each other: every order, split, punctuation and deletion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError, SchemaError, StateLimitError
from upstream.core.rows.frames import split_punctuation
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.joins.as_of_shard import AsOfShard, EarlyAsOfShard
from upstream.operators.joins.plan import AsOfPlan, JoinSide
from upstream.operators.runtime.feeds import ENDED
from upstream.operators.state.store import DictStore

from .batches import INTEGERS, TEXTS, as_of_expected, as_of_streams, claimed, flat, frames, run_all


def plan(how="left", tolerance=None, schemas=TEXTS, **limit):
    left, right = (JoinSide(("k",), "t", schema) for schema in schemas)
    return AsOfPlan(left, right, how, tolerance, **limit)


INTEGERS_OR_TEXTS = st.one_of(
    st.tuples(st.just(INTEGERS), claimed(as_of_streams(texts=False), [1, 2])),
    st.tuples(st.just(TEXTS), claimed(as_of_streams(), ["x", "y"])),
)


@given(INTEGERS_OR_TEXTS, st.sampled_from(["inner", "left"]), st.none() | st.integers(0, 9))
def test_the_partner_is_the_newest_row_at_the_time(case, how, tolerance):
    schemas, ((left, right), batches) = case
    found, promises, reports = run_all(AsOfShard, plan(how, tolerance, schemas), batches)
    assert flat(found) == as_of_expected(left, right, how, tolerance)
    promised = -(1 << 62)
    for pairs, promise in zip(found, promises, strict=True):
        assert all(left[one][1] >= promised for one, _ in pairs)
        promised = promised if promise is None else max(promised, promise)
    last = reports[-1]
    assert (last.left_kept, last.left_late, last.right_late, last.results) == (0, 0, 0, len(flat(found)))


@given(as_of_streams(), st.sampled_from(["inner", "left"]), st.none() | st.integers(0, 6), st.integers(2000, 9000))
def test_dropping_rows_leaves_results_out_and_makes_none_up(case, how, tolerance, limit):
    (left, right), batches = case
    join = plan(how, tolerance, state_limit=limit, on_limit="drop_oldest")
    store = DictStore()
    found, _, reports = run_all(AsOfShard, join, batches, store)
    pairs, whole, last = flat(found), as_of_expected(left, right, how, tolerance), reports[-1]
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) <= set(whole)
    if not last.left_shed and not last.right_shed:
        assert pairs == whole
        assert last.left_unsure == 0
    # Each row of the left is in a result, or counted.
    alone = last.unmatched if how == "inner" else 0
    assert len(pairs) + last.left_shed + last.left_unsure + alone == len(left)
    assert run_all(AsOfShard, join, batches)[0] == found
    assert sum(len(value) for (kind, _), value in store.values.items() if kind != "head") <= limit


@pytest.mark.parametrize(("tolerance", "unsure"), [(None, 1), (10, 0)])
def test_a_row_is_unsure_if_its_partner_may_have_been_dropped(tolerance, unsure):
    join, store = plan(tolerance=tolerance, state_limit=20_000, on_limit="drop_oldest"), DictStore()
    rows = [(f"k{at}", at, at, False) for at in range(400)]
    _, _, (report,) = run_all(AsOfShard, join, [([], None, rows, None)], store)
    assert 100 < report.right_shed < 400
    # A row of a key that was dropped, an older row of such a key, and a row of a key that is still there.
    batch = [("k1", 500, 1, False), ("k399", 405, 2, False)], None, [("k1", 0, 7, False)], 600
    found, _, (report,) = run_all(AsOfShard, join, [batch], store)
    assert sorted(found[0]) == ([(2, 399)] if unsure else [(1, -1), (2, 399)])
    assert report.left_unsure == unsure
    assert report.right_kept < 400


def test_a_limit_may_come_later():
    store, empty = DictStore(), [([], None, [], 2)]
    run_all(AsOfShard, plan(), [([("x", at, at, False) for at in range(400)], None, [], None)], store)
    with pytest.raises(StateLimitError, match="state_limit=4000"):
        run_all(AsOfShard, plan(state_limit=4000), empty, store)
    _, _, (report,) = run_all(AsOfShard, plan(state_limit=20_000, on_limit="drop_oldest"), empty, store)
    assert 0 < report.left_kept < 398
    assert report.left_shed + report.left_kept == 398


def test_a_row_waits_until_the_right_can_have_no_row_at_its_time():
    batches = [
        ([("x", 10, 0, False)], 20, [("x", 8, 0, False)], 10),
        ([], None, [("x", 10, 1, False)], None),
        ([], None, [], 11),
    ]
    found, promises, reports = run_all(AsOfShard, plan(), batches)
    assert found == [[], [], [(0, 1)]]
    assert promises == [10, None, 11]
    assert [report.needs for report in reports] == [11, 11, None]


@pytest.mark.parametrize(("bound", "given_then"), [(10, []), (11, [(0, 5)])])
def test_a_waiting_row_is_given_at_the_bound_of_its_key(bound, given_then):
    start = ([(1, 10, 0), (2, 10, 1), (1, 20, 2)], None, [(1, 9, 5)], 0)
    found, _, reports = run_all(AsOfShard, plan(schemas=INTEGERS), [start, ([], None, [], None, [], [(1, bound)])])
    assert (found[1], reports[1].left_kept) == (given_then, 3 - len(given_then))
    both = ([(1, 10, 0), (2, 10, 1)], None, [], 0, [], [(1, bound)])  # the row comes when its key is over
    found, _, _ = run_all(AsOfShard, plan(schemas=INTEGERS), [both])
    assert found == [[(0, -1)] if given_then else []]


@pytest.mark.parametrize(("tolerance", "bound", "kept"), [(None, 9, [5, 1]), (2, 30, [5, 0])])
def test_of_the_right_only_what_a_later_row_may_need_is_kept(tolerance, bound, kept):
    rows = [("x", time, time, False) for time in range(10)]
    batches = [([], 5, rows, 20), ([], bound, [("x", 9, 90, False)], None)]
    # Those at 5 to 9: one at 5 is newest at 5. Then two at 9, of which the later counts.
    assert [report.right_kept for report in run_all(AsOfShard, plan(tolerance=tolerance), batches)[2]] == kept


@pytest.mark.parametrize(("bound", "kept"), [(4, 1), (5, 0)])
def test_a_deletion_is_kept_as_long_as_an_older_row_may_come(bound, kept):
    _, _, (report,) = run_all(AsOfShard, plan(), [([], 9, [("x", 4, 1, True)], bound)])
    assert report.right_kept == kept


def test_what_it_cannot_use_is_refused():
    with pytest.raises(SchemaError, match="tombstones"):
        run_all(AsOfShard, plan(), [([("x", 1, 0, True)], None, [], None)])
    store = DictStore()
    run_all(AsOfShard, plan(), [([("x", 10, 0, False)], 0, [("x", 1, 1, False)], 0)], store)
    with pytest.raises(CheckpointError, match="columns"):
        AsOfShard(0, plan(schemas=(TEXTS[0], TEXTS[1].remove(2))), store)


LEFT, RIGHT = TEXTS


def early_plan(how="left", tolerance=None, early=True):
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
    join, store, table, left, right = early_plan(how, tolerance), DictStore(), Table(), [], []
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
    waits, store, final = early_plan(how, tolerance, early=False), DictStore(), []
    for batch in batches:
        result, _ = run(waits, store, *batch, shard=AsOfShard)
        final += [] if result is None else split_punctuation(result)[0].to_pylist()
    assert table.held == pairs_of(final)


def test_a_row_that_is_final_is_not_given_again():
    join, store, table = early_plan("inner"), DictStore(), Table()
    rows = [("x", 10, 0, False)]
    assert len(table.apply(run(join, store, rows, None, [("x", 8, 0, False)], 10)[0])) == 1
    assert len(table.apply(run(join, store, [], None, [("x", 10, 1, False)], 11)[0])) == 1
    assert table.apply(run(join, store, [], None, [("x", 10, 2, False)], None)[0]) == []  # late, though it lies there


def test_all_pages_are_looked_at_when_twice_as_many_rows_wait_and_at_the_end_and_not_in_each_batch():
    join, store, read = early_plan(), DictStore(), set()
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
    run(early_plan(), store, [("x", 10, 0, False)], 0, [], 0)
    side = JoinSide(("k",), "t", LEFT.remove(2), ("k",))
    with pytest.raises(CheckpointError, match="columns"):
        EarlyAsOfShard(0, AsOfPlan(side, JoinSide(("k",), "t", RIGHT), "left", early=True), store)
