"""Windows over the rows of the whole stream, by the number that each gets as it arrives, against one list of rows."""

import copy
import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import SchemaError
from upstream.core.feedback.reports import NumberingReport
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlidingWindows
from upstream.operators.windows.shards.plan import NUMBER
from upstream.operators.windows.shards.row_numbers import NumberingPlan, NumberingShard, numbering_pack

from .drawn import ANY_METHOD, ROW_BATCHES, any_row_windows, totals
from .drawn import plan_of as of_rows
from .windows_of import SCHEMA, Run, agree, marked, punctuation_table, rows_table

NUMBERED = pa.schema([SCHEMA.field("key"), pa.field(NUMBER, pa.int64()), SCHEMA.field("v"), SCHEMA.field(SYSTEM)])


def plan_of(windows, emit="all", method="paned", **more):
    plan = of_rows(windows, emit, method, aggregates=totals(False), **more)
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
    run = NumberedRun(plan_of(windows, emit, method))
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
    run = NumberedRun(plan_of(SlidingWindows(4, 4, attribute="row number"), "all+early"))
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
    run = NumberedRun(plan_of(SlidingWindows(3, 2, attribute="row number")))
    run.batches([([(1, 9, 1), (2, 8, 2), (1, 7, 4), (1, 6, 8), (2, 5, 16)], None)])
    got = sorted((r["key"], r["window_start"], r["window_end"], r["window_time"], r["total"]) for r in run.results)
    assert got == [(1, -1, 2, 1, 1), (1, 1, 4, 3, 12), (2, -1, 2, 1, 2), (2, 1, 4, 3, 2)]


def test_feeds_are_numbered_together_in_the_order_of_arrival():
    run = NumberedRun(plan_of(SlidingWindows(1, 1, attribute="row number"), shards=1))
    later, sooner = rows_table([(1, 0, 1), (1, 0, 2)], 5, "a"), rows_table([(1, 0, 3)], 3, "b")
    run.tables(later, punctuation_table(4, 5, "a"), sooner)
    assert [(row["window_id"], row["total"]) for row in run.results] == [(0, 3), (1, 1), (2, 2)]
    assert [(report.rows, report.counted, report.now_us) for report in run.numbered] == [(3, 3, 5)]


def test_tombstones_have_no_number_if_they_are_dropped_and_else_end_the_query():
    rows = marked(rows_table([(1, at, at) for at in range(4)], 1), 1)
    run = NumberedRun(plan_of(SlidingWindows(3, 3, attribute="row number"), tombstones="drop"))
    run.tables(rows)
    assert [each["total"] for each in run.results] == [0 + 2 + 3]
    assert sum(report.tombstones for report in run.reports) == 1
    run.tables(marked(rows_table([(1, 0, 0)], 2), 0))
    assert run.numbered[-1].counted == 3, "a batch of tombstones numbers nothing"
    with pytest.raises(SchemaError, match="are tombstones"):
        NumberedRun(plan_of(SlidingWindows(3, 3, attribute="row number"))).tables(rows)


def test_a_plan_names_what_it_counts():
    plan = plan_of(SlidingWindows(3, 2, attribute="row number"))
    assert plan.identity()["time"] == "rows of the stream"
    assert plan.columns == ["key", NUMBER, "v", SYSTEM]
    assert NumberingPlan(NUMBERED).needed == ["key", "v", SYSTEM]
