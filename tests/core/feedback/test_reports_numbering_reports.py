"""Reports of the step that numbers rows, written and read."""

from upstream.core.feedback.reports import NumberingReport, read_reports, write_report


def test_the_last_report_counts(tmp_path):
    for batch in (1, 2):
        write_report(str(tmp_path), NumberingReport(shard=0, batch_id=batch, now_us=9, rows=3, counted=3 * batch))
    assert read_reports(str(tmp_path), NumberingReport) == [
        NumberingReport(shard=0, batch_id=2, now_us=9, rows=3, counted=6)
    ]
