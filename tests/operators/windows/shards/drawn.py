"""Windows and batches of any kind, drawn by Hypothesis, and the plan that the tests' rows go through."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import strategies as st

from upstream.operators.aggregates.functions import count, sum_
from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows, Windows
from upstream.operators.windows.shards.plan import WindowPlan

from .windows_of import SCHEMA, Batch, Row

END = 60


def plan_of(windows: Any, emit: Any = "all", method: Any = "paned", **more: Any) -> WindowPlan:
    """A plan for the tests' rows."""
    aggregates = more.pop("aggregates", {"n": count(), "total": sum_("v")})
    given: dict[str, Any] = {"lateness_us": 0, "shards": 3, **more}
    return WindowPlan(("key",), "time", None, "UTC", windows, aggregates, emit, method, schema=SCHEMA, **given)


@st.composite
def any_windows(draw: st.DrawFn) -> Windows:
    """Sliding, tumbling, with gaps, landmark, by row."""
    length, origin = draw(st.integers(1, 12)), draw(st.integers(-3, 3))
    kind = draw(st.sampled_from(["sliding", "tumbling", "gaps", "landmark", "row"]))
    if kind == "row":
        return SlideByTupleWindows(length)
    if kind == "landmark":
        return LandmarkWindows(length, origin)
    slide = {
        "sliding": st.integers(1, length),
        "tumbling": st.just(length),
        "gaps": st.integers(length + 1, length + 4),
    }[kind]
    return SlidingWindows(length, draw(slide), origin)


@st.composite
def any_batches(draw: st.DrawFn) -> list[Batch]:
    """Rows in some disorder, in batches, with punctuation that is true; the last one says that all is there."""
    row = st.tuples(st.integers(0, 4), st.integers(-10, END - 10), st.integers(-5, 5))
    rows: list[Row] = draw(st.lists(row, max_size=40))
    slack = draw(st.integers(0, 20))
    delays = draw(st.lists(st.integers(0, slack), min_size=len(rows), max_size=len(rows)))
    rows = [each for _, each in sorted(zip([r[1] + d for r, d in zip(rows, delays, strict=True)], rows, strict=True))]
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    batches: list[Batch] = []
    for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        bound = min((each[1] for each in rows[high:]), default=END)
        batches.append((rows[low:high], draw(st.sampled_from([bound, None]))))
    return [*batches, ([], END)]


def everything(batches: list[Batch]) -> list[Row]:
    """All rows of all batches."""
    return [row for rows, _ in batches for row in rows]


def slides_by_rows(rows: list[Row], length: int, every: int) -> dict[tuple[int, int], tuple[int, int]]:
    """How many values, and their sum, in each window that every n-th of the rows opens; it has the time of its row."""
    by_key: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for key, time, value in rows:
        by_key[key].append((time, value))
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for key, mine in by_key.items():
        for end, _ in mine[every - 1 :: every]:
            values = [value for time, value in mine if end - length < time <= end]
            found[key, end] = len(values), sum(values)
    return found
