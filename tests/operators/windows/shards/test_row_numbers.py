"""Windows that every n-th row of a key opens, in the order of time; test_arrival_numbers has both orders."""

from upstream.operators.windows.kinds import SlideByTupleWindows

from .drawn import END, plan_of
from .windows_of import Run


def test_a_late_row_has_no_number_and_counts_where_windows_are_open():
    run = Run(plan_of(SlideByTupleWindows(10, 2, "time"), shards=1))
    run.batches([([(1, 1, 1), (1, 2, 2), (1, 5, 4)], 6), ([(1, 3, 8), (1, 9, 16)], None), ([], END)])
    assert [(row["window_id"], row["total"]) for row in run.results] == [(2, 3), (9, 31)]
    assert [table.column("v").to_pylist() for table in run.late] == [[8]]
