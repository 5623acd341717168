"""Windows by other columns than the update key, against windows computed row by row."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.operators.windows.kinds import SlideByTupleWindows, SlidingWindows, Windows
from upstream.operators.windows.shards.plan import WindowPlan

from .drawn import END, any_batches, any_windows, everything, plan_of
from .windows_of import Batch, Run, in_windows, punctuation_table, rows_table


def by(plan: WindowPlan, *columns: str) -> WindowPlan:
    return dataclasses.replace(plan, key=columns, update_key=plan.key)


def results(run: Run, *columns: str) -> dict[Any, Any]:
    found = {(tuple(each[name] for name in columns), each["window_id"]): each["total"] for each in run.results}
    assert len(found) == len(run.results), "a window closes once"
    return found


@settings(max_examples=150, deadline=None)
@given(
    windows=any_windows().filter(lambda each: not isinstance(each, SlideByTupleWindows)),
    batches=any_batches(),
    method=st.sampled_from(["paned", "adaptive", "buffering"]),
    finer=st.booleans(),
    tasks=st.sampled_from([1, 2]),
)
def test_each_group_has_windows_of_its_own(
    windows: Windows, batches: list[Batch], method: str, finer: bool, tasks: int
) -> None:
    """Of finer groups than the key, and of groups across keys: by the value that the rows have."""
    columns = ("key", "v") if finer else ("v",)
    run = Run(by(plan_of(windows, method=method), *columns)).batches(batches, tasks)
    groups = sorted({(key, value) if finer else (value,) for key, _, value in everything(batches)})
    rows = [
        (groups.index((key, value) if finer else (value,)), time, value) for key, time, value in everything(batches)
    ]
    expected = {(groups[at], wid): sum(values) for (at, wid), values in in_windows(windows, rows, END).items()}
    assert results(run, *columns) == expected


def test_punctuation_of_one_update_key_closes_no_group() -> None:
    """It says nothing of the other keys in the group, and its feed has promised nothing for them."""
    for columns in (("v",), ("key", "v")):
        run = Run(by(plan_of(SlidingWindows(10, 10)), *columns))
        run.tables(rows_table([(1, 1, 7), (2, 2, 7)], 1), punctuation_table(50, 1, key=1))
        assert (run.results, run.reports[-1].bound) == ([], None)
        run.tables(punctuation_table(10, 2))
        assert sum(each["total"] for each in run.results) == 14
