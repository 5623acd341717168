"""A join as of a time against each row compared with each other: every order, split, punctuation and deletion."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError, SchemaError, StateLimitError
from upstream.core.rows.split import split_punctuation
from upstream.operators.joins.as_of_plan import AsOfPlan
from upstream.operators.joins.as_of_shard import AsOfShard
from upstream.operators.joins.plan import JoinSide
from upstream.operators.runtime.store import DictStore

from .as_of_rows import LEFT, RIGHT, expected, frame, streams


def plan(how="left", tolerance=None, left=LEFT, right=RIGHT, **limit):
    return AsOfPlan(JoinSide(("k",), "t", left), JoinSide(("k",), "t", right), how, tolerance, **limit)


def run_all(join, batches, store=None):
    store = store or DictStore()
    found, promises, reports = [], [], []
    for left, left_bound, right, right_bound in batches:
        frames = (
            frame(join.left.schema, left, left_bound, "left/f"),
            frame(join.right.schema, right, right_bound, "right/f"),
        )
        result, report = AsOfShard(0, join, store).run(*frames)
        rows, punctuation = split_punctuation(join.schema.empty_table() if result is None else result)
        found.append([(row["a"], row["b"]) for row in rows.to_pylist()])
        promises.append(punctuation.column("t").to_pylist()[0] if punctuation.num_rows else None)
        reports.append(report)
    return found, promises, reports


@given(streams(), st.sampled_from(["inner", "left"]), st.none() | st.integers(0, 6))
def test_the_partner_is_the_newest_row_at_the_time(case, how, tolerance):
    (left, right), batches = case
    store = DictStore()
    found, promises, reports = run_all(plan(how, tolerance), batches, store)
    assert sorted((pair for pairs in found for pair in pairs), key=str) == expected(left, right, how, tolerance)
    promised = -(1 << 62)
    for pairs, promise in zip(found, promises, strict=True):
        assert all(left[one][1] >= promised for one, _ in pairs)
        promised = promised if promise is None else max(promised, promise)
    assert reports[-1].left_kept == 0
    assert reports[-1].results == len([pair for pairs in found for pair in pairs])


@given(streams(), st.sampled_from(["inner", "left"]), st.none() | st.integers(0, 6), st.integers(2000, 9000))
def test_dropping_rows_leaves_results_out_and_makes_none_up(case, how, tolerance, limit):
    (left, right), batches = case
    join = plan(how, tolerance, state_limit=limit, on_limit="drop_oldest")
    store = DictStore()
    found, _, reports = run_all(join, batches, store)
    pairs = [pair for pairs in found for pair in pairs]
    whole = expected(left, right, how, tolerance)
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) <= set(whole)
    last = reports[-1]
    if not last.left_shed and not last.right_shed:
        assert sorted(pairs, key=str) == whole
        assert last.left_unsure == 0
    # Each row of the left is in a result, or counted.
    alone = last.unmatched if how == "inner" else 0
    assert len(pairs) + last.left_shed + last.left_unsure + alone == len(left)
    assert run_all(join, batches)[0] == found
    kept = sum(len(value) for (kind, _), value in store.values.items() if kind != "head")
    assert kept <= limit


def test_a_row_is_unsure_if_its_partner_may_have_been_dropped():
    rows = [("x", at, at, False) for at in range(400)]
    for tolerance, unsure in ((None, True), (10, False)):
        join = plan(tolerance=tolerance, state_limit=20_000, on_limit="drop_oldest")
        store = DictStore()
        _, _, (report,) = run_all(join, [([], None, [(f"k{at}", at, at, False) for at in range(400)], None)], store)
        assert 100 < report.right_shed < 400
        # A row of a key that was dropped, an older row of such a key, and a row of a key that is still there.
        found, _, (report,) = run_all(
            join, [([("k1", 500, 1, False), ("k399", 405, 2, False)], None, [("k1", 0, 7, False)], 600)], store
        )
        assert sorted(found[0]) == ([(2, 399)] if unsure else [(1, None), (2, 399)])
        assert report.left_unsure == (1 if unsure else 0)
        assert report.right_kept < 400
    store = DictStore()
    run_all(plan(), [(rows, None, [], None)], store)  # a limit may come later
    with pytest.raises(StateLimitError, match="state_limit=4000 among 1 shards"):
        run_all(plan(state_limit=4000), [([], None, [], 2)], store)
    _, _, (report,) = run_all(plan(state_limit=20_000, on_limit="drop_oldest"), [([], None, [], 2)], store)
    assert 0 < report.left_kept < 398
    assert report.left_shed + report.left_kept == 398


def test_a_row_waits_until_the_right_can_have_no_row_at_its_time():
    found, promises, reports = run_all(
        plan(),
        [
            ([("x", 10, 0, False)], 20, [("x", 8, 0, False)], 10),
            ([], None, [("x", 10, 1, False)], None),
            ([], None, [], 11),
        ],
    )
    assert found == [[], [], [(0, 1)]]
    assert promises == [10, None, 11]
    assert [report.needs for report in reports] == [11, 11, None]


def test_a_row_that_was_given_is_not_given_again_when_others_of_its_batch_are():
    found, _, reports = run_all(
        plan(), [([("x", 9, 0, False), ("x", 10, 1, False)], 20, [], None), ([], None, [], 10), ([], None, [], 11)]
    )
    assert found == [[], [(0, None)], [(1, None)]]
    assert [report.needs for report in reports] == [10, 11, None]


def test_of_the_right_only_what_a_later_row_may_need_is_kept():
    rows = [("x", time, time, False) for time in range(10)]
    _, _, reports = run_all(plan(), [([], 5, rows, 20), ([], 9, [("x", 9, 90, False)], None)])
    # Those at 5 to 9: one at 5 is newest at 5. Then two at 9, of which the later counts.
    assert [report.right_kept for report in reports] == [5, 1]
    _, _, reports = run_all(plan(tolerance=2), [([], 5, rows, 20), ([], 30, [("x", 9, 90, False)], None)])
    assert [report.right_kept for report in reports] == [5, 0]


def test_a_deletion_is_kept_as_long_as_an_older_row_may_come():
    gone = ("x", 4, 1, True)
    _, _, reports = run_all(plan(), [([], 9, [gone], 4), ([], None, [("x", 4, 0, False)], 5)])
    assert reports[0].right_kept == 1
    older = ([("x", 9, 0, False)], None, [("x", 3, 2, False)], 10)
    found, _, _ = run_all(plan(), [([], 9, [("x", 2, 0, False), gone], 3), older])
    assert found[-1] == [(0, None)]
    _, _, reports = run_all(plan(), [([], 9, [gone], 5)])
    assert reports[0].right_kept == 0


def test_what_it_cannot_use_is_refused():
    with pytest.raises(SchemaError, match="tombstones"):
        run_all(plan(), [([("x", 1, 0, True)], None, [], None)])
    store = DictStore()
    run_all(plan(), [([("x", 10, 0, False)], 0, [("x", 1, 1, False)], 0)], store)
    for other in (plan("inner"), plan(tolerance=3)):
        with pytest.raises(CheckpointError):
            AsOfShard(0, other, store)
    fewer = pa.schema([field for field in RIGHT if field.name != "b"])
    with pytest.raises(CheckpointError, match="rows of the right with other columns"):
        AsOfShard(0, plan(right=fewer), store)
