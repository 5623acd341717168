"""Reports of joins by time, written and read."""

from __future__ import annotations

from upstream.core.feedback.join_reports import JoinReport
from upstream.core.feedback.report_files import read_reports, write_report


def test_a_report_is_read_as_it_was_written():
    report = JoinReport(
        shard=4, batch_id=2, now_us=9, left_rows=1, right_rows=2, results=3, unmatched=1, left_late=0, right_late=1,
        without_key=0, left_kept=5, right_kept=6, state_bytes=7, bounds={"left/f": 8}, promised=8, needs=None,
    )  # fmt: skip
    assert JoinReport.from_json(report.to_json()) == report


def test_the_last_report_of_a_shard_counts(tmp_path):
    for batch in (1, 2):
        write_report(
            str(tmp_path),
            JoinReport(4, batch, 9, 1, 2, 3, 1, 0, 1, 0, 5, 6, 7, {"left/f": 8}),
        )
    assert [report.batch_id for report in read_reports(str(tmp_path), JoinReport)] == [2]
