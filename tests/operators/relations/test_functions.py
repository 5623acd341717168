import polars as pl
import pytest

from upstream.conf.errors import SchemaError
from upstream.operators.relations.functions import (
    ALL,
    DISTINCT_COUNT,
    AggregateCall,
    Columns,
    added,
    check,
    extreme,
    summary,
)

from .checking import LONG, S, column, compiled


def test_each_function_is_computed_in_one_way():
    for function in ALL:
        ways = [added(function) is not None, extreme(function) is not None, function == DISTINCT_COUNT]
        if not any(ways):
            assert callable(summary(function))
        assert sum(ways) <= 1
        check(AggregateCall("x", function, (), pl.Int64))


V = compiled(column("v"), S.schema)


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(SchemaError, match="there is no aggregate summe"):
        Columns([AggregateCall("n", "summe", (V,), LONG)])
    with pytest.raises(SchemaError, match="median"):
        Columns([AggregateCall("n", "median", (V,), LONG, distinct=True)])
