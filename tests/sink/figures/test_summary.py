import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable
from kit.tables import read_letters

from upstream.core.feedback.ages import Ages, Staleness
from upstream.core.feedback.checkpoint_layout import queue_folder
from upstream.core.feedback.reports import QueueReport, write_report
from upstream.sink.figures.summary import CommitSummary, last_summary, read_summaries, run_figures
from upstream.sink.spec.steps import CommitStep

from ..deaths import dying_at


def test_json_round_trip():
    summary = CommitSummary(3, "q", 5, 10, 12, 4, 8, 1, 99, {"a": "2024", "b": None}, "2024", Staleness(1, 2, 3, 4), 0)
    assert CommitSummary.from_json(summary.to_json()) == summary


def test_reading_what_is_new(sink):
    assert read_summaries(str(sink.path)) == []
    for batch_id in range(5):
        sink.batch(batch_id, [sink.rows([(batch_id, 10, "a")], seq=batch_id)])
    path = str(sink.path)
    assert [(version, summary.batch_id) for version, summary in read_summaries(path)] == [(n + 1, n) for n in range(5)]
    assert [version for version, _ in read_summaries(path, 3)] == [4, 5]
    assert read_summaries(path, 5) == []
    assert read_summaries(path, 77) == []
    # Others' commits are no summaries, and a trimmed log starts later.
    DeltaTable(path).optimize.compact()
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    for version in range(3):
        (sink.path / "_delta_log" / f"{version:020d}.json").unlink()
    assert [version for version, _ in read_summaries(path, 1)] == [3, 4, 5]
    assert [version for version, _ in read_summaries(path)] == [3, 4, 5]


def others_commit(sink: Any, times: int) -> None:
    """As an owner who changes a property would: cheap commits without rows."""
    log = sink.path / "_delta_log"
    info = json.dumps({"commitInfo": {"timestamp": 1, "operation": "SET TBLPROPERTIES"}})
    first = sink.version() + 1
    for version in range(first, first + times):
        (log / f"{version:020d}.json").write_text(info)


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "forgotten"])
@pytest.mark.parametrize("times", [255, 256, 300])
def test_low_watermarks_outlive_any_number_of_foreign_commits(make_sink, remembered, times):
    sink = make_sink(deadLetterRows="late")
    sink.write(0, [sink.rows([(1, 10, "a")]), sink.punctuation(10)])
    others_commit(sink, times)
    if not remembered:
        (sink.checkpoint / "upstream-sink" / "last-commits.json").unlink()
    sink.write(1, [sink.rows([(2, 9, "late"), (3, 10, "in time")], seq=10)])
    assert last_summary(DeltaTable(str(sink.path)), "query-3") is None
    found = last_summary(DeltaTable(str(sink.path)), "query-1")
    assert found is not None
    assert (found.late, found.low_watermarks) == (1, {"feed": 10})
    assert [row["v"] for row in read_letters(sink.checkpoint / "dead_letters")] == ["late"]


def test_late_rows_are_put_out_however_much_others_have_committed(make_sink):
    sink = make_sink(deadLetterRows="late")
    sink.batch(0, [sink.rows([(1, 10, "a")]), sink.punctuation(10)])
    rows = [sink.rows([(2, 9, "late")], seq=10)]
    with dying_at(CommitStep.MAINTAINED):
        sink.write(1, rows)
    assert not read_letters(sink.checkpoint / "dead_letters")
    others_commit(sink, 300)
    sink.write(1, rows)
    assert [row["v"] for row in read_letters(sink.checkpoint / "dead_letters")] == ["late"]


NOW_US = 1_700_000_000_000_000


def report(
    sink: Any, shard: int, batch_id: int, age_s: float | None = None, waiting: int = 0, queue: int = 0, **changes: Any
) -> None:
    """Leave a shard's report, planned two seconds before the commit; what waits is `age_s` old at the commit."""
    names = [field.name for field in dataclasses.fields(QueueReport)]
    values: dict[str, Any] = dict.fromkeys(names, 0) | {
        "shard": shard,
        "batch_id": batch_id,
        "now_us": NOW_US - 2_000_000,
        "waiting": waiting,
        "oldest_us": None if age_s is None else NOW_US - round(age_s * 1e6),
        "ready_at_us": None,
        "places": [],
        "ages": Ages(),
        "stalest_keys": None,
    }
    write_report(queue_folder(str(sink.checkpoint), queue), QueueReport(**{**values, **changes}))


def commit(sink: Any, batch_id: int, age_s: float = 10.0) -> CommitSummary:
    rows = sink.rows([(batch_id, 10, "a")], seq=batch_id, first_arrival_us=[NOW_US - round(age_s * 1e6)])
    summary = sink.batch(batch_id, [rows])
    assert read_summaries(str(sink.path))[-1][1] == summary
    return summary


