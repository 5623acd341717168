"""A shard of a join as Spark calls it: frames of both sides in, rows out, a report below the checkpoint."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from upstream.core.feedback.join_reports import JoinReport
from upstream.core.feedback.report_files import read_reports
from upstream.core.pushdown.ipc_frames import to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.joins.as_of_plan import AsOfPlan
from upstream.operators.joins.as_of_shard import AsOfShard
from upstream.operators.joins.band import IntervalBand
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.joins.processor import JoinProcessor, join_shard
from upstream.operators.joins.shard import JoinShard
from upstream.operators.runtime.store import DictStore

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDE = JoinSide(("k",), "t", SCHEMA)
BY_INTERVAL = JoinPlan(SIDE, SIDE, IntervalBand(1, 1))


class Frame(NamedTuple):
    frame: bytearray
    control: str


def frame(control, *times):
    n = len(times)
    system = system_array(source="f", seq=np.arange(n), arrival_us=np.arange(n))
    table = pa.table([np.ones(n, dtype=np.int64), pa.array(times, pa.int64()), system], schema=SCHEMA)
    return Frame(bytearray(to_frame(table)), control)


@pytest.mark.parametrize(("plan", "kind"), [(BY_INTERVAL, JoinShard), (AsOfPlan(SIDE, SIDE), AsOfShard)])
def test_each_plan_has_its_shard(plan, kind):
    assert type(join_shard(0, plan, DictStore())) is kind


def test_each_frame_goes_to_its_side_and_the_shard_reports(tmp_path):
    frames = iter([frame("right", 5), frame("left", 4, 7), frame("right", 9)])
    result = JoinProcessor(BY_INTERVAL, str(tmp_path)).batch(2, DictStore(), frames)
    assert result.select(["t", "t_right"]).to_pylist() == [{"t": 4, "t_right": 5}]
    (report,) = read_reports(str(tmp_path), JoinReport)
    assert (report.shard, report.left_rows, report.right_rows, report.results) == (2, 2, 2, 1)
