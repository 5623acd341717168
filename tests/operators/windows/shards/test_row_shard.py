"""Windows over the rows of each key, against a list of rows per key."""

import dataclasses
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.windows.kinds import SlidingWindows

from .drawn import ROW_BATCHES, any_row_windows, totals
from .drawn import plan_of as by_time
from .windows_of import Run, agree, marked, rows_table


def plan_of(windows, emit="all", **more):
    return dataclasses.replace(by_time(windows, emit, aggregates=totals(False), **more), time=None)


def expected(windows, rows):
    """The values in every window that has all of its rows."""
    values: dict[int, list[int]] = defaultdict(list)
    for key, _, value in rows:
        values[key].append(value)
    found: dict[tuple[int, int], list[int]] = {}
    for key, mine in values.items():
        for wid in range(int(windows.last_complete(len(mine))) + 1):
            low, high = (int(end) for end in windows.extent(wid))
            found[key, wid] = mine[max(low, 0) : high]
    return found


@given(windows=any_row_windows("rank"), batches=ROW_BATCHES, emit=st.sampled_from(["all", "lazy", "all+early"]))
def test_rows_are_counted_by_key_whatever_the_batches(windows, batches, emit):
    run = Run(plan_of(windows, emit)).batches([(rows, None) for rows in batches])
    rows = [row for batch in batches for row in batch]
    wanted = {pair: (len(v), sum(v), max(v)) for pair, v in expected(windows, rows).items() if v}
    final = [row for row in run.results if row["final"]]
    got = {(row["key"], row["window_id"]): (row["n"], row["total"], row["top"]) for row in final}
    agree(got, wanted, emit)
    assert len(got) == len(final), "a window closes once"
    for number, each in enumerate(batches, 1):
        come = [row for batch in batches[:number] for row in batch]
        for result in (row for row in run.results if row["batch"] == number and not row["final"]):
            mine = [value for key, _, value in come if key == result["key"]]
            low = max(int(windows.extent(result["window_id"])[0]), 0)
            assert (result["n"], result["total"]) == (len(mine[low:]), sum(mine[low:]))
            assert result["key"] in {row[0] for row in each}


def test_row_numbers_are_the_ends():
    run = Run(plan_of(SlidingWindows(3, 2, attribute="rank"))).batches([([(1, at, at) for at in range(5)], None)])
    assert [(r["window_start"], r["window_end"], r["total"]) for r in run.results] == [(-1, 2, 1), (1, 4, 6)]


def test_tombstones_are_no_rows_if_they_are_dropped():
    run = Run(plan_of(SlidingWindows(3, 3, attribute="rank"), tombstones="drop"))
    run.tables(marked(rows_table([(1, at, at) for at in range(4)], 1), 1))
    assert [each["total"] for each in run.results] == [0 + 2 + 3]
    assert sum(report.tombstones for report in run.reports) == 1
