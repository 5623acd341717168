"""Change points of windows over slices: where a row enters, and where it leaves."""

import numpy as np
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.aggregates.algebra import Aggregates
from upstream.operators.aggregates.functions import count
from upstream.operators.relations.slices_points import last_multiple, points_of, window_at
from upstream.operators.relations.slices_table import Partials, SliceTable
from upstream.operators.relations.zsets import BEGINNING, OLD, Span

ALL = Aggregates.of({"n": count()}, pa.schema([]))


def table_of(slices):
    table = SliceTable.empty(ALL, pl.DataFrame(schema={"k": pl.String}))
    if not slices:
        return table
    state = ALL.lift(pa.table({"": pa.nulls(len(slices))}), np.arange(len(slices)), len(slices))
    keys = pl.DataFrame({"k": [key for key, _ in slices]}, schema={"k": pl.String})
    return table.with_more([Partials(keys, np.array([number for _, number in slices], dtype=np.int64), state)])


def test_the_last_multiple_is_below():
    assert [last_multiple(until, 4) for until in (4, 5, 8, 9, 0, -4)] == [0, 4, 4, 8, -4, -8]
    assert last_multiple(LOWEST, 4) == LOWEST


@given(
    slices=st.lists(st.tuples(st.sampled_from("ab"), st.integers(-4, 8)), max_size=8),
    window=st.sampled_from([(4, 2), (2, 2), (6, 4), (12, 4), (6, 6)]),
    before=st.one_of(st.just(LOWEST), st.integers(-8, 20)),
    more=st.one_of(st.none(), st.integers(0, 20)),
    above=st.one_of(st.just(LOWEST), st.integers(-6, 12)),
    begins=st.booleans(),
)
def test_points_are_where_slices_enter_and_leave(slices, window, before, more, above, begins):
    """Windows have no slice that is left out, but all points."""
    range_us, slide = window
    first = before == LOWEST
    until = HIGHEST if more is None else (0 if first else before) + more
    span = Span(before, until, BEGINNING if first else before - 1)
    table = table_of(slices)
    points = points_of(table, 2, range_us, slide, span, above, begins=begins or first, always=False)
    raised = lambda time: -(-time // slide) * slide  # noqa: E731
    lower = -10_000 if first else before
    expected = {}
    for key, number in slices:
        enters, leaves = raised(number * 2), raised(number * 2 + range_us)
        times = {each for each in (enters, leaves) if lower <= each < until}
        if begins and not first and enters < before <= leaves:
            times.add(before - 1)
        if times:
            expected.setdefault(key, set()).update(times)
    found = {}
    if points is not None:
        for group, time, low, high in zip(points.groups, points.times, points.low, points.high, strict=True):
            key = table.keys["k"][int(group)]
            found.setdefault(key, []).append(int(time))
            end = (before - 1 if time == OLD else int(time)) // slide * slide
            inside = sorted({n for k, n in slices if k == key and end - range_us < n * 2 <= end and n > above})
            if time == OLD and (begins or first):
                inside = []
            assert table.slices[low:high].tolist() == inside
    assert {key: times[1:] for key, times in found.items()} == {key: sorted(times) for key, times in expected.items()}
    assert all(times[0] == OLD for times in found.values())


def test_the_window_at_a_time_has_its_groups():
    table = table_of([("a", 1), ("b", 2), ("a", 3)])
    points = window_at(table, 2, 4, 6, LOWEST)
    assert points.groups.tolist() == [0, 1]
    assert (points.high - points.low).tolist() == [1, 1]
    assert window_at(table, 2, 4, 6, 1).groups.tolist() == [0, 1]
    assert window_at(table, 2, 4, 6, 2).groups.tolist() == [0]
    assert window_at(table, 2, 6, 6, 1).low.tolist() == [1, 2], "a has slice 3 alone"
