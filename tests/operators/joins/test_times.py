"""Joins by time where times are timestamps in a zone, or days."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from upstream.core.pushdown.ipc_frames import to_frame
from upstream.core.rows.split import split_punctuation
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.joins.as_of_plan import AsOfPlan
from upstream.operators.joins.band import IntervalBand
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.processor import join_shard
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.runtime.store import DictStore

KINDS = [pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.date32(), pa.int32()]


def schema_of(kind, value):
    return pa.schema([("k", pa.string()), ("t", kind), (value, pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def frame(schema, times, bound, feed):
    n = len(times)
    raw = pa.int32() if pa.types.is_date(schema.field("t").type) else pa.int64()
    kind = schema.field("t").type
    columns = [pa.array(["x"] * n), pa.array(times, raw).cast(kind), pa.array(np.arange(n))]
    table = pa.table([*columns, system_array(source=feed, seq=np.arange(n), arrival_us=np.arange(n))], schema=schema)
    mark = punctuation_rows(table.schema, [feed], 0, t=pa.array([bound], raw).cast(kind))
    return [to_frame(pa.concat_tables([table, mark]))]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_meet_and_the_punctuation_is_a_time_of_the_kind(kind):
    left, right = schema_of(kind, "a"), schema_of(kind, "b")
    plan = JoinPlan(JoinSide(("k",), "t", left), JoinSide(("k",), "t", right), IntervalBand(2, 3), "full")
    frames = frame(left, [10, 20], 12, "left/f"), frame(right, [8, 14], 14, "right/f")
    result, report = join_shard(0, plan, DictStore()).run(*frames)
    rows, punctuation = split_punctuation(result)
    assert rows.schema.field("join_time").type == kind
    times = [rows.column("join_time"), punctuation.column("join_time")]
    raw = pa.int32() if kind in (pa.date32(), pa.int32()) else pa.int64()
    assert [column.cast(raw).to_pylist() for column in times] == [[10], [10]]
    assert report.promised == 10


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_as_of_a_time_of_the_kind(kind):
    left, right = schema_of(kind, "a"), schema_of(kind, "b")
    plan = AsOfPlan(JoinSide(("k",), "t", left), JoinSide(("k",), "t", right), "left", 5)
    frames = frame(left, [10, 20, 30], 30, "left/f"), frame(right, [9, 10, 11, 14], 29, "right/f")
    rows, _ = split_punctuation(join_shard(0, plan, DictStore()).run(*frames)[0])
    assert [(row["a"], row["b"]) for row in rows.to_pylist()] == [(0, 1), (1, None)]
