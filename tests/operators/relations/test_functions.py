import polars as pl

from upstream.operators.relations.functions import ALL, DISTINCT_COUNT, AggregateCall, added, check, extreme, summary


def test_each_function_is_computed_in_one_way():
    for function in ALL:
        ways = [added(function) is not None, extreme(function) is not None, function == DISTINCT_COUNT]
        if not any(ways):
            assert callable(summary(function))
        assert sum(ways) <= 1
        check(AggregateCall("x", function, (), pl.Int64))
