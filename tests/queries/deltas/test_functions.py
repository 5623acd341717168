import polars as pl
import pytest

from upstream.conf.errors import SchemaError
from upstream.queries.deltas.functions import ALL, Call, added, check, extreme, summary


def test_each_function_is_computed_in_one_way():
    for function in ALL:
        ways = [added(function) is not None, extreme(function) is not None]
        if not any(ways):
            assert callable(summary(function))
        assert sum(ways) <= 1
        check(Call("x", function, (), pl.Int64))


def test_an_unknown_function_is_refused_with_those_that_are_near():
    with pytest.raises(SchemaError, match="one of stddev"):
        check(Call("x", "stdev", (), pl.Int64))
    with pytest.raises(SchemaError, match="min_by or max_by"):
        check(Call("x", "first", (), pl.Int64))


def test_the_value_at_the_greatest_is_the_greatest_of_those_that_tie_and_ignores_unknown_orders():
    frame = pl.DataFrame({"x": ["a", "c", "b", "z"], "y": [1, 2, 2, None]})
    assert frame.select(summary("max_by")(["x", "y"])).item() == "c"
    assert frame.select(summary("min_by")(["x", "y"])).item() == "a"
    assert frame.filter(pl.col("x") == "z").select(summary("max_by")(["x", "y"])).item() is None
