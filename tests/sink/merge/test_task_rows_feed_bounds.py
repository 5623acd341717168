"""How far feeds are complete, as a commit tells it: text and numbers that compare as times do."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upstream.core.watermark.bounds import beginning
from upstream.delta_format.latest_table import NOTHING_YET
from upstream.sink.merge.task_rows import bound_values, later_bound

from .rows import LEAST


def test_bounds_as_text_and_numbers():
    def bounds(kind: pa.DataType, *values: Any) -> list[Any]:
        return bound_values(pa.chunked_array([pa.array(values, kind)]))

    assert bounds(pa.timestamp("us", "UTC"), 5, None) == ["1970-01-01T00:00:00.000005Z", None]
    assert bounds(pa.timestamp("ms"), 5) == ["1970-01-01T00:00:00.005000"]
    assert bounds(pa.date32(), 5, None) == ["1970-01-06", None]
    assert bounds(pa.int64(), 5, LEAST) == [5, NOTHING_YET]
    assert bounds(pa.float64(), 1.5, float("inf"), float("nan"), None) == [1.5, None, None, None]


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32(), pa.int16(), pa.float32()])
def test_bounds_compare_as_the_times_do(kind):
    numbers = [3, -400, 0, 20_000, 7]
    column = pa.chunked_array([pa.array(numbers, pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)])
    bounds = bound_values(column)
    assert sorted(range(5), key=bounds.__getitem__) == np.argsort(numbers).tolist()
    assert bound_values(pa.chunked_array([pa.array([None], kind)])) == [None]


def test_a_feed_of_which_nothing_is_known_is_below_all_bounds():
    kind = pa.timestamp("us", "UTC")
    (least,) = bound_values(pa.chunked_array([pa.array([beginning(kind).as_py()], kind)]))
    assert least == NOTHING_YET
    assert later_bound(least, "2024-01-01T00:00:00.000000Z") == "2024-01-01T00:00:00.000000Z"
    assert (later_bound(5, least), later_bound(least, None), later_bound(least, least)) == (5, None, least)
    # A feed that has ended stays ended.
    assert later_bound(3, 5) == 5
    assert later_bound(None, 5) is None
    assert later_bound(5, None) is None
