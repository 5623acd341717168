import polars as pl
import pyarrow as pa
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

from .checking import LONG, S, call, column, compiled, constant


def test_each_function_is_computed_in_one_way():
    for function in ALL:
        ways = [added(function) is not None, extreme(function) is not None, function == DISTINCT_COUNT]
        if not any(ways):
            assert callable(summary(function))
        assert sum(ways) <= 1
        check(AggregateCall("x", function, (), pl.Int64))


V = compiled(column("v"), S.schema)
LARGE = compiled(call("gt", column("v"), constant(1)), S.schema)
ROWS = pl.DataFrame({"t": [1, 2, 3], "k": ["a", None, "b"], "v": [1, None, 3]})


def test_rows_that_do_not_count_are_null():
    columns = Columns(
        [AggregateCall("n", "count", (V,), LONG, where=LARGE), AggregateCall("s", "sum", (V,), LONG, where=LARGE)]
    )
    found = columns.of(ROWS).select(columns.schema.names)
    assert found.rows() == [(None, None), (None, None), (True, 3)]
    assert columns.schema.types == [pa.bool_(), LONG]


def test_names_begin_as_they_are_told():
    columns = Columns([AggregateCall("n", "sum", (V,), LONG), AggregateCall("m", "max", (V,), LONG)], ["a", "b"])
    assert columns.schema.names == ["a_0", "b_0"]
    assert columns.of(ROWS).columns == ["t", "k", "v", "a_0", "b_0"]
    assert columns.added["n"].text == "sum(a_0)"
    assert columns.extremes["m"].text == "max(b_0)"


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(SchemaError, match="there is no aggregate summe"):
        Columns([AggregateCall("n", "summe", (V,), LONG)])
    with pytest.raises(SchemaError, match="median"):
        Columns([AggregateCall("n", "median", (V,), LONG, distinct=True)])
