import polars as pl
import pytest

from upstream.conf.errors import SchemaError
from upstream.expressions.nodes import Constant
from upstream.expressions.types import call
from upstream.operators.relations.functions import (
    ADDED,
    ALL,
    DISTINCT_COUNT,
    EXTREME,
    ORDERED,
    AggregateCall,
    Columns,
    check,
)
from upstream.operators.relations.operator import computed

from .checking import LONG, S, column, compiled

BITS = ("bit_and", "bit_or", "bit_xor")


def test_each_function_is_computed_in_one_way():
    for function in ALL:
        ways = [function in way for way in (ADDED, EXTREME, ORDERED)]
        assert sum([*ways, function == DISTINCT_COUNT, function in {*BITS, "max_by", "min_by"}]) == 1
        check(AggregateCall("x", function, (), pl.Int64))


V = compiled(column("v"), S.schema)


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(SchemaError, match="there is no aggregate summe"):
        Columns([AggregateCall("n", "summe", (V,), LONG)])
    with pytest.raises(SchemaError, match="median"):
        Columns([AggregateCall("n", "median", (V,), LONG, distinct=True)])


def test_an_error_names_the_users_expression():
    doubled = computed(call("multiply", [column("v"), Constant(2, LONG)]), S.schema)
    calls = [AggregateCall(name, name, (doubled,), LONG, distinct=name == "avg") for name in ("sum", "avg")]
    made = Columns(calls)
    assert repr(made.added["sum"]) == "sum(v * 2)"
    assert repr(made.distinct["avg"][1]) == "avg(DISTINCT v * 2)"
