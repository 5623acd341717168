"""Windows that every n-th row of a key opens, in the order of time; test_arrival_numbers has both orders."""

import copy
import dataclasses
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import SchemaError
from upstream.core.feedback.reports import NumberingReport
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlideByTupleWindows, SlidingWindows
from upstream.operators.windows.shards.plan import NUMBER, OPENS
from upstream.operators.windows.shards.row_numbers import KeyCounts, NumberingPlan, NumberingShard, numbering_pack

from .drawn import (
    ANY_METHOD,
    END,
    METHODS,
    ROW_BATCHES,
    any_batches,
    any_row_windows,
    everything,
    plan_of,
    slides_by_rows,
    totals,
)
from .windows_of import SCHEMA, Run, agree, marked, punctuation_table, rows_table


def test_a_late_row_has_no_number_and_counts_where_windows_are_open():
    run = Run(plan_of(SlideByTupleWindows(10, 2, "time"), shards=1))
    run.batches([([(1, 1, 1), (1, 2, 2), (1, 5, 4)], 6), ([(1, 3, 8), (1, 9, 16)], None), ([], END)])
    assert [(row["window_id"], row["total"]) for row in run.results] == [(2, 3), (9, 31)]
    assert [table.column("v").to_pylist() for table in run.late] == [[8]]


KEY = pa.schema([("key", pa.int64()), ("name", pa.string())])
BATCHES = st.lists(st.dictionaries(st.integers(0, 2500), st.integers(1, 9), max_size=30), max_size=6)


@given(batches=BATCHES, many=st.booleans())
def test_counts_add_up_over_batches_and_restarts(batches, many):
    store, saved, counted = DictStore(), {}, Counter[int]()
    for batch in [dict.fromkeys(range(2000), 1)] * many + batches:
        counts = KeyCounts(store, KEY, saved)
        keys = pa.table([list(batch), [str(key) for key in batch]], schema=KEY)
        before = counts.count(keys, np.array(list(batch.values()), dtype=np.int64))
        assert before.tolist() == [counted[key] for key in batch]
        counted.update(batch)
        saved = counts.to_json()
    assert saved.get("rows", 0) == len(counted)


@pytest.mark.parametrize("order", ["arrival", "time"])
@given(
    st.integers(1, 12),
    st.integers(2, 4),
    any_batches(),
    st.sampled_from(["all", "lazy"]),
    METHODS,
    st.sampled_from([1, 2]),
)
def test_every_nth_row_opens_a_window_whatever_the_batches(order, length, every, batches, emit, method, tasks):
    run = Run(plan_of(SlideByTupleWindows(length, every, order), emit, method))
    for batch in batches:
        again = copy.deepcopy(run)
        again.batches([batch], tasks)
        run.batches([batch], tasks)
        assert again.results == run.results, "a batch that is run again gives the same"
    rows = everything(batches)
    wanted = slides_by_rows(sorted(rows) if order == "time" else rows, length, every)
    got = {(row["key"], row["window_id"]): (row["n"], row["total"]) for row in run.results}
    assert len(got) == len(run.results), "a window closes once"
    assert all(OPENS not in row for row in run.results)
    agree(got, wanted, emit)


def test_a_window_ends_with_its_row_and_begins_after_its_range():
    run = Run(plan_of(SlideByTupleWindows(10, 2, "arrival"), shards=1))
    run.batches([([(1, 10, 1), (1, 20, 2), (1, 20, 4), (1, 20, 8), (1, 21, 16), (1, 11, 32)], 20), ([], 21)])
    assert [(row["batch"], row["window_id"], row["total"]) for row in run.results] == [(1, 11, 33), (2, 20, 46)]


def test_a_late_row_has_a_number_and_opens_no_window():
    run = Run(plan_of(SlideByTupleWindows(10, 2, "arrival"), shards=1))
    run.batches([([(1, 5, 1)], 6), ([(1, 3, 2)], None), ([(1, 7, 4), (1, 9, 8)], None), ([], END)])
    assert [(row["window_id"], row["total"]) for row in run.results] == [(9, 15)]
    assert [table.column("v").to_pylist() for table in run.late] == [[2]]
    assert run.late[0].column_names == ["key", "time", "v", SYSTEM], "as it came"


@pytest.mark.parametrize("order", ["arrival", "time"])
@pytest.mark.parametrize(("keys", "pages"), [(1, 1), (3000, 4)])
def test_a_batch_touches_the_pages_of_the_keys_whose_rows_it_counts(order, keys, pages):
    run = Run(plan_of(SlideByTupleWindows(5, 3, order), shards=1))
    for time in range(7):
        run.batches([([(key, time, 1) for key in range(keys)], time + 1)])
    assert sorted({row["window_id"] for row in run.results}) == [2, 5]
    assert len(run.results) == 2 * keys
    assert [kind for kind, _ in run.stores[0].values].count("numbers") == pages


NUMBERED = pa.schema([SCHEMA.field("key"), pa.field(NUMBER, pa.int64()), SCHEMA.field("v"), SCHEMA.field(SYSTEM)])


def numbered_plan(windows, emit="all", method="paned", **more):
    plan = plan_of(windows, emit, method, aggregates=totals(False), **more)
    return dataclasses.replace(plan, time=NUMBER, schema=NUMBERED)


