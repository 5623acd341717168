import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.cli.live import LiveLine, TimeEstimate, delay_text, short_count
from upstream.core.feedback.offsets import SourceCounts
from upstream.storage.folder import TableFolder

from .commits import commit


def test_line_before_the_first_commit():
    line = LiveLine(0.0)
    assert line.text(3.0, None) == "waiting for the first rows"
    assert line.farewell() == "No new rows."


def test_line():
    line = LiveLine(0.0)
    line.add(commit(0), 8.0)
    line.add(commit(1), 9.0)
    assert line.text(10.0, 0.47) == (
        "20 rows/s in · 1.23 M keys · 180 superseded · staleness p50 340 ms, p99 2.1 s · "
        "complete to 2016-11-24 22:50:00.123 UTC · batch 470 ms"
    )
    assert line.farewell() == (
        "200 rows in 2 batches, 20 applied, 180 superseded; the table has 1,234,567 keys, "
        "complete to 2016-11-24 22:50:00.123 UTC."
    )


def test_a_batch_that_hangs_is_in_the_line(tmp_path):
    second, planned = 1_000_000, 1_700_000_000_000_000
    checkpoint, line = TableFolder(str(tmp_path)), LiveLine(0.0)
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets" / "7").write_text(f'v1\n{{"batchTimestampMs":{planned // 1000}}}\n17')
    assert delay_text(checkpoint, planned + 9 * second) == ""
    line.delay = delay_text(checkpoint, planned + 72 * second)
    assert line.delay == "batch 7 has no commit after 1 min 12 s, and its first row has waited for at least 1 min 12 s"
    assert line.text(80.0, None) == line.delay, "of a first batch, too"
    line.add(commit(0), 8.0)
    text = line.text(80.0, 0.47)
    assert " · staleness at the last commit p50 340 ms, p99 2.1 s · " in text
    assert text.endswith(f" UTC · {line.delay}")
    (tmp_path / "commits" / "7").write_text("v1\n{}")
    assert delay_text(checkpoint, planned + 72 * second) == ""


def test_conflicts_of_the_whole_run_are_reported():
    line = LiveLine(0.0)
    line.add(commit(0), 1.0)
    assert "conflict" not in line.text(2.0, None) + line.farewell()
    line.add(commit(1, conflicts=1), 2.0)
    assert " superseded · 1 conflict · staleness" in line.text(3.0, None)
    line.add(commit(2, conflicts=2_000_000), 3.0)
    line.add(commit(3), 4.0)
    assert " superseded · 2.00 M conflicts · staleness" in line.text(5.0, None)
    assert "360 superseded, 2,000,001 conflicts; the table" in line.farewell()


def test_line_of_a_queue_and_a_target():
    line = LiveLine(0.0)
    line.add(commit(0, pending=0, oldest=None, target="p99 < 2.0 s", target_met=True), 1.0)
    assert " · 0 waiting · p99 < 2.0 s met in 100 % · complete" in line.text(2.0, None)
    late = {"pending": 1_500_000, "oldest": 62.4, "target": "p99 < 2.0 s", "target_met": False}
    line.add(commit(1, **late, needed_rows_per_s=1234.4), 2.0)
    line.add(commit(2, **late), 3.0)
    line.add(commit(3, **{**late, "target_met": None}), 3.0)
    assert " · 1.50 M waiting, the oldest 1 min 02 s · p99 < 2.0 s met in 33 % · complete" in line.text(4.0, None)
    line.add(commit(4, **late, needed_rows_per_s=1234.4), 4.0)
    assert "met in 25 % (needs 1,234 rows/s) · complete" in line.text(4.0, None)
    assert line.farewell().endswith("; p99 < 2.0 s met in 25 % of batches.")


def test_late_and_suspect_rows_and_who_waits_are_in_the_line_and_in_the_farewell():
    line = LiveLine(0.0)
    line.waits_for = "1 feed waits for b, 30.0 s behind"
    line.add(commit(0, sources=SourceCounts(1200, 30, 20, 1)), 1.0)
    assert " superseded · 30 late · 1 suspect · " in line.text(2.0, None)
    assert line.text(2.0, None).endswith(" · 1 feed waits for b, 30.0 s behind")
    assert line.farewell().endswith(" 1,200 rows received, 30 late (20 of feeds that counted as idle), 1 suspect.")


def test_rate_is_over_the_last_five_seconds():
    line = LiveLine(0.0)
    line.add(commit(updates=1000), 1.0)
    assert line.rows_per_second(2.0) == 500
    line.add(commit(updates=2000), 5.0)
    assert line.rows_per_second(5.0) == 600
    assert line.rows_per_second(9.0) == 250  # since the commit at 1.0
    assert line.rows_per_second(10.1) == 0


def test_counts_in_the_line():
    assert [short_count(number) for number in (0, 1234.4, 1_234_567, 2.5e9)] == ["0", "1,234", "1.23 M", "2.50 G"]


@given(st.integers(1, 1000), st.integers(1, 50), st.floats(0.01, 60))
def test_remaining_of_a_steady_backlog(bytes_per_row, batches, seconds):
    """With batches of one size and pace, what is told is exact."""
    remaining, total = TimeEstimate(), batches + 3
    for done in range(1, batches + 3):
        remaining.report((total - done) * 10 * bytes_per_row, done * 10, done * seconds)
    done = batches + 2
    assert remaining.fraction() == pytest.approx(done / total)
    assert remaining.seconds(done * seconds) == pytest.approx((total - done) * seconds)


def test_remaining_is_not_reported_before_it_is_known():
    remaining = TimeEstimate()
    assert (remaining.fraction(), remaining.seconds(1.0)) == (None, None)
    remaining.report(100, 0, 0.0)
    assert (remaining.fraction(), remaining.seconds(1.0)) == (None, None)
    remaining.report(120, 10, 1.0)  # more came than was taken
    assert (remaining.fraction(), remaining.seconds(1.0)) == (None, None)
