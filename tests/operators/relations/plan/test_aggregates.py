from decimal import Decimal

import pyarrow as pa
import pytest

from upstream.conf.errors import SchemaError
from upstream.expressions.coercion import cast
from upstream.expressions.nodes import Call, Constant, Field
from upstream.operators.relations.plan.aggregates import AGGREGATES, aggregation, is_aggregate
from upstream.operators.relations.plan.nodes import Aggregation, Order


def column(kind):
    return Field("x", kind)


@pytest.mark.parametrize(
    ("function", "kind", "expected"),
    [
        ("sum", pa.int8(), pa.int64()),
        ("sum", pa.float32(), pa.float64()),
        ("sum", pa.decimal128(10, 2), pa.decimal128(20, 2)),
        ("sum", pa.decimal128(35, 2), pa.decimal128(38, 2)),
        ("avg", pa.int64(), pa.float64()),
        ("mean", pa.decimal128(10, 2), pa.decimal128(14, 6)),
        ("min", pa.string(), pa.string()),
        ("max", pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        ("max", pa.time64("ns"), pa.time64("ns")),
        ("min", pa.duration("us"), pa.duration("us")),
        ("count", pa.string(), pa.int64()),
        ("stddev", pa.int32(), pa.float64()),
        ("collect_set", pa.string(), pa.list_(pa.string())),
        ("bit_and", pa.int16(), pa.int16()),
        ("bit_xor", pa.int64(), pa.int64()),
    ],
)
def test_types_are_sparks(function, kind, expected):
    assert is_aggregate(function)
    assert aggregation("r", function, [column(kind)]).type == expected


def test_what_is_short_for_something_else():
    x, p = column(pa.bool_()), Field("p", pa.bool_())
    assert aggregation("r", "count_if", [x]) == Aggregation("r", "count", (), pa.int64(), where=x)
    assert aggregation("r", "count_if", [x], where=p).where == Call("and", (p, x), pa.bool_())
    assert aggregation("r", "every", [x]).function == "min"
    assert aggregation("r", "bool_or", [x]).function == "max"
    assert aggregation("r", "count", [Constant(1, pa.int32())]).arguments == ()
    assert aggregation("r", "count", [Constant(None, pa.null())]).arguments != ()
    assert not aggregation("r", "max", [column(pa.int64())], distinct=True).distinct
    assert aggregation("r", "sum", [column(pa.int64())], distinct=True).distinct


@pytest.mark.parametrize(
    ("function", "arguments", "part"),
    [
        ("bit_or", [column(pa.string())], "a whole number"),
        ("bit_or", [column(pa.bool_())], "a whole number"),
        ("sum", [column(pa.string())], "a number"),
        ("sum", [], "got 0 arguments"),
        ("max_by", [column(pa.int64())], "got 1 argument"),
        ("min", [column(pa.map_(pa.string(), pa.int64()))], "have an order"),
        ("max", [column(pa.month_day_nano_interval())], "MAX of INTERVAL is not possible"),
        ("sum", [column(pa.time64("ns"))], "SUM of TIME is not possible"),
        ("max_by", [column(pa.int64()), column(pa.list_(pa.int64()))], "have an order"),
        ("count_if", [column(pa.int64())], "a boolean"),
        ("first", [column(pa.int64())], "MIN_BY"),
        ("median", [column(pa.string())], "a number"),
        ("median", [column(pa.duration("us"))], "timestampdiff"),
        ("percentile_cont", [Constant(0.5, pa.float64())], r"WITHIN GROUP \(ORDER BY x\)"),
        ("approx_percentile", [column(pa.int64()), *[Constant(0, pa.int64())] * 2], "accuracy of 0"),
        ("mode", [column(pa.int64()), Constant(1, pa.int64())], "TRUE or FALSE"),
        ("percentile", [column(pa.int64()), column(pa.float64())], "literal"),
        ("percentile", [column(pa.int64()), Constant(Decimal("1.5"), pa.decimal128(2, 1))], "between 0 and 1"),
    ],
)
def test_arguments_that_do_not_fit(function, arguments, part):
    with pytest.raises(SchemaError, match=part):
        aggregation("r", function, arguments)


X, Y = column(pa.int64()), Field("y", pa.string())
DOWN = Order(X, descending=True, nulls_first=False)


def test_an_order_ends_at_the_values_and_needs_no_constants():
    by_both = aggregation("r", "array_agg", [X], order=[Order(Constant(1, pa.int64())), Order(Y), DOWN, Order(Y)])
    assert (by_both.arguments, by_both.order) == ((X, Y), ((False, True), (True, True)))
    assert aggregation("r", "collect_list", [X], order=[Order(X), Order(Y)]) == aggregation("r", "collect_list", [X])
    share = Constant(0.9, pa.float64())
    turned = aggregation("r", "percentile_cont", [share], order=[DOWN])
    assert (turned.function, turned.arguments, turned.order) == ("percentile", (X, share), ((True, True),))
    for function, order in (("sum", [DOWN]), ("percentile", [DOWN]), ("mode", [DOWN, Order(Y)])):
        with pytest.raises(SchemaError, match="ORDER BY"):
            aggregation("r", function, [], order=order)


def test_a_list_of_distinct_values_is_in_their_order():
    assert aggregation("r", "array_agg", [X], distinct=True) == aggregation("r", "collect_set", [X])
    text = cast(X, pa.string())
    assert aggregation("r", "collect_list", [text], distinct=True, order=[DOWN]).arguments == (text, X)
    time = Field("t", pa.timestamp("us", tz="UTC"))
    for value, key in ((X, Y), (cast(time, pa.string()), time)):
        with pytest.raises(SchemaError, match="of the value itself"):
            aggregation("r", "collect_list", [value], distinct=True, order=[Order(key)])


def test_count_of_distinct_rows_needs_columns():
    with pytest.raises(SchemaError, match="name the columns"):
        aggregation("r", "count", [], distinct=True)
    assert "median" in AGGREGATES
    assert not is_aggregate("upper")


def test_bits_of_distinct_values():
    assert not aggregation("r", "bit_and", [column(pa.int64())], distinct=True).distinct
    with pytest.raises(SchemaError, match="SELECT DISTINCT"):
        aggregation("r", "bit_xor", [column(pa.int64())], distinct=True)
