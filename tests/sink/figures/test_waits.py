"""The time up to which a commit is complete, and what its oldest answer waits for."""

import dataclasses

import pytest

from upstream.core.feedback.ages import Staleness
from upstream.core.feedback.checkpoint_layout import SparkTimes
from upstream.core.watermark.bounds import BEFORE_ALL
from upstream.delta_format.latest_table import NOTHING_YET
from upstream.sink.figures.summary import BatchTimes, CommitSummary
from upstream.sink.figures.waits import StageBacklog, batch_spans, complete_to, feed_lines, oldest_wait, waits_for


def commit(batch: int = 0, **changes: object) -> CommitSummary:
    values: dict[str, object] = {
        "batch_id": batch, "query_id": "q", "committed_at_us": 0, "rows": 10, "updates": 10, "applied": 10,
        "superseded": 0, "older": 0, "keys": 10, "low_watermarks": {"feed": 7}, "low_watermark": 7,
        "staleness": Staleness(0.4, 0.34, 2.1, 3.0),
    }  # fmt: skip
    return CommitSummary(**{**values, **changes})  # type: ignore[arg-type]


def test_times_up_to_which_a_commit_is_complete():
    assert complete_to(commit(low_watermark="2016-11-24T22:50:00.000000Z")) == "2016-11-24 22:50:00 UTC"
    assert complete_to(commit(low_watermark=17)) == "17"
    assert complete_to(commit(low_watermark=None, low_watermarks={"feed": None})) == "the end"
    assert complete_to(commit(low_watermark=None, low_watermarks={})) == "no known time"


S = 1_000_000


def offset(**bounds: int | None) -> dict[str, object]:
    return {
        "progress": {f"/in/{feed}": {"bound": bound, "received": 1} for feed, bound in bounds.items()},
        "heard": {f"/in/{feed}": 10 * S for feed in bounds},
        "ended": ["/in/over"],
    }


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"a": 100 * S}, ""),
        ({"a": 100 * S, "b": 100 * S + 1}, ""),
        ({"a": 100 * S, "b": None}, ""),
        ({"a": 100 * S, "over": 0}, ""),
        ({"a": BEFORE_ALL}, "1 row is too few for a low-watermark"),
        ({"a": 100 * S, "b": BEFORE_ALL}, "the others wait for b: its 1 row is too few for a low-watermark"),
        ({"a": 100 * S, "b": 70 * S}, "1 feed waits for b, 30.0 s behind, silent for 5.0 s"),
        ({"a": 100 * S, "b": 70 * S, "c": 80 * S}, "2 feeds wait for b, 30.0 s behind, silent for 5.0 s"),
    ],
)
def test_who_waits_for_whom(bounds, expected):
    assert waits_for(offset(**bounds), 15 * S) == expected


def marks(at_s: int, **low: int | None) -> CommitSummary:
    least = min((bound for bound in low.values() if bound is not None), default=None)
    return commit(at_s, committed_at_us=at_s * S, low_watermarks=low, low_watermark=least)


def test_a_line_for_each_feed_reports_which_holds_the_others_back_and_how_long():
    summaries = [marks(0, a=1, b=5, c=None), marks(10, a=2, b=6, c=None), marks(40, a=2, b=7, c=None)]
    assert feed_lines(summaries) == [
        "a: complete to 2; the others wait for it, for 30.0 s now",
        "b: complete to 7",
        "c: ended",
    ]
    assert feed_lines([marks(0, a=2, b=2)]) == ["a: complete to 2", "b: complete to 2"]
    assert waits_for({}, 0) == ""
    assert feed_lines([]) == []
    assert feed_lines([commit(0)]) == []


def waiting(summaries, *offsets, at_s=50, held=(), **more):
    return oldest_wait(summaries, offsets, at_s * S, held, **more)


def test_the_oldest_answer_waits_for_the_partition_that_is_behind():
    found = waiting([marks(50, a=70, b=100)], offset(a=70 * S, b=100 * S))
    assert (found.kind, found.name, found.age_us) == ("partition", "/in/a", 40 * S)
    assert found.sentence == "complete to 70; waits for a, silent for 40.0 s"


def test_without_the_offset_the_commits_show_since_when_the_partition_stands():
    history = [marks(0, a=1, b=5), marks(10, a=2, b=6), marks(40, a=2, b=7)]
    found = waiting(history)
    assert (found.name, found.reason, found.age_us) == ("a", "waits for a, silent for 40.0 s", 40 * S)
    times = {"a": "2026-01-01T00:00:00.000000Z", "b": "2026-01-01T00:00:30.000000Z"}
    told = waiting([commit(0, low_watermarks=times, low_watermark=times["a"])], at_s=0)
    assert told.complete == "2026-01-01 00:00:00 UTC"
    assert told.name == "a"


