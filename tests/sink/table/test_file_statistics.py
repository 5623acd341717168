import datetime as dt
import decimal
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from upstream.sink.table.file_statistics import file_stats, loosened

UTC = dt.timezone.utc
D = decimal.Decimal


def stats(kind: pa.DataType, *values: Any) -> tuple[Any, Any, int]:
    """Least, greatest, nulls of one column, as a reader of the log sees them."""
    text = file_stats(pa.table({"c": pa.array(values, kind)}))
    found = json.loads(text, parse_float=decimal.Decimal)
    assert found["numRecords"] == len(values)
    return found["minValues"].get("c"), found["maxValues"].get("c"), found["nullCount"]["c"]


@pytest.mark.parametrize(
    ("kind", "values", "low", "high"),
    [
        (pa.int64(), [3, None, -(2**63)], -(2**63), 3),
        (pa.float64(), [1.5, -2.0], D("-2.0"), D("1.5")),
        (pa.float64(), [0.0, -0.0], D("-0.0"), D("0.0")),
        (pa.float32(), [-0.0, 0.5], D("-0.0"), D("0.5")),
        (pa.float64(), [1.5, float("nan")], None, None),
        (pa.float64(), [1.5, float("inf")], D("1.5"), None),
        (pa.decimal128(38, 10), [D("1234567890123456789012345678.0123456789"), D("-0.1")], D("-0.1"),
         D("1234567890123456789012345678.0123456789")),
        (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)], "1969-12-31", "2024-02-29"),
        # Rounded outwards to milliseconds, before the epoch too.
        (pa.timestamp("us", "UTC"),
         [dt.datetime(2024, 1, 1, 0, 0, 0, 1, UTC), dt.datetime(2024, 1, 1, 0, 0, 0, 1001, UTC)],
         "2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.002Z"),
        (pa.timestamp("us"), [dt.datetime(1960, 1, 1, 0, 0, 0, 1)],
         "1960-01-01T00:00:00.000", "1960-01-01T00:00:00.001"),
        (pa.timestamp("us", "UTC"), [2**62, 0], "1970-01-01T00:00:00.000Z", None),
        (pa.string(), ["b", "", None], "", "b"),
        (pa.string(), ["é" * 40], "é" * 32, "é" * 32 + "\U0010ffff"),
        (pa.string(), ["a" * 32 + "\U0010ffff" * 2], "a" * 32, None),
        (pa.string(), ['quo"te\n'], 'quo"te\n', 'quo"te\n'),
        (pa.binary(), [b"x"], None, None),
        (pa.bool_(), [True], None, None),
        (pa.list_(pa.int64()), [[1]], None, None),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)]], None, None),
        (pa.int64(), [None, None], None, None),
    ],
)  # fmt: skip
def test_bounds(kind, values, low, high):
    assert stats(kind, *values) == (low, high, sum(value is None for value in values))


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([b"a", b"\xff"], "a", None),
        ([b"\x80", b"\xff"], None, None),
        ([b"a", b"b\xffb", "ü".encode()], "a", "ü"),
        ([b"\xed\xa0\x80", "\U0010ffff".encode()], None, "\U0010ffff"),  # half of a surrogate pair
    ],
)
def test_text_that_is_not_utf_8_has_no_bound(values, low, high):
    lengths = np.cumsum([0, *map(len, values)], dtype=np.int32)
    text = pa.StringArray.from_buffers(len(values), pa.py_buffer(lengths), pa.py_buffer(b"".join(values)))
    found = json.loads(file_stats(pa.table({"c": text, "s": pa.StructArray.from_arrays([text], ["x"])})))
    assert (found["minValues"].get("c"), found["maxValues"].get("c")) == (low, high)
    assert (found["minValues"].get("s", {}).get("x"), found["maxValues"].get("s", {}).get("x")) == (low, high)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, '{"numRecords":7,"tightBounds":false}'),
        ("not JSON", '{"numRecords":7,"tightBounds":false}'),
        (
            ('{"numRecords":7,"minValues":{"d":1234567890123456789012345678.0123456789,"s":{"f":1E400,"é":"x"}},'
             '"tightBounds":true}'),
            ('{"numRecords":7,"minValues":{"d":1234567890123456789012345678.0123456789,"s":{"f":1E400,"é":"x"}},'
             '"tightBounds":false}'),
        ),
        (
            '{"minValues":{"n":-9223372036854775808}}',
            '{"minValues":{"n":-9223372036854775808},"numRecords":7,"tightBounds":false}',
        ),
    ],
)  # fmt: skip
def test_bounds_of_a_file_with_more_dead_rows_are_as_they_were(before, after):
    assert loosened(before, 7) == after


def test_structs_are_nested_and_dotted_names_are_not():
    rows = pa.table({"id.orig_h": ["x"], "s": [{"a": 1, "b": {"c": None}}]})
    found = json.loads(file_stats(rows))
    assert found["minValues"] == {"id.orig_h": "x", "s": {"a": 1}}
    assert found["nullCount"] == {"id.orig_h": 0, "s": {"a": 0, "b": {"c": 1}}}


def test_only_the_first_columns_are_indexed():
    found = json.loads(file_stats(pa.table({f"c{i}": [i] for i in range(40)})))
    assert list(found["minValues"]) == [f"c{i}" for i in range(32)]
