import polars as pl
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError

from upstream.conf.errors import CheckpointError, QueryError, TableError
from upstream.operators.relations.operator import FAILURES, attributed, reason_of


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
