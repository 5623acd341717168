from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from kit.failures import unfit

from upstream.expressions import columnar
from upstream.expressions.columnar import aligned, on_arrays, on_series, quotient
from upstream.expressions.nodes import Call, Constant, Field

_INT = pa.int32()
_CALL = Call("f", (Field("a", _INT), Constant(3, _INT)), _INT)


def test_failures_count_where_the_value_is_needed_and_null_is_no():
    failures = columnar.when_needed([columnar.RowFailure(pl.col("x") > 1, _CALL, "")], pl.col("y"))
    frame = pl.DataFrame({"x": [0, 2, 2, 2], "y": [True, True, False, None]})
    assert frame.select(failures[0].where).to_series().to_list() == [False, True, False, False]


def test_a_constant_is_asked_for_where_rows_may_differ():
    build = columnar.Builder(_CALL, [columnar.Value(pl.col("a")), columnar.Value(pl.lit(3))], columnar.Stages())
    assert build.constant(1, "the size") == 3
    unfit("the size is a, which differs by row", build.constant, 0, "the size")
    unfit("alone is not a value", columnar.polars_type, pa.month_day_nano_interval())


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (None, pa.decimal128(5, 2)),
        (Decimal("-1.25"), pa.decimal128(38, 2)),
        (Decimal("9" * 38), pa.decimal128(38, 0)),
        (date(1, 1, 1), pa.date32()),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone.utc), pa.timestamp("us", "UTC")),
        (datetime(1969, 1, 1, 1, 1, 1, 1), pa.timestamp("us")),
        (timedelta(microseconds=-1), pa.duration("us")),
        (-0.0, pa.float32()),
        (b"\x00", pa.binary()),
        (127, pa.int8()),
    ],
)
def test_constants_keep_their_value_and_type(value, dtype):
    found = pl.select(columnar.literal(value, dtype)).to_series()
    assert found.dtype == columnar.polars_type(dtype)
    assert found.to_arrow().cast(dtype).to_pylist() == [value]


_FRAME = pl.DataFrame({"a": [7.5, None, -7.5], "b": [2.0, 2.0, None]})


def test_nulls_and_constants_beside_columns():
    found = _FRAME.select(on_arrays(np.fmod, pl.col("a"), pl.col("b"), dtype=pl.Float64)).to_series()
    assert found.to_list() == [1.5, None, None]
    assert [each.to_list() for each in aligned([pl.Series([1, 2]), pl.Series([3])])] == [[1, 2], [3, 3]]
    found = _FRAME.select(on_series(lambda a, b: a + b, pl.col("a"), pl.lit(1.0), dtype=pl.Float64)).to_series()
    assert found.to_list() == [8.5, None, -6.5]


def test_a_quotient_by_a_constant_is_the_nearest_double():
    frame = pl.DataFrame({"x": [899.93798828125, None]})
    assert frame.select(quotient(pl.col("x"), pl.lit(2.5))).to_series().to_list() == [899.93798828125 / 2.5, None]
    frame = pl.DataFrame({"x": [899.93798828125] * 9, "none": pl.Series([None] * 9, dtype=pl.Float64)})
    same = pl.coalesce("none", pl.lit(2.5))
    assert frame.select(quotient(pl.col("x"), same)).to_series().to_list() == [899.93798828125 / 2.5] * 9
