"""A shard of groups as Spark calls it: frames in, groups out, a report below the checkpoint."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from upstream.core.feedback.latest_join_reports import LatestJoinReport
from upstream.core.feedback.report_files import read_reports
from upstream.core.pushdown.ipc_frames import to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.aggregates.functions import sum_
from upstream.operators.grouped.plan import GroupPlan
from upstream.operators.grouped.processor import GroupProcessor
from upstream.operators.joins.latest_plan import LatestSide
from upstream.operators.runtime.store import DictStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
PLAN = GroupPlan(LatestSide(("k",), "", SCHEMA, ("k",), None, ("v",)), {"total": sum_("v")}, 1)


class Frame(NamedTuple):
    frame: bytearray


def rows(*values):
    n = len(values)
    system = system_array(source="f", seq=np.arange(n), arrival_us=np.arange(n))
    return pa.table([pa.array(np.ones(n, dtype=np.int64)), pa.array(values, pa.int64()), system], schema=SCHEMA)


def test_frames_of_several_tasks_are_one_batch(tmp_path):
    processor = GroupProcessor(PLAN, str(tmp_path))
    frames = [Frame(bytearray(to_frame(rows(3)))), Frame(bytearray(to_frame(rows(3, 5))))]
    result = processor.batch(0, DictStore(), iter(frames))
    assert result.select(["k", "total"]).to_pylist() == [{"k": 1, "total": 5}]
    (report,) = read_reports(str(tmp_path), LatestJoinReport)
    assert (report.left_rows, report.results, report.left_kept) == (3, 1, 1)
