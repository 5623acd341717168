import numpy as np
import pyarrow as pa
from pyspark.sql import Row

from upstream.core.feedback.reports import LatestJoinReport, read_reports
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.latest_plan import LatestJoinPlan, LatestSide, VersionPlan
from upstream.operators.joins.processor import LatestJoinProcessor, VersionProcessor
from upstream.operators.state.store import DictStore

from .batches import table

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDE = LatestSide(("k",), "t", SCHEMA, ("k",), "t")


def frame(control, *keys):
    rows = table(SCHEMA, [(key, at) for at, key in enumerate(keys)], arrival_us=np.arange(len(keys)) + 7)
    return Row(frame=bytearray(to_frame(rows)), control=control)


def test_each_frame_goes_to_its_side_and_the_shard_reports(tmp_path):
    processor = LatestJoinProcessor(LatestJoinPlan(SIDE, SIDE), str(tmp_path))
    result = processor.batch(3, DictStore(), iter([frame("right", 1, 2), frame("left", 2), frame("left", 3)]))
    assert result.column("k").to_pylist()[0] == 2
    (report,) = read_reports(str(tmp_path), LatestJoinReport)
    assert (report.shard, report.left_rows, report.right_rows, report.left_kept, report.right_kept) == (3, 2, 2, 2, 2)


def test_the_newest_rows_of_one_side_are_reported_as_the_left(tmp_path):
    processor = VersionProcessor(VersionPlan(SIDE, 1), str(tmp_path))
    result = processor.batch(0, DictStore(), iter([frame("left", 5, 6)]))
    assert sorted(result.column("k").to_pylist()) == [5, 6]
    (report,) = read_reports(str(tmp_path), LatestJoinReport)
    assert (report.left_rows, report.results, report.left_kept, report.now_us) == (2, 2, 2, 8)
