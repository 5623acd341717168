"""A shard of groups as Spark calls it: frames in, groups out, a report below the checkpoint."""

from types import SimpleNamespace

from upstream.core.feedback.reports import LatestJoinReport, read_reports
from upstream.core.rows.frames import to_frame
from upstream.operators.aggregates.functions import sum_
from upstream.operators.grouped.processor import GroupProcessor
from upstream.operators.state.store import DictStore

from .groups_of import plan, table


def test_frames_of_several_tasks_are_one_batch(tmp_path):
    processor = GroupProcessor(plan(("g",), {"total": sum_("v")}), str(tmp_path))
    tasks = ([(1, "x", 0, 3, None, False)], [(1, "x", 0, 3, None, False), (1, "x", 1, 5, None, False)])
    frames = [SimpleNamespace(frame=bytearray(to_frame(table(rows)))) for rows in tasks]
    result = processor.batch(0, DictStore(), iter(frames))
    assert result.select(["g", "total"]).to_pylist() == [{"g": "x", "total": 5}]
    (report,) = read_reports(str(tmp_path), LatestJoinReport)
    assert (report.left_rows, report.results, report.left_kept) == (3, 1, 1)
