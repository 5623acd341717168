import polars as pl
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError

from upstream.conf.errors import CheckpointError, QueryError, TableError
from upstream.expressions.nodes import Field
from upstream.operators.relations.operator import (
    FAILURES,
    Evaluable,
    attributed,
    computed,
    needed,
    reason_of,
    with_columns,
)

from .checking import constant

FRAME = pl.DataFrame({"a": [1, 2], "b": [3, 4]})


def test_values_have_the_expressions_type_and_one_for_each_row():
    constant = Evaluable(lambda _: pl.Series([7]), frozenset(), pa.int32())
    assert constant.series(FRAME, "x").to_list() == [7, 7]
    assert constant.series(FRAME, "x").dtype == pl.Int32
    assert constant.series(FRAME.clear(), "x").dtype == pl.Int32
    assert with_columns(FRAME, [("x", constant)]).columns == ["a", "b", "x"]


def test_the_columns_that_are_read():
    one, two = (Evaluable(lambda frame: frame["a"], frozenset(names), pa.int64()) for names in ("b", "ab"))
    assert needed(FRAME, one) == ["b"]
    assert needed(FRAME, one, two) == ["a", "b"]
    assert needed(FRAME) == []


def test_zeros_of_both_signs_are_compiled_each_by_itself():
    zero, less = (computed(constant(each, pa.float64()), pa.schema([])) for each in (0.0, -0.0))
    assert zero is computed(constant(0.0, pa.float64()), pa.schema([]))
    assert zero is not less


def test_an_expression_is_evaluated_over_the_columns_that_it_names():
    found = computed(Field("v", pa.int64()), pa.schema({"v": pa.int64()}))
    assert found.columns == frozenset({"v"})
    assert found.series(pl.DataFrame({"v": [4]}), "x").to_list() == [4]


def test_errors_in_values_end_a_query_and_others_the_batch():
    for error in (
        QueryError("x"),
        pl.exceptions.ComputeError("x"),
        pl.exceptions.PanicException("x"),
        pa.ArrowInvalid("x"),
        RecursionError("x"),
        OverflowError("x"),
        AssertionError("x"),
    ):
        assert isinstance(error, FAILURES)
        assert reason_of(error) == f"{type(error).__name__}: {error}"
    table = TableError("x")
    table.__cause__ = OSError("full")
    for error in (OSError("x"), table, CheckpointError("x"), PySparkRuntimeError("x", messageParameters={})):
        with pytest.raises(type(error)):
            attributed(error)
