import numpy as np
import polars as pl

from upstream.expressions.columnar import aligned, on_arrays, on_series, quotient

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
