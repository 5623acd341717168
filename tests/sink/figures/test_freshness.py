"""Staleness now, from commits and from the batch that Spark has journaled and the table does not show."""

import dataclasses
import json

import pytest

from upstream.core.feedback.ages import Staleness
from upstream.sink.figures.freshness import JournaledBatch, freshness
from upstream.sink.figures.summary import CommitSummary
from upstream.storage.folder import TableFolder

S = 1_000_000
NOW = 1_700_000_000 * S
MINUTES = 60 * S


def commit(at_us, batch=4, *, staleness=3.7, target="p99 < 10.0 s", met=True, **more):
    figures = Staleness(staleness / 2, staleness / 2, staleness, staleness)
    return CommitSummary(
        batch, "query-1", at_us, 10, 10, 10, 0, 0, 10, {}, None, figures, target=target, target_met=met, **more
    )


def source(*ranges, now_us=NOW, name="s"):
    parts = [
        {"feed": "f", "place": place, "span": span, "arrival_us": arrival_us} for span, arrival_us, place in ranges
    ]
    return json.dumps({"id": name, "connector": "files", "now_us": now_us, "progress": {}, "ranges": parts})


def noted(*lines, at_us=NOW):
    return "\n".join(["v1", json.dumps({"batchTimestampMs": at_us // 1000}), *lines]).encode()


def batch(*lines, before=b"", number=5, at_us=NOW, is_done=False):
    return JournaledBatch.of(number, noted(*lines, at_us=at_us), before, is_done=is_done)


def test_a_batch_that_hangs_makes_the_table_stale_though_its_last_commit_met_the_target():
    hung = batch(source((5_000, NOW - 2 * S, {})))
    commits = [commit(NOW - S)]
    early = freshness(commits, hung, NOW + S)
    assert (early.now.p99, early.target_met, early.batch_text) == (3.7, True, ""), "as of a batch that runs normally"
    late = freshness(commits, hung, NOW + 2 * MINUTES)
    assert late.now == Staleness(122.0, 122.0, 122.0, 122.0)
    assert (late.target_met, late.at_least, late.is_past) == (False, False, True)
    assert (late.batch_us, late.waiting_us) == (120 * S, 122 * S)
    assert late.batch_text == "batch 5 has no commit after 2 min 00 s, and its first row has waited for 2 min 02 s"
    assert late.at_commit.p99 == 3.7


def test_without_a_target_the_age_grows_and_nothing_is_missed():
    found = freshness([commit(NOW - S, target=None, met=None)], batch(source((9, NOW, {}))), NOW + 60 * S)
    assert (found.target_met, found.now.max, found.batch_us) == (None, 60.0, 60 * S)
    assert found.batch_text


def test_each_figure_is_of_the_rows_of_the_batch():
    """Of 100 rows, 1 arrived a minute before the others: the mean and the median do not miss a target for it."""
    ranges = source((1, NOW - MINUTES, {}), (99, NOW, {}))
    waits = batch(ranges).figures(NOW + 4 * S)
    assert waits == Staleness(4.6, 4.0, 4.0, 64.0)
    assert batch(source((2, NOW - MINUTES, {}), (98, NOW, {}))).figures(NOW).p99 == 60.0
    for target, met in (("mean < 10.0 s", True), ("p50 < 4 s", False), ("max <= 1 min", False)):
        found = freshness([commit(NOW - S, target=target)], batch(ranges), NOW + 4 * S)
        assert found.target_met is met, target


def test_a_range_with_several_arrivals_counts_each():
    place = {"from": 100, "to": 400, "arrivals": [[200, NOW - 9 * S], [400, NOW - 3 * S]]}
    found = batch(source((300, None, place)))
    assert found.arrivals == ((NOW - 9 * S, 100), (NOW - 3 * S, 200))
    assert found.is_exact


def test_a_source_without_new_rows_does_not_count():
    """Its line is that of the batch before, with ranges that are answered."""
    old = source((7, NOW - 9 * MINUTES, {}), name="b")
    before = noted(source((7, NOW - 8 * S, {})), old, at_us=NOW - 8 * S)
    found = batch(source((3, NOW - S, {})), old, before=before)
    assert found.arrivals == ((NOW - S, 3),)


@pytest.mark.parametrize(
    "line",
    ['{"topic":{"0":7}}', "17", source((5, None, {"number": 0, "from": [0, 1, 2], "to": [0, 1, 3]}))],
    ids=["kafka", "rate", "synthetic"],
)
def test_without_arrivals_rows_are_as_old_as_the_batch_at_least(line):
    found = freshness([commit(NOW - S)], batch(line, at_us=NOW), NOW + 30 * S)
    assert (found.now.p50, found.at_least, found.target_met) == (30.0, True, False)


def test_a_batch_that_is_answered_does_not_count():
    rows = source((5, NOW - 9 * S, {}))
    for journal in (batch(rows, is_done=True), batch(rows, number=4), batch(rows, number=3)):
        found = freshness([commit(NOW)], journal, NOW + S)
        assert (found.unanswered, found.now.p99, found.target_met) == (None, 3.7, True)


def test_an_idle_stream_is_as_fresh_as_its_input():
    """Neither does a figure grow for ever, nor does a verdict of the past last for ever."""
    commits, journal = [commit(NOW, staleness=500.0, met=False)], batch(number=4, is_done=True)
    soon = freshness(commits, journal, NOW + 8 * MINUTES)
    assert (soon.now.p99, soon.target_met, soon.is_past, soon.is_idle) == (500.0, False, False, False)
    idle = freshness(commits, journal, NOW + 9 * MINUTES)
    assert (idle.now.max, idle.target_met, idle.is_past, idle.is_idle) == (0.0, True, True, True)
    assert idle.at_commit.p99 == 500.0
    again = freshness(commits, batch(source((5, NOW + 9 * MINUTES, {}))), NOW + 9 * MINUTES + 3 * S)
    assert (again.now.p99, again.target_met, again.is_idle) == (3.0, True, False)


def test_without_a_process_only_rows_that_were_read_have_an_age():
    commits = [commit(NOW - S)]
    dead = freshness(commits, batch(source((5, NOW, {}))), NOW + MINUTES, is_written=False)
    assert (dead.now.p99, dead.target_met) == (60.0, False)
    for journal in (batch(number=4), batch('{"tick":3}', source()), None):
        found = freshness(commits, journal, NOW + MINUTES, is_written=False)
        assert (found.now, found.target_met, found.is_past, found.is_idle) == (None, True, True, False)


def test_without_a_journal_the_last_commit_is_all_that_is_known():
    found = freshness([commit(NOW, met=False)], None, NOW + 9 * MINUTES)
    assert (found.now, found.target_met, found.is_idle) == (None, False, False)
    assert found.stale_text == "1.9 s stale on average at the last change, 9 min 00 s ago"
    assert found.target_text == "the target p99 < 10.0 s was missed"


def test_a_batch_without_rows_delays_the_input():
    """No input is read meanwhile, and what the queue holds is older than the batch."""
    found = freshness([commit(NOW - S)], batch('{"tick":3}', source()), NOW + 30 * S)
    assert (found.now.p99, found.target_met, found.waiting_us) == (30.0, False, None)
    assert found.batch_text == "batch 5 has no commit after 30.0 s"


def test_the_oldest_update_of_a_queue_grows_older_and_counts_for_the_maximum():
    waiting = {"pending": 9, "oldest": 6.0}
    found = freshness([commit(NOW, **waiting)], batch(number=4, is_done=True), NOW + MINUTES)
    assert (found.now.max, found.now.p99, found.target_met, found.is_idle) == (66.0, 3.7, True, False)
    dead = freshness([commit(NOW, met=False, **waiting)], None, NOW + MINUTES, is_written=False)
    assert (dead.now, dead.target_met) == (None, False)
    commits = [commit(NOW, target="max < 1 min", **waiting)]
    assert freshness(commits, None, NOW + 50 * S).target_met
    assert not freshness(commits, None, NOW + 54 * S).target_met


def test_a_commit_that_applied_nothing_has_the_verdict_of_the_one_before():
    without = dataclasses.replace(commit(NOW, 5, met=None), staleness=None)
    found = freshness([commit(NOW - 2 * S, met=False), without], batch(number=5, is_done=True), NOW + S)
    assert (found.target_met, found.now.p99, found.since_commit_us, found.since_change_us) == (False, 3.7, S, 3 * S)
    assert freshness([], None, NOW) is None


def test_the_journal_has_the_last_batch(tmp_path):
    folder = TableFolder(str(tmp_path))
    assert JournaledBatch.read(folder) is None
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    old = source((7, NOW - 9 * MINUTES, {}), name="b")
    (tmp_path / "offsets" / "9").write_bytes(noted(source((1, NOW - 8 * S, {})), old))
    (tmp_path / "offsets" / "10").write_bytes(noted(source((3, NOW - S, {})), old))
    (tmp_path / "offsets" / ".11.tmp").write_bytes(b"v1")
    (tmp_path / "commits" / "9").write_bytes(b"v1\n{}")
    found = JournaledBatch.read(folder)
    assert (found.number, found.first_us, found.planned_us, found.is_done) == (10, NOW - S, NOW, False)
    (tmp_path / "commits" / "10").write_bytes(b"v1\n{}")
    assert JournaledBatch.read(folder).is_done
