"""A query that stops and starts anywhere gives what one gives that does not; one that fits its checkpoint no more is
refused.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import upstream as us
from upstream.conf.errors import CheckpointError, OptionError
from upstream.testing import StreamTester

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
COUNT = us.aggregates.count()

JOBS: dict[str, Any] = {
    "windows": lambda s: (
        s.where("v > 1").window("4 minutes", "2 minutes", output="all", early=True, shards=2).agg(n=COUNT)
    ),
    "windows over windows": lambda s: (
        s.window("2 minutes", output="all", shards=2)
        .agg(n=COUNT)
        .window("6 minutes", output="all", shards=2)
        .agg(m=COUNT)
    ),
    "windows that keep rows": lambda s: s.window("3 minutes", method="buffering", shards=1).agg(n=COUNT),
    "queue": lambda s: s.queue(policy="linecutting", budget=3, shards=2, cost="1 ms"),
    "ordered": lambda s: s.ordered(shards=2, flush="slow", flush_rows=2),
    "distinct, deletions": lambda s: s.where("v > 2", on_leave="delete").distinct(shards=2),
}

rows = st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(0, 9))
batches = st.lists(
    st.tuples(
        st.lists(rows, max_size=6), st.sampled_from(["east", "west"]), st.none() | st.integers(0, 20), st.booleans()
    ),
    max_size=6,
)


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def run(job: str, given_batches: Any, *, restarts: bool) -> Any:
    watermark = us.Watermark.bounded("3 minutes").guarded(confirmations=2)
    t = StreamTester(JOBS[job], "k STRING, at TIMESTAMP, v INT", key="k", event_time="at", watermark=watermark)
    found: list[Any] = []
    for given_rows, feed, promise, restarted in given_batches:
        if restarts and restarted:
            t.restart()
        dicts = [{"k": key, "at": at(minute), "v": value} for key, minute, value in given_rows]
        found.append(t.batch(dicts, feed=feed, punctuation=None if promise is None else at(promise)))
        found.append(t.watermark)
    return found, t.end(), t.late, t.latest()


@pytest.mark.parametrize("job", JOBS)
@given(batches)
@settings(max_examples=8)
def test_restarts_change_nothing(job: str, given_batches: Any) -> None:
    assert run(job, given_batches, restarts=True) == run(job, given_batches, restarts=False)


def begun(job: Any) -> StreamTester:
    t = StreamTester(
        job, "k STRING, at TIMESTAMP, v INT", key="k", event_time="at",
        watermark=us.Watermark.ordered().guarded(confirmations=1),
    )  # fmt: skip
    t.batch([{"k": "a", "at": at(1), "v": 1}])
    return t


def test_state_outlives_the_restart() -> None:
    t = begun(lambda s: s.window("5 minutes").agg(n=COUNT))
    t.restart()
    assert [each["n"] for each in t.batch([{"k": "a", "at": at(2), "v": 1}], punctuation=at(5))] == [2]


def test_a_changed_program_is_held_against_the_checkpoint() -> None:
    t = begun(lambda s: s.window("5 minutes").agg(n=COUNT))
    with pytest.raises(CheckpointError, match=r"begun by another job: window .* has window "):
        t.restart(lambda s: s.window("6 minutes").agg(n=COUNT))
    with pytest.raises(CheckpointError, match=r"distinct \(upstream-reorder/0\) is new"):
        t.restart(lambda s: s.distinct().window("5 minutes").agg(n=COUNT))
    with pytest.raises(OptionError, match="inputs called s"):
        t.restart(lambda other: other)
    t.restart(lambda s: s.where("v < 5").window("5 minutes").agg(n=COUNT))  # a filter has no state
    t.batch([{"k": "a", "at": at(2), "v": 9}])
    assert [each["n"] for each in t.end()] == [1]


def test_a_queue_may_be_given_another_budget() -> None:
    t = StreamTester(lambda s: s.queue(policy="fifo", budget=1, shards=1), "k STRING", key="k")
    t.batch([{"k": key} for key in "abcd"])
    t.restart(lambda s: s.queue(policy="fifo", budget=2, shards=1))
    assert t.batch() == [{"k": "b"}, {"k": "c"}]
