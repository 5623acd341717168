"""Which windows are final, and which rows are late."""

import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import SchemaError
from upstream.core.rows.frames import split_punctuation, to_frame
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.operators.grouped.plan import WINDOW
from upstream.operators.grouped.window_shard import OpenWindows, WindowVersionShard, by_segment
from upstream.operators.runtime.feeds import ENDED
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlidingWindows

from .window_rows import SCHEMA, plan, rows, until


def pairs(table):
    return list(zip(table.column("t").to_pylist(), table.column(WINDOW).to_pylist(), strict=True))


def test_a_row_is_there_for_each_window_that_is_open():
    windows = OpenWindows(plan(SlidingWindows(10, 5)), {})
    assert pairs(windows.placed(rows(0, 5, 9))) == [(0, 0), (0, 1), (5, 1), (5, 2), (9, 1), (9, 2)]
    windows.hear(until(f=10))
    again = OpenWindows(plan(SlidingWindows(10, 5)), windows.to_json())
    assert pairs(again.placed(rows(4, 5, 9, 10))) == [(5, 2), (9, 2), (10, 2), (10, 3)]
    assert (again.late, again.missed.column("t").to_pylist()) == (3, [4, 5, 9])


def test_the_least_bound_of_all_inputs_counts_and_none_decreases():
    windows = OpenWindows(plan(SlidingWindows(5, 5)), {})
    assert windows.hear(until(f=20, g=7)).through == 0
    assert windows.hear(until(f=25)).through == 0
    assert windows.hear(until(g=4)) == (0, 0, False)
    assert windows.hear(until(g=ENDED)).through == 4
    assert windows.hear(until(f=ENDED)).ended


def test_punctuation_of_one_key_makes_no_window_final():
    windows = OpenWindows(plan(SlidingWindows(5, 5)), {})
    single = until(f=20).set_column(0, SCHEMA.field("k"), pa.array([1], pa.int64()))
    before = windows.final
    assert windows.hear(single) == (before, before, False)


def test_rows_between_windows_are_counted():
    windows = OpenWindows(plan(SlidingWindows(2, 5)), {})
    assert pairs(windows.placed(rows(2, 3, 4))) == [(3, 0), (4, 0)]
    assert (windows.outside, windows.late) == (1, 0)


def test_placed_rows_of_final_windows_are_counted():
    windows = OpenWindows(plan(SlidingWindows(5, 5)), {})
    placed = windows.placed(rows(1, 6))
    windows.hear(until(f=5))
    assert pairs(windows.still_open(placed)) == [(6, 1)]
    assert windows.late == 1


def test_segments_have_as_many_windows_as_a_row_is_in():
    asked = plan(SlidingWindows(10, 5))
    placed = OpenWindows(asked, {}).placed(rows(0, 5, 9))
    found = {segment: sorted(part.column(WINDOW).to_pylist()) for segment, part in by_segment(asked, placed)}
    assert found == {0: [0, 1, 1, 1], 1: [2, 2]}
    table = plan(SlidingWindows(10, 5), newest="table")
    assert [segment for segment, _ in by_segment(table, placed)] == [0]


PLAN = plan(SlidingWindows(10, 5))


def run(store, table, number=0):
    return WindowVersionShard(number, PLAN, store).run([to_frame(table)])


def test_the_first_shard_passes_punctuation_on_and_the_others_do_not():
    for number, passed in ((0, 1), (1, 0)):
        result, _ = run(DictStore(), pa.concat_tables([rows(4), until(f=3)]), number)
        assert split_punctuation(result)[1].num_rows == passed


def test_what_it_keeps_goes_with_the_windows():
    store = DictStore()
    result, report = run(store, pa.concat_tables([rows(4), until(f=5)]))
    assert (result.num_rows, report.left_kept) == (3, 2)  # windows 0 and 1 share pages
    _, report = run(store, until(f=10))
    assert (report.left_kept, {kind for kind, _ in store.values}) == (0, {"head"})


def test_rows_that_stand_for_others_are_refused():
    several = system_array(source="f", seq=np.arange(1), arrival_us=np.arange(1), covered=np.array([2]))
    with pytest.raises(SchemaError, match="before the window represents several"):
        run(DictStore(), rows(4).set_column(3, SYSTEM, several))
