"""Feeds of any rows: what they promise is what the policy says of their times, whatever the tasks, the frames' order
and the restarts.
"""

import itertools
import json
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import MalformedRowError
from upstream.core.rows.system_column import SYSTEM, TIMESTAMP
from upstream.core.watermark.policies import FeedProgress, Policy
from upstream.operators.ingest.plan import ARRIVAL, DELETED, FEED, ORDER, IntakePlan
from upstream.operators.ingest.shard import REASON, IntakeShard, frames_of
from upstream.operators.state.store import DictStore

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
S = 1_000_000


def plan(policy=None, **changes):
    given = {
        "name": "rows", "key": ("k",), "time": "t", "time_format": "epoch_s", "time_zone": "UTC", "fail": False,
        "shards": 1, "schema": SCHEMA,
        "policy": policy or Policy("bounded", 5 * S, max_jump_us=1000 * S, confirmations=2),
    }  # fmt: skip
    return IntakePlan(**{**given, **changes})


def rows(feeds, keys, times, values=None, arrival_us=7, order=None, deleted=None):
    n = len(feeds)
    columns = {
        "k": pa.array(keys, pa.string()),
        "t": pa.array(times, pa.int64()),
        "v": pa.array(range(n) if values is None else values, pa.int64()),
        FEED: pa.array(feeds, pa.string()),
        ARRIVAL: pa.array([arrival_us] * n, pa.int64()).cast(TIMESTAMP),
    }
    if order is not None:
        columns[ORDER] = pa.array(order, pa.int64())
    if deleted is not None:
        columns[DELETED] = pa.array(deleted)
    return pa.table(columns)


def frames(table, task=0, part=0, *, every_shard=False):
    return frames_of(table, [0], (task, part), every_shard=every_shard).column("frame").to_pylist()


def split(table):
    mark = pa.array([each["punctuation"] for each in table.column(SYSTEM).to_pylist()])
    return table.filter(pa.compute.invert(mark)).to_pylist(), table.filter(mark).to_pylist()


def run(shard, parts, batch_id, promises=None):
    """The rows of a batch, and the report on each feed."""
    result, report = shard.run(parts, batch_id=batch_id, control=json.dumps({"promises": promises or {}}))
    return result, list(report.feeds)


batches = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.booleans()), max_size=12), min_size=1, max_size=6
)