class NumberedRun(Run):
    """Rows through the step that numbers them, then through the windows."""

    def __init__(self, plan):
        super().__init__(plan)
        self.numbering = DictStore()
        self.numbered: list[NumberingReport] = []

    def tables(self, *tables, tasks=1):
        plan = NumberingPlan(NUMBERED)
        whole = pa.concat_tables(tables).select(plan.needed)
        parts = [whole.take(pa.array(np.arange(task, whole.num_rows, tasks))) for task in range(tasks)]
        packing = numbering_pack(0)
        frames = [
            frame
            for part in reversed(parts)
            for packed in packing(iter(part.to_batches()))
            for frame in packed.column("frame").to_pylist()
        ]
        if not frames:  # then Spark calls nobody
            self._batch += 1
            return
        result, report = NumberingShard(0, plan, self.numbering).run(frames, batch_id=self._batch + 1)
        self.numbered.append(report)
        assert result is not None
        super().tables(result)


def held(windows, rows, wid):
    """The values of each key in a window."""
    low, high = (int(end) for end in windows.extent(wid))
    found: dict[int, list[int]] = {}
    for key, _, value in rows[max(low, 0) : high]:
        found.setdefault(key, []).append(value)
    return found


def expected(windows, rows):
    """What each key has in every window that has all of its rows."""
    return {
        (key, wid): (len(values), sum(values), max(values))
        for wid in range(len(rows))
        if int(windows.extent(wid)[1]) <= len(rows)
        for key, values in held(windows, rows, wid).items()
    }


@given(
    any_row_windows("row number"),
    ROW_BATCHES,
    st.sampled_from(["all", "lazy", "all+early"]),
    ANY_METHOD,
    st.sampled_from([1, 2, 3]),
)
def test_rows_of_all_keys_are_counted_whatever_the_batches_and_the_tasks(windows, batches, emit, method, tasks):
    run = NumberedRun(numbered_plan(windows, emit, method))
    for rows in batches:
        again = copy.deepcopy(run)
        again.batches([(rows, None)], tasks)
        run.batches([(rows, None)], tasks)
        assert again.results == run.results, "a batch that is run again gives the same"
    wanted = expected(windows, [row for batch in batches for row in batch])
    final = [row for row in run.results if row["final"]]
    got = {(row["key"], row["window_id"]): (row["n"], row["total"], row["top"]) for row in final}
    assert len(got) == len(final), "a window closes once"
    agree(got, wanted, emit)
    for row in run.results:
        if not row["final"]:
            come = [each for batch in batches[: row["batch"]] for each in batch]
            values = held(windows, come, row["window_id"])[row["key"]]
            assert int(windows.extent(row["window_id"])[1]) > len(come)
            assert (row["n"], row["total"], row["top"]) == (len(values), sum(values), max(values))
    assert run.late == []
    assert run.punctuation == [], "row numbers are no times to promise"
    assert all(report.needs is None and report.bound is None for report in run.reports), "no feed is waited for"


def test_early_results_are_those_of_keys_with_new_rows_in_the_open_window():
    run = NumberedRun(numbered_plan(SlidingWindows(4, 4, attribute="row number"), "all+early"))
    run.batches([([(1, 0, 1), (2, 0, 2)], None), ([(2, 0, 4)], None), ([(3, 0, 8), (1, 0, 16)], None)])
    got = [(r["batch"], r["key"], r["window_id"], r["final"], r["total"]) for r in run.results]
    assert sorted(got) == [
        (1, 1, 0, False, 1),
        (1, 2, 0, False, 2),
        (2, 2, 0, False, 6),
        (3, 1, 0, True, 1),
        (3, 1, 1, False, 16),
        (3, 2, 0, True, 6),
        (3, 3, 0, True, 8),
    ]


def test_row_numbers_are_the_ends():
    run = NumberedRun(numbered_plan(SlidingWindows(3, 2, attribute="row number")))
    run.batches([([(1, 9, 1), (2, 8, 2), (1, 7, 4), (1, 6, 8), (2, 5, 16)], None)])
    got = sorted((r["key"], r["window_start"], r["window_end"], r["window_time"], r["total"]) for r in run.results)
    assert got == [(1, -1, 2, 1, 1), (1, 1, 4, 3, 12), (2, -1, 2, 1, 2), (2, 1, 4, 3, 2)]


def test_feeds_are_numbered_together_in_the_order_of_arrival():
    run = NumberedRun(numbered_plan(SlidingWindows(1, 1, attribute="row number"), shards=1))
    later, sooner = rows_table([(1, 0, 1), (1, 0, 2)], 5, "a"), rows_table([(1, 0, 3)], 3, "b")
    run.tables(later, punctuation_table(4, 5, "a"), sooner)
    assert [(row["window_id"], row["total"]) for row in run.results] == [(0, 3), (1, 1), (2, 2)]
    assert [(report.rows, report.counted, report.now_us) for report in run.numbered] == [(3, 3, 5)]


def test_tombstones_have_no_number_if_they_are_dropped_and_else_end_the_query():
    rows = marked(rows_table([(1, at, at) for at in range(4)], 1), 1)
    run = NumberedRun(numbered_plan(SlidingWindows(3, 3, attribute="row number"), tombstones="drop"))
    run.tables(rows)
    assert [each["total"] for each in run.results] == [0 + 2 + 3]
    assert sum(report.tombstones for report in run.reports) == 1
    run.tables(marked(rows_table([(1, 0, 0)], 2), 0))
    assert run.numbered[-1].counted == 3, "a batch of tombstones numbers nothing"
    with pytest.raises(SchemaError, match="are tombstones"):
        NumberedRun(numbered_plan(SlidingWindows(3, 3, attribute="row number"))).tables(rows)


def test_a_plan_names_what_it_counts():
    plan = numbered_plan(SlidingWindows(3, 2, attribute="row number"))
    assert plan.identity()["time"] == "rows of the stream"
    assert plan.columns == ["key", NUMBER, "v", SYSTEM]
    assert NumberingPlan(NUMBERED).needed == ["key", "v", SYSTEM]
