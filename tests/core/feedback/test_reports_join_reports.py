"""Reports of joins by time, written and read."""

from upstream.core.feedback.reports import JoinReport, read_reports, write_report


def test_a_report_is_read_as_it_was_written_and_the_last_of_a_shard_counts(tmp_path):
    for batch in (1, 2):
        report = JoinReport(4, batch, 9, 1, 2, 3, 1, 0, 1, 0, 5, 6, 7, {"left/f": 8}, promised=8)
        write_report(str(tmp_path), report)
    assert read_reports(str(tmp_path), JoinReport) == [report]
