"""The step that numbers rows as Spark calls it: frames in, numbered rows out, a report below the checkpoint."""

from typing import NamedTuple

import pyarrow as pa

from upstream.core.feedback.reports import NumberingReport, read_reports
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.state.store import DictStore
from upstream.operators.windows.shards.plan import NUMBER
from upstream.operators.windows.shards.processor import NumberingProcessor
from upstream.operators.windows.shards.stream_numbers import NumberingPlan

from .windows_of import SCHEMA, rows_table

NUMBERED = pa.schema([SCHEMA.field("v"), pa.field(NUMBER, pa.int64()), SCHEMA.field(SYSTEM)])


class Frame(NamedTuple):
    frame: bytearray


def test_frames_of_several_tasks_are_one_batch(tmp_path):
    processor, store = NumberingProcessor(NumberingPlan(NUMBERED), str(tmp_path)), DictStore()
    for batch in (1, 2):
        tasks = [rows_table([(1, 0, 7), (1, 0, 8)], 10 * batch + 1), rows_table([(2, 0, 6)], 10 * batch)]
        result = processor.batch(0, store, iter([Frame(bytearray(to_frame(each))) for each in tasks]))
        assert result is not None
        begin = 3 * (batch - 1)
        assert result.column("v").to_pylist() == [6, 7, 8, None]
        assert result.column(NUMBER).to_pylist() == [begin, begin + 1, begin + 2, begin + 3]
    (report,) = read_reports(str(tmp_path), NumberingReport)
    assert (report.rows, report.counted, report.now_us) == (3, 6, 21)
