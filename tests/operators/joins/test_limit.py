"""The limit of a join's state: what goes, what is counted, and that no result is wrong."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.join_pairs import expected

from upstream.conf.errors import StateLimitError
from upstream.core.pushdown.ipc_frames import to_frame
from upstream.core.rows.sort_keys import in_order
from upstream.core.rows.split import split_punctuation
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.core.watermark.bounds import times_of_bounds
from upstream.operators.joins.band import IntervalBand
from upstream.operators.joins.limit import cut_time
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.shard import JoinShard
from upstream.operators.runtime.feeds import ENDED, punctuation_rows
from upstream.operators.runtime.store import DictStore

SIDES = tuple(
    JoinSide(
        ("k",),
        "t",
        pa.schema([("k", pa.int64()), ("t", pa.int64()), (name, pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]),
    )
    for name in "ab"
)
BAND = IntervalBand(6, 6)


def plan(how="inner", limit=None, on_limit="drop_oldest", **changes):
    return JoinPlan(*SIDES, changes.pop("band", BAND), how=how, state_limit=limit, on_limit=on_limit, **changes)


def frame(side, rows, bound):
    numbers = np.array([row[2] for row in rows], dtype=np.int64)
    columns = [pa.array([row[at] for row in rows], pa.int64()) for at in range(3)]
    system = system_array(source="f", seq=numbers, arrival_us=numbers)
    table = pa.table([*columns, system], schema=side.schema)
    if bound is not None:
        at = times_of_bounds([bound], pa.int64(), lambda one: in_order(one, pa.int64()))
        table = pa.concat_tables([table, punctuation_rows(table.schema, ["f"], 0, t=at)])
    return [to_frame(table)] if table.num_rows else []


def run_all(join, batches, store):
    """Pairs and reports of each batch; each is run by a shard that has just read its state."""
    found, reports = [], []
    for number, (left, left_bound, right, right_bound) in enumerate(batches):
        result, report = JoinShard(0, join, store).run(
            frame(join.left, left, left_bound), frame(join.right, right, right_bound), number
        )
        rows = [] if result is None else split_punctuation(result)[0].to_pylist()
        found.append([tuple(-1 if row.get(name) is None else row[name] for name in "ab") for row in rows])
        reports.append(report)
    return found, reports


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


@st.composite
def streams(draw):
    both = [
        [(draw(st.integers(1, 2)), draw(st.integers(-12, 24)), number) for number in range(draw(st.integers(0, 14)))]
        for _ in range(2)
    ]
    count = draw(st.integers(1, 5))
    places = [[draw(st.integers(0, count - 1)) for _ in rows] for rows in both]
    batches = []
    for batch in range(count):
        cells = []
        for rows, place in zip(both, places, strict=True):
            later = [row[1] for row, at in zip(rows, place, strict=True) if at > batch]
            bound = draw(st.none() | st.integers(-14, min(later, default=30)))
            cells += [
                [row for row, at in zip(rows, place, strict=True) if at == batch],
                ENDED if batch == count - 1 else bound,
            ]
        batches.append(tuple(cells))
    return both, batches


@given(
    streams(), st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]), st.sampled_from([4000, 6000, 9000])
)
def test_dropping_rows_leaves_results_out_and_makes_none_up(case, how, limit):
    (left, right), batches = case
    store = DictStore()
    found, reports = run_all(plan(how, limit), batches, store)
    given_rows = sorted(pair for pairs in found for pair in pairs)
    whole = expected(left, right, lambda one, two: -6 <= two[1] - one[1] <= 6, how)
    assert len(set(given_rows)) == len(given_rows)
    assert set(given_rows) <= set(whole)
    last = reports[-1]
    if not last.left_shed and not last.right_shed:
        assert given_rows == whole
        assert last.left_unsure == last.right_unsure == 0
    # Each row of an outer join is in a result, or counted.
    if how == "full":
        for name, rows, at in (("left", left, 0), ("right", right, 1)):
            absent = len(rows) - len({pair[at] for pair in given_rows if pair[at] >= 0})
            assert absent <= getattr(last, f"{name}_shed") + getattr(last, f"{name}_unsure")
    assert run_all(plan(how, limit), batches, DictStore())[0] == found


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
        _, (report,) = run_all(join, [batch], store)
        assert kept_bytes(store) <= 100_000
        assert report.left_kept > 0
    assert report.left_kept + report.left_shed == 6000
    assert report.right_kept + report.right_shed == 6000
    shard = JoinShard(0, join, store)
    for kept in shard._kept:
        assert min(kept.times()) == 6000 - report.left_kept >= kept.shed_to - 1
    # The counts are those of whole parts of time where a part is small.
    _, (report,) = run_all(plan("full", 100_000, band=IntervalBand(100, 100)), [many(1, 3000)[0]], DictStore())
    assert report.left_shed % 50 == 0
    assert report.left_shed > 0


def test_a_row_that_may_have_had_a_partner_is_not_given_as_one_without():
    store = DictStore()
    rows = [(key, 10, key) for key in range(200)]
    found, reports = run_all(plan("left", 6000), [([], 0, rows, 0)], store)
    assert reports[0].right_shed > 0
    late = [([(1, 10, 1), (1, 17, 2), (1, 16, 3)], 0, [], 0), ([], ENDED, [], ENDED)]
    found, reports = run_all(plan("left", 6000), late, store)
    assert found == [[], [(2, -1)]]  # 17 meets nothing before 11: no row of that time was dropped
    assert reports[-1].left_unsure == 2


def test_a_shard_over_its_part_of_the_limit_fails_and_goes_on_with_a_higher_one():
    store = DictStore()
    join = plan("inner", 40_000, "fail", shards=4)
    batches = many(4, 30)
    run_all(join, batches[:1], store)
    with pytest.raises(StateLimitError, match=r"keeps [0-9,]+ bytes.*at most 10,000.*state_limit=40000 among 4 shards"):
        run_all(plan("inner", 40_000, "fail", band=IntervalBand(999, 999), shards=4), batches, DictStore())
    before = dict(store.values)
    with pytest.raises(StateLimitError):
        run_all(plan("inner", 4_000, "fail", shards=4), batches[:1], store)
    store.values = before  # as Spark does with a task that fails
    _, reports = run_all(plan("inner", None, shards=4), batches[1:2], store)
    assert reports[0].left_rows == 60
    assert reports[0].left_shed == 0
    assert plan("inner", 40_000).identity() == plan().identity()
    assert plan("inner", 40_000).changeable() == {"state limit": "40,000 bytes, then drop_oldest"}


def test_rows_that_only_wait_for_their_part_of_time_go_before_any_is_dropped():
    store = DictStore()
    band = IntervalBand(4000, 4000)
    rows = [(key, key, key) for key in range(300)]
    join = plan("inner", None, band=band)
    run_all(join, [(rows, None, [], None)], store)
    size = kept_bytes(store)
    found, reports = run_all(plan("inner", size - 2000, "fail", band=band), [([], None, [], 4200)], store)
    assert (found, reports[0].left_kept) == ([[]], 100)
    assert kept_bytes(store) < size // 2


def test_sizes_are_known_before_there_is_a_limit():
    store = DictStore()
    run_all(plan(), [([(1, 10, 0)], 0, [], 0)], store)
    head = json.loads(store.get("head", 0))
    assert head["left"]["rows"][0][-1] == len(store.get("left", 0))
