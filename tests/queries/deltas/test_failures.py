import polars as pl
import pyarrow as pa
import pytest

from upstream.conf.errors import QueryError
from upstream.queries.deltas.failures import FAILURES


def test_errors_in_values_end_a_query_and_others_the_batch():
    for error in (
        QueryError("x"),
        pl.exceptions.ComputeError("x"),
        pl.exceptions.PanicException("x"),
        pa.ArrowInvalid("x"),
    ):
        with pytest.raises(FAILURES):
            raise error
    assert not issubclass(OSError, FAILURES)
    assert not issubclass(MemoryError, FAILURES)
