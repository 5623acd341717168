"""Rows to frames and back, without Spark."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from upstream.conf.errors import OptionError
from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.frames import from_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.sink.frames import ROWS_OPTION, FrameStep, parse_rows, unframed
from upstream.sink.spec.layout import Layout
from upstream.sink.spec.options import parse_sink_options

COLUMNS = pa.schema([("k", pa.int64()), ("name", pa.string()), ("t", pa.int64()), (SYSTEM, SYSTEM_TYPE)])


def framing(columns: pa.Schema = COLUMNS, *, parted: bool = True) -> FrameStep:
    rows = from_arrow_schema(columns)
    given = {"path": "/t", "checkpointLocation": "/c", "key": "k,name", "eventTime": "t", "buckets": "7"}
    return FrameStep.of(Layout.of(parse_sink_options(given).options, rows), rows, parted=parted)[0]


def rows(keys: list[int], *, first_arrival: int = 5) -> pa.Table:
    n = len(keys)
    arrived = np.arange(n, dtype=np.int64) + 10
    system = system_array(
        source="feed",
        seq=np.arange(n),
        arrival_us=arrived,
        first_arrival_us=np.full(n, first_arrival),
        covered=np.full(n, 3),
    )
    columns = [pa.array(keys, pa.int64()), pa.array([str(key % 3) for key in keys]), pa.array(range(n), pa.int64())]
    return pa.table([*columns, system], schema=COLUMNS)


def punctuation(bounds: list[int | None]) -> pa.Table:
    nothing, at = np.arange(len(bounds)), np.zeros(len(bounds), dtype=np.int64)
    system = system_array(source="feed", seq=nothing, arrival_us=at, punctuation=True)
    columns = [pa.nulls(len(bounds), pa.int64()), pa.nulls(len(bounds), pa.string()), pa.array(bounds, pa.int64())]
    return pa.table([*columns, system], schema=COLUMNS)


@given(keys=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60), chunk=st.integers(1, 20), parted=st.booleans())
def test_every_row_comes_back_once_and_buckets_are_whole(keys, chunk, parted):
    table = pa.concat_tables([rows(keys), punctuation([4])])
    frames = list(framing(parted=parted)(iter(table.to_batches(max_chunksize=chunk))))
    back = pa.Table.from_batches(list(unframed(iter(frames))), schema=COLUMNS)
    assert sorted(back.to_pylist(), key=repr) == sorted(table.to_pylist(), key=repr)
    for batch in frames:
        for bucket, frame in zip(batch["bucket"].to_pylist(), batch["frame"], strict=True):
            part = from_frame(frame.as_buffer())
            if parted:
                assert set(bucket_of([part["k"], part["name"]], 7).tolist()) == {bucket}


def test_figures_are_counted_once():
    table = pa.concat_tables([rows([1, 2, 3, 4, 5]), punctuation([30, None, 20])])
    (batch,) = framing()(iter(table.to_batches()))
    figures = batch.drop_columns(["bucket", "frame"]).to_pylist()
    assert batch.num_rows > 2
    assert figures[0] == {"rows": 5, "updates": 15, "oldest_arrival_us": 5, "bound_low": 20, "bound_high": 30}
    assert all(set(others.values()) == {None} for others in figures[1:])
    (alone,) = framing()(iter(punctuation([7]).to_batches()))
    (figures,) = alone.drop_columns(["bucket", "frame"]).to_pylist()
    assert figures == {"rows": 0, "updates": 0, "oldest_arrival_us": None, "bound_low": 7, "bound_high": 7}
    plain = COLUMNS.remove(COLUMNS.get_field_index(SYSTEM))
    (batch,) = framing(plain)(iter(rows([1, 2]).drop_columns([SYSTEM]).to_batches()))
    assert [batch.column(name)[0].as_py() for name in ("rows", "oldest_arrival_us")] == [2, None]
    assert list(framing()(iter(rows([]).to_batches()))) == []


@pytest.mark.parametrize("value", ["yes", "3", '{"type": "struct"}', "[]"])
def test_the_option_is_not_for_users(value):
    with pytest.raises(OptionError, match="leave this option out"):
        parse_rows({ROWS_OPTION: value})


@pytest.mark.parametrize("name", [ROWS_OPTION, ROWS_OPTION.lower()])
def test_the_option_in_any_case(name):
    schema = from_arrow_schema(COLUMNS)
    assert parse_rows({name: schema.json(), "key": "k"}) == (schema, {"key": "k"})
    assert parse_rows({"key": "k"}) == (None, {"key": "k"})