@given(batches=batches, tasks=st.integers(1, 3), seed=st.integers(0, 5))
def test_each_feed_promises_what_its_policy_gives_and_no_row_is_lost(batches, tasks, seed):
    asked, store = plan(), DictStore()
    expected = {}
    number, promised, came, seen_late = 0, {}, [], 0
    for batch_id, batch in enumerate(batches):
        parts, values = [], list(range(number, number + len(batch)))
        number += len(batch)
        cuts = np.linspace(0, len(batch), tasks + 1).astype(int)
        for task, (low, high) in enumerate(itertools.pairwise(cuts)):
            some = batch[low:high]
            if some:
                keys = ["x" if good else None for _, _, good in some]
                table = rows([f for f, _, _ in some], keys, [t for _, t, _ in some], values[low:high], 10 + batch_id)
                parts += frames(table, task)
        random.Random(seed).shuffle(parts)
        before = dict(store.values)
        first = run(IntakeShard(0, asked, store), parts, batch_id)
        store.values = before  # the batch runs again
        shard = IntakeShard(0, asked, store)
        result, reports = run(shard, parts, batch_id)
        assert (result, reports) == first
        late = []
        for feed in sorted({feed for feed, _, good in batch if good}):
            progress = expected.setdefault(feed, FeedProgress(asked.policy))
            times = [t for f, t, good in batch if f == feed and good]
            late += [t for t in times if progress.bound is not None and t * S < progress.bound]
            progress.observe(np.array(times) * S)
            progress.close_batch(0)
        given_rows, punctuation = ([], []) if result is None else split(result)
        good = [(f, t, v) for (f, t, ok), v in zip(batch, values, strict=True) if ok]
        assert sorted((r[SYSTEM]["source"], r["t"], r["v"]) for r in given_rows) == sorted(good)
        came += given_rows
        assert sorted(r["t"] for r in ([] if shard.late is None else shard.late.to_pylist())) == sorted(late)
        seen_late += len(late)
        assert (0 if shard.malformed is None else shard.malformed.num_rows) == sum(not ok for _, _, ok in batch)
        for mark in punctuation:
            feed, bound = mark[SYSTEM]["source"], mark["t"]
            assert bound > promised.get(feed, -(1 << 64)), "punctuation is repeated, or goes back"
            promised[feed] = bound
            assert (mark["k"], mark["v"]) == (None, None)
        # A feed with too few rows for a bound says that it is there, so that nobody goes on without it.
        least = np.iinfo(np.int64).min
        bounds = {feed: p.bound for feed, p in expected.items() if p.bound is not None}
        assert promised == {feed: least if bound == least else bound // S for feed, bound in bounds.items()}
        by_name = {report.feed: report for report in reports}
        assert sum(report.rows for report in by_name.values()) == number
        assert sum(report.late for report in by_name.values()) == seen_late
        assert all(report.progress is None for report in reports), "nobody asked for on-demand timestamps"
    # In each feed rows are in the order of the tasks, and later batches come later whatever their feed.
    for feed in "abc":
        own = [row for row in came if row[SYSTEM]["source"] == feed]
        assert [row["v"] for row in sorted(own, key=lambda row: row[SYSTEM]["seq"])] == [row["v"] for row in own]
        assert [row["v"] for row in own] == sorted(row["v"] for row in own)
    seqs = [row[SYSTEM]["seq"] for row in came]
    assert len(set(seqs)) == len(seqs)


def test_the_order_within_a_feed_is_the_one_that_is_named():
    # Two tasks, of which the second has the earlier offsets: by n = 2 the newest times are held back.
    policy = Policy("displaced", displacement=2, confirmations=1)
    one = frames(rows(["a"] * 3, ["x"] * 3, [4, 5, 6], [4, 5, 6], order=[4, 5, 6]), task=0)
    two = frames(rows(["a"] * 3, ["x"] * 3, [1, 2, 3], [1, 2, 3], order=[1, 2, 3]), task=1)
    for parts in ([*one, *two], [*two, *one]):
        table, _ = run(IntakeShard(0, plan(policy), DictStore()), parts, 0)
        given_rows, marks = split(table)
        assert [row["v"] for row in given_rows] == [1, 2, 3, 4, 5, 6]
        assert [mark["t"] for mark in marks] == [4]


def test_a_century_ahead_moves_nothing_and_is_given():
    table, reports = run(
        IntakeShard(0, plan(), DictStore()), frames(rows(["a"] * 4, ["x"] * 4, [10, 11, 3_155_760_000, 12])), 0
    )
    given_rows, marks = split(table)
    assert len(given_rows) == 4
    assert [mark["t"] for mark in marks] == [7]
    assert reports[0].suspects == 1


def test_failing_reports_what_is_wrong_with_which_row():
    bad = frames(rows(["a", "a"], ["x", None], [1, 2], [5, 6]))
    with pytest.raises(MalformedRowError, match=r"'k' is null.*'v': 6"):
        run(IntakeShard(0, plan(fail=True), DictStore()), bad, 0)


def test_rows_without_a_feed_or_a_time_are_put_aside_and_counted():
    shard = IntakeShard(0, plan(), DictStore())
    table, reports = run(shard, frames(rows([None, "a", "a"], ["x", "x", "x"], [1, 2, None])), 0)
    assert len(split(table)[0]) == 1
    assert ["feed" in reason for reason in shard.malformed.column(REASON).to_pylist()] == [True, False]
    assert sum(report.malformed for report in reports) == 2


def test_by_the_clock_silent_feeds_move_too_and_the_clock_does_not_go_back():
    asked = plan(Policy("arrival"), time="came", time_format=None)
    store = DictStore()
    for number, (feeds, clock) in enumerate([(["a", "b"], 100), (["a"], 200), (["b"], 150)]):
        part = frames(rows(feeds, ["x"] * len(feeds), [1] * len(feeds), arrival_us=clock), every_shard=True)
        table, reports = run(IntakeShard(0, asked, store), part, number)
        given_rows, marks = split(table)
        now = max(clock, 100 if number == 0 else 200)
        assert [row["came"].microsecond for row in given_rows] == [now] * len(feeds)
        assert {report.bound for report in reports} == {now}
        assert len(marks) == (2 if number < 2 else 0)
    table, reports = run(IntakeShard(0, asked, store), frames(rows(["c"], ["x"], [1], arrival_us=300))[:0], 3)
    assert table is None, "no frame, no news"
    assert {report.bound for report in reports} == {200}


def test_punctuation_of_the_feed_itself():
    asked = plan(Policy("embedded", max_jump_us=1000 * S, confirmations=1))
    part = rows(["a"] * 4, ["x", None, "y", "x"], [10, 9, 8, 12], [1, None, None, 2])
    table, _ = run(IntakeShard(0, asked, DictStore()), frames(part), 0)
    given_rows, marks = split(table)
    assert [row["t"] for row in given_rows] == [10, 12]
    assert sorted((mark["k"] or "", mark["t"]) for mark in marks) == [("", 9), ("y", 8)]


def test_tombstones_are_marked():
    part = rows(["a"] * 2, ["x"] * 2, [1, 2], deleted=[False, True])
    table, _ = run(IntakeShard(0, plan(), DictStore()), frames(part), 0)
    assert [row[SYSTEM]["deleted"] for row in split(table)[0]] == [False, True]


def test_text_becomes_a_timestamp_and_local_times_are_read_in_their_zone():
    schema = pa.schema([("k", pa.string()), ("t", pa.string())])
    asked = plan(schema=schema, time_format="%Y-%m-%d %H:%M", time_zone="Europe/Paris")
    part = rows(["a"] * 3, ["x"] * 3, [0] * 3).drop_columns(["t", "v"])
    part = part.append_column("t", pa.array(["2024-07-01 12:00", "2024-07-01 12:01", "noon"]))
    shard = IntakeShard(0, asked, DictStore())
    table, _ = run(shard, frames(part), 0)
    assert table.schema.field("t").type == TIMESTAMP
    assert [str(row["t"]) for row in split(table)[0]] == ["2024-07-01 10:00:00+00:00", "2024-07-01 10:01:00+00:00"]
    assert shard.malformed.column("t").to_pylist() == ["noon"]


def test_no_two_rows_of_several_shards_have_one_number():
    asked, seen = plan(shards=3), []
    for number in range(2):
        for shard, feeds in enumerate(("ab", "c", "d")):
            part = frames(rows([*feeds] * 4, ["x"] * 4 * len(feeds), [9] * 4 * len(feeds)))
            table, _ = run(IntakeShard(shard, asked, DictStore()), part, number)
            kept = [row[SYSTEM]["seq"] for row in split(table)[0]]
            assert kept == sorted(kept)
            seen.append((number, kept))
    numbers = [each for _, kept in seen for each in kept]
    assert len(numbers) == len(set(numbers)) == 32
    assert max(each for number, kept in seen if number == 0 for each in kept) < min(
        each for number, kept in seen if number == 1 for each in kept
    )


def test_a_promise_besides_the_rows_counts_after_them_and_stays():
    asked, store = plan(), DictStore()
    first = frames(rows(["a"], ["k"], [10]))
    result, _ = run(IntakeShard(0, asked, store), first, 0, promises={"a": 30 * S, "b": 20 * S})
    _, marks = split(result)
    assert [(each[SYSTEM]["source"], each["t"]) for each in marks] == [("a", 30), ("b", 20)]
    shard = IntakeShard(0, asked, store)
    result, reports = run(shard, frames(rows(["a"] * 3, ["k"] * 3, [29, 30, 31])), 1, promises={"a": 25 * S})
    given, marks = split(result)
    assert len(given) == 3
    assert marks == []  # none is taken back
    assert shard.late.column("t").to_pylist() == [29]
    assert {each.feed: each.bound for each in reports} == {"a": 30 * S, "b": 20 * S}


def test_a_batch_without_rows_has_the_clock_that_it_is_given():
    stamped = plan(Policy("arrival"), time="came", time_format=None)
    store, none = DictStore(), rows([], [], [])
    run(IntakeShard(0, stamped, store), frames(rows(["a"], ["k"], [0], arrival_us=5 * S)), 0)
    packed = frames_of(none, [0], (0, 0), every_shard=True, clock_us=9 * S)
    result, _ = run(IntakeShard(0, stamped, store), packed.column("frame").to_pylist(), 1)
    _, marks = split(result)
    assert [each["came"].timestamp() for each in marks] == [9]
