"""Steps in Python, over batches."""

import sys

import numpy as np
import pyarrow as pa
import pytest

from upstream.conf.errors import QueryError, SchemaError
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.runtime.steps import mapped

NUMBERS = np.arange(3)
ROWS = pa.RecordBatch.from_arrays(
    [pa.array(NUMBERS), system_array(source="feed", seq=NUMBERS, arrival_us=NUMBERS)], names=["k", SYSTEM]
)
SCHEMA = pa.schema([("k", pa.int64()), ("score", pa.int64()), (SYSTEM, SYSTEM_TYPE)])


def score(rows: pa.RecordBatch) -> pa.RecordBatch:
    if rows.num_rows > 2:
        sys.exit(3)
    return pa.RecordBatch.from_arrays([rows.column("k")], names=["score"])


def test_a_map_gets_parts_and_gives_columns():
    (first, second) = mapped(score, SCHEMA, ["score"], 2)(iter([ROWS]))
    assert [*first["score"].to_pylist(), *second["score"].to_pylist()] == [0, 1, 2]


def test_a_map_that_exits_is_named():
    with pytest.raises(QueryError, match="the mapped function score raised SystemExit: 3"):
        list(mapped(score, SCHEMA, ["score"], 3)(iter([ROWS])))


def test_a_map_that_returns_text_that_no_reader_opens_is_named():
    texts = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"\xff", b"b"]).buffers())

    def decoded(rows: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([texts.slice(0, rows.num_rows)], names=["score"])

    schema = SCHEMA.set(1, pa.field("score", pa.string()))
    with pytest.raises(SchemaError, match=r"the mapped function .*decoded returned a damaged column score: .*UTF8"):
        list(mapped(decoded, schema, ["score"], 3)(iter([ROWS])))
