"""Windows and batches of any kind, drawn by Hypothesis, and the plan that the tests' rows go through."""

from collections import defaultdict
from typing import Any

from hypothesis import strategies as st

from upstream.operators.aggregates.functions import count, max_, sum_
from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows
from upstream.operators.windows.shards.plan import WindowPlan

from .windows_of import SCHEMA, Batch, Row, punctuation_table, rows_table

END = 60


def totals(differential):
    """Aggregates that can be retracted; or with one that cannot."""
    return {"n": count(), "total": sum_("v"), **({} if differential else {"top": max_("v")})}


def plan_of(windows, emit="all", method="paned", **more):
    """A plan for the tests' rows; windows that no method by window-id has are paned."""
    if method == "wid" and not isinstance(windows, SlidingWindows):
        method = "paned"
    aggregates = more.pop("aggregates", totals(True))
    given: dict[str, Any] = {"lateness_us": 0, "shards": 3, **more}
    return WindowPlan(("key",), "time", None, "UTC", windows, aggregates, emit, method, schema=SCHEMA, **given)


@st.composite
def any_windows(draw):
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
def any_batches(draw):
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


def told(batches, data):
    """The tables of each batch, and what its feed can truly promise of some keys."""
    for number, (rows, bound) in enumerate(batches):
        rest = everything(batches[number + 1 :])
        tables = [rows_table(rows, number + 1)]
        if bound is not None:
            tables.append(punctuation_table(bound, number + 1))
        keys = data.draw(st.lists(st.integers(0, 4), max_size=3))
        yield tables, [(key, min((row[1] for row in rest if row[0] == key), default=END)) for key in keys]


def promised(claims, number):
    """Promises of single keys."""
    return [punctuation_table(bound, number, key=key) for key, bound in claims]


@st.composite
def any_row_windows(draw, attribute):
    """Sliding, tumbling, with gaps, landmark: of rows."""
    length = draw(st.integers(1, 8))
    if draw(st.booleans()):
        return SlidingWindows(length, draw(st.integers(1, 10)), attribute=attribute)
    return LandmarkWindows(length, attribute=attribute)


SLIDING = any_windows().filter(lambda each: isinstance(each, SlidingWindows))
METHODS = st.sampled_from(["paned", "adaptive", "buffering"])
ANY_METHOD = st.sampled_from(["paned", "wid", "adaptive", "buffering"])
ROW_BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(-5, 5)), max_size=15), min_size=1, max_size=6
)
LATE = st.lists(st.tuples(st.integers(0, 4), st.integers(-10, 49), st.integers(-5, 5)), max_size=8)


def everything(batches):
    """All rows of all batches."""
    return [row for rows, _ in batches for row in rows]


def slides_by_rows(rows, length, every):
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
