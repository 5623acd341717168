import pyarrow as pa
import pytest
from pyspark.sql import Row

from upstream.core.feedback.reports import JoinReport, read_reports
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.band import IntervalBand
from upstream.operators.joins.plan import AsOfPlan, JoinPlan, JoinSide
from upstream.operators.joins.processor import JoinProcessor
from upstream.operators.state.store import DictStore

from .batches import table

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDE = JoinSide(("k",), "t", SCHEMA)
KEYED = JoinSide(("k",), "t", SCHEMA, ("k",))


def frame(control, *times):
    return Row(frame=bytearray(to_frame(table(SCHEMA, [(1, time) for time in times]))), control=control)


@pytest.mark.parametrize(
    ("plan", "results"),
    [
        (JoinPlan(SIDE, SIDE, IntervalBand(1, 1)), [(4, 5)]),
        (AsOfPlan(SIDE, SIDE), []),  # the right's next row may have the time 7
        (AsOfPlan(KEYED, SIDE, early=True), [(7, 5)]),
    ],
)
def test_each_frame_goes_to_its_side_of_the_plans_shard_which_reports(plan, results, tmp_path):
    frames = iter([frame("right", 5), frame("left", 4, 7), frame("right", 9)])
    result = JoinProcessor(plan, str(tmp_path)).batch(2, DictStore(), frames)
    pairs = [] if result is None else result.select(["t", "t_right"]).to_pylist()
    assert [tuple(pair.values()) for pair in pairs] == results
    (report,) = read_reports(str(tmp_path), JoinReport)
    assert (report.shard, report.left_rows, report.right_rows, report.results) == (2, 2, 2, len(results))
