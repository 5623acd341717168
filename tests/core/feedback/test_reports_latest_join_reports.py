"""Reports of joins of newest rows, written and read."""

from upstream.core.feedback.reports import LatestJoinReport, read_reports, write_report


def test_a_report_is_read_as_it_was_written_and_the_last_of_a_shard_counts(tmp_path):
    for batch in (1, 2):
        write_report(str(tmp_path), LatestJoinReport(shard=4, batch_id=batch, now_us=9, left_kept=batch, retracted=3))
    assert read_reports(str(tmp_path), LatestJoinReport) == [
        LatestJoinReport(shard=4, batch_id=2, now_us=9, left_kept=2, retracted=3)
    ]
