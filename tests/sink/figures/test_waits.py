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


def window(needs_s: int = 90, since_s: int = 10) -> StageBacklog:
    return StageBacklog("step-2", "the window holds 3,200 rows", since_us=since_s * S, needs_us=needs_s * S)


BEHIND = offset(a=70 * S, b=100 * S)


def test_a_silent_partition_delays_completeness_and_no_answer_if_no_stage_holds_rows():
    found = waiting([marks(50, a=70, b=100)], BEHIND)
    assert (found.kind, found.name, found.age_us) == ("nothing", "", None)
    assert found.sentence == (
        "complete to 70: waits for a, silent for 40.0 s. No update waits, and no row has arrived for 40.0 s"
    )


def test_a_silent_partition_makes_answers_stale_where_a_window_holds_rows_for_it():
    found = waiting([marks(50, a=70, b=100)], BEHIND, held=[window()])
    assert (found.kind, found.name, found.age_us) == ("partition", "/in/a", 40 * S)
    assert found.sentence == (
        "complete to 70; the window holds 3,200 rows, the oldest for 40.0 s, and waits for a, silent for 40.0 s"
    )
    # The other partitions' low-watermark would not release these rows either.
    later = waiting([marks(50, a=70, b=100)], BEHIND, held=[window(needs_s=101)])
    assert (later.kind, later.name) == ("stage", "step-2")
    assert later.sentence == (
        "complete to 70: waits for a, silent for 40.0 s. The window holds 3,200 rows, the oldest for 40.0 s, until the "
        "low-watermark passes 1970-01-01 00:01:41 UTC"
    )


def test_the_queue_is_the_reason_for_staleness_however_long_a_partition_is_silent():
    queued = dataclasses.replace(marks(50, a=70, b=100), pending=1200, oldest=4.0)
    alone = waiting([queued], offset(a=100 * S, b=100 * S), queue="step-3")
    assert (alone.kind, alone.name, alone.age_us) == ("queue", "step-3", 4 * S)
    assert alone.sentence == "complete to 70; 1,200 updates wait in the queue, the oldest for 4.0 s"
    both = waiting([queued], BEHIND, queue="step-3")
    assert (both.kind, both.name, both.age_us) == ("queue", "step-3", 4 * S)
    assert both.sentence == (
        "complete to 70: waits for a, silent for 40.0 s. 1,200 updates wait in the queue, the oldest for 4.0 s"
    )


def test_the_older_wait_counts_in_the_queue_or_in_a_window_that_a_partition_holds_back():
    queued = dataclasses.replace(marks(50, a=70, b=100), pending=1200, oldest=41.0)
    assert waiting([queued], BEHIND, held=[window(since_s=10)]).kind == "queue"
    assert waiting([queued], BEHIND, held=[window(since_s=8)]).kind == "partition"


def test_if_the_reports_of_stages_are_lost_the_partition_may_be_the_reason():
    assert waiting([marks(50, a=70, b=100)], BEHIND, held=None).sentence == (
        "complete to 70; waits for a, silent for 40.0 s"
    )
    assert waiting([marks(50, a=70, b=70)], offset(a=70 * S, b=70 * S), at_s=10, held=None).kind == "nothing"


def test_without_the_offset_the_commits_show_since_when_the_partition_stands():
    history = [marks(0, a=1, b=5), marks(10, a=2, b=6), marks(40, a=2, b=7)]
    found = waiting(history, held=None)
    assert (found.name, found.reason, found.age_us) == ("a", "waits for a, silent for 40.0 s", 40 * S)
    assert waiting(history, held=[window()]).name == "a"
    times = {"a": "2026-01-01T00:00:00.000000Z", "b": "2026-01-01T00:00:30.000000Z"}
    told = waiting([commit(0, low_watermarks=times, low_watermark=times["a"])], at_s=0, held=None)
    assert told.complete == "2026-01-01 00:00:00 UTC"
    assert told.name == "a"


def test_a_partition_without_a_low_watermark_holds_back_each_stage_that_needs_one():
    early = offset(a=BEFORE_ALL, b=100 * S)
    early["progress"]["/in/a"]["received"] = 3
    backlog = commit(5, committed_at_us=50 * S, pending=9, oldest=1.0)
    few = "waits for a: its 3 rows are too few for a low-watermark"
    assert waiting([backlog], early, held=[window(needs_s=1000)]).reason.endswith(f"and {few}")
    assert waiting([backlog], early).sentence == (
        f"complete to 7: {few}. 9 updates wait in the queue, the oldest for 1.0 s"
    )
    fresh = commit(5, low_watermarks={"a": NOTHING_YET, "b": 7}, low_watermark=None)
    assert waiting([fresh]).holds_back == "waits for a: it has too few rows for a low-watermark"


def test_a_stage_without_a_partition_behind_waits_for_time_or_a_later_batch():
    close = offset(a=100 * S, b=100 * S)
    found = waiting([commit()], close, held=[window(needs_s=60)])
    assert (found.kind, found.name) == ("stage", "step-2")
    assert found.reason == (
        "the window holds 3,200 rows, the oldest for 40.0 s, until the low-watermark passes 1970-01-01 00:01:00 UTC"
    )
    later = StageBacklog("query:q", "results of q wait for a later batch", since_us=5 * S)
    assert waiting([commit()], BEHIND, held=[later]).name == "query:q"


def test_when_nothing_waits_no_partition_is_the_reason():
    close = offset(a=100 * S, b=100 * S)
    assert waiting([commit()], close, at_s=15).reason == "no update waits, and no row has arrived for 5.0 s"
    assert waiting([commit()], close, at_s=10).sentence == "complete to 7; no update waits"
    over = commit(0, low_watermarks={"a": None}, low_watermark=None)
    assert waiting([over]).sentence == "complete to the end; all partitions have ended"
    assert waiting([commit()], close, at_s=10, complete="noon").sentence == "complete to noon; no update waits"


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
