"""Which plans slices can evaluate, and which of them share."""

from dataclasses import replace

import pyarrow as pa
import pytest

from upstream.operators.relations.plan import nodes
from upstream.operators.relations.plan.identity import identity
from upstream.operators.relations.slice_plan import family_key, is_family, narrowest, shape_of, width_among

from .checking import LARGE, LONG, TEXT, K, N, S, V, call, column, constant

LISTS = column("l", pa.list_(LONG))
SUM = nodes.Aggregation("s", "sum", (V,), LONG)
BY = (("g", K),)
ADDED, MODULO = call("add", V, constant(1), kind=LONG), call("mod", V, constant(2), kind=LONG)


def over(window, *aggregates, by=BY):
    return nodes.Aggregate(nodes.WindowOver(S, window), by, aggregates or (N,))


def test_conditions_and_projections_are_in_terms_of_the_stream():
    source = nodes.Project(nodes.Where(nodes.WindowOver(S, nodes.TimeRange(4, 2)), LARGE), (("k", ADDED), ("z", K)))
    source = nodes.Where(source, call("lt", column("k"), constant(9)))
    by = (("a", column("z", TEXT)), ("b", column("z", TEXT)))
    shape = shape_of(nodes.Aggregate(source, by, (replace(SUM, arguments=(column("k"),)),)))
    assert shape.conditions == (LARGE, call("lt", ADDED, constant(9)))
    assert shape.by == (K,)
    assert shape.names == (("a", 0), ("b", 0))
    assert shape.aggregates[0].arguments == (ADDED,)


@pytest.mark.parametrize(
    ("plan", "width", "shift"),
    [
        (over(nodes.TimeRange(6, 4)), 2, 0),
        (over(nodes.Hop(6, 3)), 3, 1),
        (over(nodes.TimeRange(4, 4), N, SUM), 4, 0),
        (over(nodes.TimeRange(4)), None, 0),
        (over(nodes.TimeRange(3, 4)), None, 0),
        (over(nodes.RowWindow(3)), None, 0),
        (over(nodes.Hop(4, 4, True)), None, 0),
        (over(nodes.TimeRange(4, 4), replace(SUM, distinct=True)), None, 0),
        (over(nodes.TimeRange(4, 4), replace(SUM, function="approx_count_distinct")), 4, 0),
        (over(nodes.TimeRange(4, 4), replace(SUM, function="approx_count_distinct", arguments=(LISTS,))), None, 0),
        (over(nodes.TimeRange(4, 4), N, replace(SUM, function="collect_list", type=pa.list_(LONG))), None, 0),
        (nodes.WindowOver(S, nodes.TimeRange(4, 4)), None, 0),
    ],
)
def test_shapes(plan, width, shift):
    shape = shape_of(plan)
    assert (None if shape is None else shape.width) == width
    assert shape is None or shape.shift_us == shift


def test_over_what_is_given_there_is_no_window():
    plan = over(nodes.TimeRange(4, 4))
    assert shape_of(plan, [plan.source]) is None
    filtered = nodes.Where(plan.source, LARGE)
    assert shape_of(replace(plan, source=filtered), [filtered]) is None


def test_equal_rows_and_groups_are_one_family():
    def key(plan):
        return family_key(shape_of(plan))

    other = (("h", MODULO), ("x", K))
    assert is_family(key(over(nodes.TimeRange(4, 4))))
    assert not is_family(identity(over(nodes.TimeRange(4, 4))))
    assert key(over(nodes.TimeRange(4, 4))) == key(over(nodes.TimeRange(6, 2), SUM, by=(("other", K),)))
    assert key(over(nodes.TimeRange(4, 4), by=other)) == key(over(nodes.TimeRange(4, 4), by=other[::-1]))
    assert key(over(nodes.TimeRange(4, 4))) != key(over(nodes.Hop(4, 4)))
    assert key(over(nodes.TimeRange(4, 4))) != key(over(nodes.TimeRange(4, 4), by=()))
    assert key(nodes.Aggregate(nodes.Where(nodes.WindowOver(S, nodes.TimeRange(4, 4)), LARGE), BY, (N,))) != key(
        over(nodes.TimeRange(4, 4))
    )


def test_the_widest_slices_that_fit_are_taken():
    there = ["f-slices-4", "f-slices-6", "f-slices-24", "f-slices-5", "g-slices-12"]
    assert width_among("f-slices-", shape_of(over(nodes.TimeRange(12, 12))), there) == 6
    assert width_among("f-slices-", shape_of(over(nodes.TimeRange(7, 7))), ["f-slices-4"]) == 7


def test_slices_that_are_much_too_narrow_are_not_taken():
    for window, width in (
        (nodes.TimeRange(2048, 2048), 2),
        (nodes.TimeRange(2050, 2050), 2050),
        (nodes.TimeRange(2050, 2), 2),
    ):
        assert width_among("f-slices-", shape_of(over(window)), ["f-slices-2"]) == width


def test_the_narrowest_of_a_plan_counts():
    joined = nodes.SetOperation(over(nodes.TimeRange(12, 4)), over(nodes.TimeRange(9, 3)), "union", all=True)
    plans = (joined, over(nodes.TimeRange(12, 4)), over(nodes.TimeRange(4)), nodes.WindowOver(S, nodes.TimeRange(4, 2)))
    assert [narrowest(each) for each in plans] == [3, 4, 0, 0]