def test_a_partition_without_a_low_watermark_holds_everything_back():
    known = offset(a=BEFORE_ALL, b=100 * S)
    known["progress"]["/in/a"]["received"] = 3
    backlog = commit(5, committed_at_us=50 * S, pending=9, oldest=1000.0)
    assert waiting([backlog], known).reason == "waits for a: its 3 rows are too few for a low-watermark"
    early = commit(5, low_watermarks={"a": NOTHING_YET, "b": 7}, low_watermark=None)
    assert waiting([early]).reason == "waits for a: it has too few rows for a low-watermark"


def test_the_longest_wait_counts_in_the_queue_or_for_a_partition():
    behind = offset(a=70 * S, b=100 * S)
    backlog = marks(50, a=70, b=100)
    queued = dataclasses.replace(backlog, pending=1200, oldest=41.0)
    found = waiting([queued], behind, queue="step-3")
    assert (found.kind, found.name) == ("queue", "step-3")
    assert found.sentence == "complete to 70; 1,200 updates wait in the queue, the oldest for 41.0 s"
    assert waiting([dataclasses.replace(queued, oldest=39.0)], behind).kind == "partition"
    assert waiting([dataclasses.replace(queued, pending=0, oldest=None)], behind).kind == "partition"


def test_a_stage_that_waits_for_the_low_watermark_waits_for_the_partition_that_holds_it_back():
    window = StageBacklog("step-2", "the window holds 3,200 rows", since_us=10 * S, needs="00:01:00")
    found = waiting([commit()], offset(a=100 * S, b=100 * S), held=[window])
    assert (found.kind, found.name) == ("stage", "step-2")
    assert found.reason == (
        "the window holds 3,200 rows, the oldest for 40.0 s, until the low-watermark passes 00:01:00"
    )
    assert waiting([commit()], offset(a=70 * S, b=100 * S), held=[window]).kind == "partition"
    later = StageBacklog("query:q", "results of q wait for a later batch", since_us=5 * S)
    assert waiting([commit()], offset(a=70 * S, b=100 * S), held=[later]).name == "query:q"


def test_when_nothing_waits_the_last_partition_is_silent_or_has_ended():
    close = offset(a=100 * S, b=100 * S)
    assert waiting([commit()], close, at_s=15).reason == "waits for a, silent for 5.0 s"
    assert waiting([commit()], close, at_s=10).sentence == "complete to 7; nothing waits"
    over = commit(0, low_watermarks={"a": None}, low_watermark=None)
    assert waiting([over]).sentence == "complete to the end; all partitions have ended"
    assert waiting([commit()], close, at_s=10, complete="noon").sentence == "complete to noon; nothing waits"


STEPS = {
    "triggerExecution": 3.0, "latestOffset": 0.2, "walCommit": 0.1, "getBatch": 0.0, "queryPlanning": 0.3,
    "addBatch": 2.1, "commitOffsets": 0.2,
}  # fmt: skip


def shown(spans):
    return [
        (each.depth, each.name.partition(" (")[0], round(each.start_s, 3), round(each.seconds, 3)) for each in spans
    ]


def test_the_time_of_a_batch_is_split_by_sparks_steps_and_its_run_by_the_sinks():
    times = BatchTimes(100 * S, 101 * S, rows_s=0.3, merge_s=0.5, began_us=102_400_000)
    made = commit(committed_at_us=102_600_000, times=times)
    spark = SparkTimes(0, 100 * S, STEPS)
    following = commit(1, times=dataclasses.replace(times, planned_us=104 * S))
    assert shown(batch_spans(made, following, spark)) == [
        (0, "batch", 0.0, 3.0),
        (1, "choose input", 0.0, 0.2),
        (1, "journal the offsets", 0.2, 0.1),
        (1, "plan", 0.3, 0.3),
        (1, "Spark, between its steps", 0.6, 0.1),
        (1, "run", 0.7, 2.1),
        (2, "Spark, and stages before the sink", 0.7, 0.9),
        (2, "slowest task of the sink", 1.6, 0.8),
        (3, "wait for rows", 1.6, 0.3),
        (3, "merge and write", 1.9, 0.5),
        (2, "commit", 2.4, 0.2),
        (1, "note the commit", 2.8, 0.2),
        (0, "until the next batch", 3.0, 1.0),
    ]
    # A hosted query's commits have no times of a sink, and a clock may differ.
    assert [name for _, name, *_ in shown(batch_spans(commit(), None, spark))][-2:] == ["run", "note the commit"]
    for off_us in (-10 * S, 10 * S):
        odd = dataclasses.replace(made, committed_at_us=made.committed_at_us + off_us)
        assert all(0 <= each.start_s <= each.start_s + each.seconds <= 3 for each in batch_spans(odd, None, spark))