def test_two_queues_one_after_the_other(sink):
    """Rows arrive at the first and leave the last; what waits, waits in either."""
    late = Ages.of(np.array([9_000_000]))
    report(sink, 0, 4, 7.5, waiting=2, arrived=10, applied=6, superseded=2, ages=Ages.of(np.array([1_000_000])))
    report(sink, 0, 4, 20.0, waiting=3, queue=1, arrived=6, applied=1, superseded=2, ages=late)
    summary = commit(sink, 4)
    assert summary.queue is not None
    assert dataclasses.astuple(summary.queue)[1:4] == (10, 1, 4)
    assert summary.queue.staleness is not None
    assert summary.queue.staleness.max == 9.0
    assert (summary.pending, summary.oldest) == (5, 20.0)


def test_shards_of_the_batch_are_summed_and_the_others_still_wait(sink):
    ages = Ages.of(np.array([1_000_000, 3_000_000]))
    report(sink, 0, 4, 7.5, waiting=2, arrived=10, applied=2, superseded=5, older=1, conflicts=1, shed=3, ages=ages)
    report(sink, 1, 4, arrived=1, applied=1, ages=Ages.of(np.array([8_000_000])))
    report(sink, 2, 3, 90.0, waiting=5, arrived=100, applied=100)  # had no part in batch 4
    summary = commit(sink, 4)
    queue = summary.queue
    assert queue is not None
    assert dataclasses.astuple(queue)[:7] == (NOW_US - 2_000_000, 11, 3, 5, 1, 1, 3)
    assert queue.staleness is not None
    assert (queue.staleness.mean, queue.staleness.max) == (4.0, 8.0)
    assert (summary.pending, summary.oldest) == (7, 90.0)


def test_reports_of_earlier_batches_count_for_nothing(sink):
    report(sink, 0, 3, 7.5, waiting=2)
    assert commit(sink, 4).pending is None
    report(sink, 0, -1, 7.5, waiting=2)  # Spark did not set the batch
    summary = commit(sink, 5)
    assert (summary.queue, summary.pending, summary.oldest, summary.target_met) == (None, None, None, None)


def test_a_target_and_what_it_would_take(make_sink):
    sink = make_sink(target="p99 < 6 s")
    report(sink, 0, 0, 9.0, waiting=100, applied=50)
    summary = commit(sink, 0)
    # 50 rows in 2 s; 8 of 10 s were waiting, 4 would do.
    assert (summary.target, summary.target_met) == ("p99 < 6.0 s", False)
    assert summary.needed_rows_per_s == pytest.approx(50)
    assert summary.needed_budget == 100
    report(sink, 0, 1, 99.0, waiting=100, applied=50)
    met = commit(sink, 1, 5.0)
    assert (met.target_met, met.needed_rows_per_s) == (True, None)


@pytest.mark.parametrize(
    ("target", "report_of", "age_s", "met"),
    [
        ("max <= 6 s", {"age_s": 99.0, "waiting": 1}, 5.0, False),  # the oldest that waits counts
        ("mean < 2 s", {}, 10.0, False),  # batches are too long for it
        ("mean < 2 s", {}, None, None),  # nothing says when rows arrived
    ],
)
def test_what_a_target_goes_by(make_sink, target, report_of, age_s, met):
    sink = make_sink(target=target, system=age_s is not None)
    report(sink, 0, 0, applied=50, **report_of)
    summary = sink.batch(0, [sink.rows([(1, 10, "a")])]) if age_s is None else commit(sink, 0, age_s)
    assert summary.target_met is met
    assert report_of or summary.needed_rows_per_s is None, "more rows a second would not help"


def test_the_figures_of_a_run(make_sink):
    sink = make_sink(target="mean < 8 s")
    assert run_figures([]) is None
    for batch_id, age in enumerate([4.0, 6.0, 20.0]):
        report(sink, 0, batch_id, 9.0, waiting=3, applied=1)
        commit(sink, batch_id, age)
    summaries = [summary for _, summary in read_summaries(str(sink.path))]
    spread = [dataclasses.replace(each, committed_at_us=NOW_US + n * 10**7) for n, each in enumerate(summaries)]
    other = dataclasses.replace(spread[0], query_id="another")
    run = run_figures([other, *spread])
    assert run is not None
    assert (run.commits, run.applied, run.pending, run.oldest, run.seconds) == (3, 3, 3, 9.0, 24.0)
    assert run.staleness is not None
    assert (run.staleness.mean, run.staleness.max) == (10.0, 20.0)
    assert run.target_met == pytest.approx(2 / 3)
    assert run.over_time is not None
    areas = [each.area for each in spread if each.area is not None]
    assert run.over_time[0] == pytest.approx(sum(low for low, _ in areas) / (6 * 24))
    assert run.over_time[1] == pytest.approx((8 + 18 + 200 + 3 * 81 / 2) / (3 * 24))
