"""Which plans slices can evaluate, and which of them share."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from upstream.queries.deltas.lowering import identity
from upstream.queries.deltas.slices_shape import family_key, is_family, narrowest, shape_of, width_among
from upstream.queries.relations.nodes import (
    Aggregate,
    Aggregation,
    Hop,
    Project,
    Range,
    Rows,
    SetOperation,
    Where,
    Windowed,
)

from .checking import LONG, TEXT, S, call, column, constant

N, SUM = Aggregation("n", "count", (), LONG), Aggregation("s", "sum", (column("v"),), LONG)
BY = (("g", column("k", TEXT)),)


def over(window, *aggregates, by=BY):
    return Aggregate(Windowed(S, window), by, aggregates or (N,))


def test_conditions_and_projections_are_in_terms_of_the_stream():
    source = Where(Windowed(S, Range(4, 2)), call("gt", column("v"), constant(1)))
    source = Project(source, (("k", call("add", column("v"), constant(1), kind=LONG)), ("z", column("k", TEXT))))
    source = Where(source, call("lt", column("k"), constant(9)))
    shape = shape_of(
        Aggregate(
            source, (("a", column("z", TEXT)), ("b", column("z", TEXT))), (replace(SUM, arguments=(column("k"),)),)
        )
    )
    more = call("add", column("v"), constant(1), kind=LONG)
    assert shape.conditions == (call("gt", column("v"), constant(1)), call("lt", more, constant(9)))
    assert shape.by == (column("k", TEXT),)
    assert shape.names == (("a", 0), ("b", 0))
    assert shape.aggregates[0].arguments == (more,)


@pytest.mark.parametrize(
    ("plan", "width", "shift"),
    [
        (over(Range(6, 4)), 2, 0),
        (over(Hop(6, 3)), 3, 1),
        (over(Range(4, 4), N, SUM), 4, 0),
        (over(Range(4)), None, 0),
        (over(Range(3, 4)), None, 0),
        (over(Rows(3)), None, 0),
        (over(Hop(4, 4, True)), None, 0),
        (over(Range(4, 4), replace(SUM, distinct=True)), None, 0),
        (over(Range(4, 4), replace(SUM, function="approx_count_distinct")), None, 0),
        (over(Range(4, 4), N, replace(SUM, function="collect_list", type=pa.list_(LONG))), None, 0),
        (Windowed(S, Range(4, 4)), None, 0),
    ],
)
def test_shapes(plan, width, shift):
    shape = shape_of(plan)
    assert (None if shape is None else shape.width) == width
    assert shape is None or shape.shift_us == shift


def test_over_what_is_given_there_is_no_window():
    plan = over(Range(4, 4))
    assert shape_of(plan, [plan.source]) is None
    filtered = Where(plan.source, call("gt", column("v"), constant(1)))
    assert shape_of(replace(plan, source=filtered), [filtered]) is None


def test_equal_rows_and_groups_are_one_family():
    def key(plan):
        return family_key(shape_of(plan), identity)

    other = (("h", call("mod", column("v"), constant(2), kind=LONG)), ("x", column("k", TEXT)))
    assert is_family(key(over(Range(4, 4))))
    assert not is_family(identity(over(Range(4, 4))))
    assert key(over(Range(4, 4))) == key(over(Range(6, 2), SUM, by=(("other", column("k", TEXT)),)))
    assert key(over(Range(4, 4), by=other)) == key(over(Range(4, 4), by=other[::-1]))
    assert key(over(Range(4, 4))) != key(over(Hop(4, 4)))
    assert key(over(Range(4, 4))) != key(over(Range(4, 4), by=()))
    where = Where(Windowed(S, Range(4, 4)), call("gt", column("v"), constant(1)))
    assert key(Aggregate(where, BY, (N,))) != key(over(Range(4, 4)))


def test_the_widest_slices_that_fit_are_taken():
    there = ["f-slices-4", "f-slices-6", "f-slices-24", "f-slices-5", "g-slices-12"]
    assert width_among("f-slices-", shape_of(over(Range(12, 12))), there) == 6
    assert width_among("f-slices-", shape_of(over(Range(7, 7))), ["f-slices-4"]) == 7


def test_slices_that_are_much_too_narrow_are_not_taken():
    assert width_among("f-slices-", shape_of(over(Range(2048, 2048))), ["f-slices-2"]) == 2
    assert width_among("f-slices-", shape_of(over(Range(2050, 2050))), ["f-slices-2"]) == 2050
    assert width_among("f-slices-", shape_of(over(Range(2050, 2))), ["f-slices-2"]) == 2


def test_the_narrowest_of_a_plan_counts():
    joined = SetOperation(over(Range(12, 4)), over(Range(9, 3)), "union", all=True)
    assert [narrowest(each) for each in (joined, over(Range(12, 4)), over(Range(4)), Windowed(S, Range(4, 2)))] == [
        3,
        4,
        0,
        0,
    ]
