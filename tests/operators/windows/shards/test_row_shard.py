"""Windows over the rows of each key, against a list of rows per key."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.aggregates.functions import count, max_, sum_
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows
from upstream.operators.windows.shards.plan import WindowPlan

from .windows_of import SCHEMA, Row, Run, latest_of, rows_table

RowWindows = SlidingWindows | LandmarkWindows


def plan_of(windows: RowWindows, emit: Any = "all", **more: Any) -> WindowPlan:
    """A plan for the tests' rows."""
    aggregates = {"n": count(), "total": sum_("v"), "top": max_("v")}
    given: dict[str, Any] = {"lateness_us": 0, "shards": 3, **more}
    return WindowPlan(("key",), None, None, "UTC", windows, aggregates, emit, "paned", schema=SCHEMA, **given)


@st.composite
def any_row_windows(draw: st.DrawFn) -> RowWindows:
    """Sliding, tumbling, with gaps, landmark."""
    length = draw(st.integers(1, 6))
    if draw(st.booleans()):
        return SlidingWindows(length, draw(st.integers(1, 8)), attribute="rank")
    return LandmarkWindows(length, attribute="rank")


ROW = st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(-5, 5))
BATCHES = st.lists(st.lists(ROW, max_size=15), min_size=1, max_size=6)


def expected(windows: RowWindows, rows: list[Row]) -> dict[tuple[int, int], list[int]]:
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


@settings(max_examples=150, deadline=None)
@given(windows=any_row_windows(), batches=BATCHES, emit=st.sampled_from(["all", "lazy", "all+early"]))
def test_rows_are_counted_by_key_whatever_the_batches(windows: RowWindows, batches: list[list[Row]], emit: str) -> None:
    """One answer for every split into batches; lazy gives the latest, early what has come of the open one."""
    run = Run(plan_of(windows, emit)).batches([(rows, None) for rows in batches])
    rows = [row for batch in batches for row in batch]
    wanted = {pair: (len(v), sum(v), max(v)) for pair, v in expected(windows, rows).items() if v}
    got = {(r["key"], r["window_id"]): (r["n"], r["total"], r["top"]) for r in run.results if r["final"]}
    if emit == "lazy":
        assert got.items() <= wanted.items()
        assert latest_of(got) == latest_of(wanted)
    else:
        assert got == wanted
    final = {(r["key"], r["window_id"]) for r in run.results if r["final"]}
    assert len(final) == len([r for r in run.results if r["final"]]), "a window closes once"
    for number, each in enumerate(batches, 1):
        come = [row for batch in batches[:number] for row in batch]
        for result in (r for r in run.results if r["batch"] == number and not r["final"]):
            mine = [value for key, _, value in come if key == result["key"]]
            low = max(int(windows.extent(result["window_id"])[0]), 0)
            assert (result["n"], result["total"]) == (len(mine[low:]), sum(mine[low:]))
            assert result["key"] in {row[0] for row in each}


def test_row_numbers_are_the_ends() -> None:
    """The last three rows, every two: the second window ends before row 4."""
    run = Run(plan_of(SlidingWindows(3, 2, attribute="rank"))).batches([([(1, at, at) for at in range(5)], None)])
    assert [(r["window_start"], r["window_end"], r["total"]) for r in run.results] == [(-1, 2, 1), (1, 4, 6)]


def test_tombstones_are_no_rows_if_they_are_dropped() -> None:
    """They have no number, and are counted."""
    rows = rows_table([(1, at, at) for at in range(4)], 1)
    field = SCHEMA.field(SYSTEM)
    marks = [{**mark, "deleted": at == 1} for at, mark in enumerate(rows.column(SYSTEM).to_pylist())]
    run = Run(plan_of(SlidingWindows(3, 3, attribute="rank"), tombstones="drop"))
    run.tables(rows.set_column(3, field, pa.array(marks, field.type)))
    assert [each["total"] for each in run.results] == [0 + 2 + 3]
    assert sum(report.tombstones for report in run.reports) == 1


def test_another_window_on_the_same_state_is_refused() -> None:
    """By name."""
    stores = Run(plan_of(SlidingWindows(3, 2, attribute="rank"))).batches([([(1, 1, 1)], None)]).stores
    with pytest.raises(CheckpointError, match=r"begun with another window"):
        Run(plan_of(SlidingWindows(4, 2, attribute="rank")), stores).batches([([(1, 1, 1)], None)])
