"""Shards of windows by group as Spark calls them: frames in, windows out, late rows and a report beside them."""

from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq

from upstream.core.feedback.reports import LatestJoinReport, read_reports
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.grouped.processor import WindowGroupProcessor, WindowVersionProcessor
from upstream.operators.runtime.dead_letters import DeadLetterRows
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlidingWindows

from .window_rows import plan, rows, until

PLAN = plan(SlidingWindows(5, 5))


def test_late_rows_go_to_a_file_and_results_on(tmp_path):
    late = DeadLetterRows(str(tmp_path / "late"), "late")
    versions = WindowVersionProcessor(PLAN, str(tmp_path / "versions"), late)
    groups = WindowGroupProcessor(PLAN, str(tmp_path / "groups"), None)
    stores, found = (DictStore(), DictStore()), []
    for times, bound in (((1, 2), 5), ((4, 6), 10)):
        table = pa.concat_tables([rows(*times), until(f=bound)])
        changes = versions.batch(0, stores[0], iter([SimpleNamespace(frame=bytearray(to_frame(table)))]))
        result = groups.batch(0, stores[1], iter([SimpleNamespace(frame=bytearray(to_frame(changes)))]))
        found += [(row["window_id"], row["n"]) for row in result.to_pylist() if not row[SYSTEM]["punctuation"]]
    assert found == [(0, 2), (1, 1)]
    (file,) = (tmp_path / "late").glob("*.parquet")
    assert pq.read_table(file).column("t").to_pylist() == [4]
    (report,) = read_reports(str(tmp_path / "versions"), LatestJoinReport)
    assert report.late == 1
