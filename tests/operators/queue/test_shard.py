"""A shard over its pages of state against the queue in memory; state that does not fit is refused."""

import dataclasses
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.key_promises import KeyPromises

import upstream
from upstream.conf.errors import CheckpointError, OptionError
from upstream.core.feedback.checkpoint_layout import queue_folder
from upstream.core.feedback.reports import QueueReport, read_reports, write_report
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.operators.queue.queue import Control, ShardPlan
from upstream.operators.queue.shard import QueueShard
from upstream.operators.runtime.feeds import ALL_FEEDS
from upstream.operators.runtime.pack import INTERVAL, WEIGHT, pack
from upstream.operators.state.store import DictStore


def rows(keys, times, seq=0, arrival=0, payload=None, deleted=None):
    n = len(keys)
    system = system_array(
        source="a", seq=seq + np.arange(n), arrival_us=np.full(n, arrival, dtype=np.int64), deleted=deleted
    )
    values = [f"{key}@{seq + i}" for i, key in enumerate(keys)] if payload is None else payload
    columns = [
        pa.array([f"k{key}" for key in keys], pa.string()),
        pa.array(times, pa.int64()),
        pa.array(values, pa.string()),
    ]
    return pa.table([*columns, system], names=["k", "t", "v", SYSTEM])


def plan(**changes):
    return ShardPlan(**{"key": ("k",), "time": "t", "shards": 1, "policy": "in-place", "page_slots": 2, **changes})


def run(store, *tables, now=0, budget=None, cost=None, number=0, **changes):
    """A batch by a new shard object on the stored state."""
    frames = [to_frame(table) for table in tables]
    return QueueShard(number, plan(**changes), store).run(frames, control=Control(now, budget, cost).to_json())


def of_keys(*claims, feed="a"):
    """Promises (key, bound) of single keys; for all keys where the key is None."""
    none = np.zeros(len(claims), np.int64)
    marks = system_array(source=feed, seq=none, arrival_us=none, punctuation=True)
    keys = pa.array([None if key is None else f"k{key}" for key, _ in claims], pa.string())
    times = pa.array([bound for _, bound in claims], pa.int64())
    return pa.table({"k": keys, "t": times, "v": pa.nulls(len(claims), pa.string()), SYSTEM: marks})


def promised_of(result):
    rows = [] if result is None else result.to_pylist()
    return [(row["k"], row["t"], row[SYSTEM]["source"]) for row in rows if row[SYSTEM]["punctuation"]]


arrivals = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=8), st.integers(0, 5)), max_size=10
)


@pytest.mark.parametrize("policy", ["fifo", "in-place", "linecutting", "auto"])
@given(batches=arrivals)
def test_drained_shard_has_given_the_newest_row_of_each_key(policy, batches):
    store, seq, newest, given_rows = DictStore(), 0, {}, []
    covered = 0
    for number, (arriving, budget) in enumerate([*batches, ([], None)]):
        keys, times = [key for key, _ in arriving], [time for _, time in arriving]
        tables = [rows(keys, times, seq, number)] if keys else []
        for place, (key, time) in enumerate(arriving, seq):
            newest[f"k{key}"] = max(newest.get(f"k{key}", (-1, -1)), (time, place))
        seq += len(keys)
        result, report = run(store, *tables, now=number, budget=budget, cost=1e-6, policy=policy)
        if result is not None:
            given_rows += result.select(["k", "t", "v"]).to_pylist()
            covered += sum(each["covered"] for each in result.column(SYSTEM).to_pylist())
        assert report.applied == (0 if result is None else len(result))
        assert report.allocated >= report.used >= report.waiting
    assert report.waiting == 0
    best = {}
    for row in given_rows:
        place = (row["t"], int(row["v"].split("@")[1]))
        best[row["k"]] = max(best.get(row["k"], place), place)
    assert best == newest
    assert len(given_rows) == len({row["v"] for row in given_rows})
    assert covered <= seq
    assert [kind for kind, _ in store.values if kind in ("rows", "cells")] == []


promised = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=8),
        st.one_of(st.none(), st.integers(0, 5)),
        st.one_of(st.none(), st.integers(0, 12)),
    ),
    max_size=10,
)


@pytest.mark.parametrize("policy", ["fifo", "in-place", "linecutting", "auto"])
@given(batches=promised)
def test_what_is_applied_of_a_key_never_goes_back_in_time(policy, batches):
    """But for rows that are late: what their keys had is forgotten."""
    store, seq, bound = DictStore(), 0, -1
    late, newest, last, counted, represented = set(), {}, {}, 0, 0
    for number, (arriving, budget, promise) in enumerate([([], 0, None), *batches, ([], None, None)]):
        keys, times = [key for key, _ in arriving], [time for _, time in arriving]
        for place, (key, time) in enumerate(arriving, seq):
            newest[f"k{key}"] = max(newest.get(f"k{key}", (-1, -1)), (time, place))
            late |= {place} if time < bound else set()
        bound = max(bound, -1 if promise is None else promise)
        result, report = run(
            store, rows(keys, times, seq, number), of_keys((None, bound)), now=number, budget=budget, cost=1e-6,
            policy=policy,
        )  # fmt: skip
        seq += len(keys)
        counted += report.applied + report.superseded
        represented += report.outdated
        for row in [] if result is None else result.to_pylist():
            if not row[SYSTEM]["punctuation"]:
                place = int(row["v"].split("@")[1])
                represented += row[SYSTEM]["covered"]
                assert row["t"] >= last.get(row["k"], (-1, -1))[0] or place in late
                last[row["k"]] = max(last.get(row["k"], (-1, -1)), (row["t"], place))
    assert last == newest, "the newest row of each key was applied"
    assert counted == seq
    assert represented == seq, "each update is applied, represented or outdated"


def test_a_late_older_row_is_superseded_until_the_low_watermark_passes_what_was_applied():
    store = DictStore()
    run(store, rows([1, 2], [50, 60]), of_keys((None, 20)))
    result, report = run(store, rows([1, 2, 1, 3], [40, 60, 30, 20], 2, 1), now=1)
    assert result.column("v").to_pylist() == ["2@3", "3@5"], "of equal times the later row counts"
    assert (report.arrived, report.applied, report.superseded, report.older, report.outdated) == (4, 2, 2, 2, 2)
    run(store, of_keys((None, 61)), now=2)
    assert [kind for kind, _ in store.values] == ["head"]
    result, report = run(store, rows([1], [40], 6, 3), now=3)
    assert result.column("v").to_pylist() == ["1@6"], "it is late, and takes part"


@pytest.mark.parametrize("policy", ["append", "shed"])
def test_policies_that_give_every_row_forget_what_others_have_applied(policy):
    store = DictStore()
    run(store, rows([1], [50]), of_keys((None, 20)))
    result, report = run(store, rows([1], [40], 1, 1), now=1, policy=policy)
    assert (result.num_rows, report.superseded) == (1, 0)
    assert [kind for kind, _ in store.values] == ["head"]


def test_without_punctuation_no_key_is_remembered():
    """Nothing would be forgotten."""
    store = DictStore()
    run(store, rows([1], [50]))
    assert [kind for kind, _ in store.values] == ["head"]
    result, _ = run(store, rows([1], [40], 1, 1), now=1)
    assert result.num_rows == 1


def test_batch_run_again_gives_the_same():
    store = DictStore()
    run(store, rows([1, 2, 3], [1, 1, 1]), budget=1)
    before = dict(store.values)
    tables = [rows([2, 4], [2, 1], 3, 5), rows([3], [7], 5, 6)]
    first, report = run(store, *tables, now=9, budget=2)
    after = dict(store.values)
    store.values = before
    again, report_again = run(store, *tables[::-1], now=9, budget=2)
    assert first.equals(again)
    assert report == report_again
    assert store.values == after


def test_punctuation_waits_for_the_rows_that_wait():
    store = DictStore()
    table = pa.concat_tables([rows([1, 2], [50, 60]), of_keys((None, 100))])
    result, _ = run(store, table, budget=1, number=3)
    assert result.column("t").to_pylist() == [50, 60]  # key 1, then: complete up to the row that waits
    assert result.column(SYSTEM).to_pylist()[1]["source"] == "a/3"
    result, _ = run(store, now=1, budget=1, number=3)  # nothing new, but nothing waits any more
    assert result.column("t").to_pylist() == [60, 100]


@pytest.mark.parametrize("coalesce", [False, True])
def test_a_tombstone_supersedes_and_is_superseded_as_any_update(coalesce):
    """Key 1: deleted last; key 2: revived; key 3: its tombstone is older. On the way to the shard, or while it waits
    there.
    """
    store = DictStore()
    parts = [
        rows([1, 2, 3], [5, 5, 5], 0, 0),
        rows([1, 2, 3], [6, 6, 4], 3, 1, payload=[None] * 3, deleted=np.ones(3, np.bool_)),
        rows([2], [7], 6, 2),
    ]
    if coalesce:
        whole = pa.concat_tables(parts).combine_chunks().to_batches()
        ((_, frame, _),) = (
            row.values() for batch in pack(("k",), [0], "t", True)(iter(whole)) for row in batch.to_pylist()
        )
        result, _ = QueueShard(0, plan(), store).run([frame], control=Control(9, None).to_json())
    else:
        for number, part in enumerate(parts):
            run(store, part, now=number, budget=0)
        result, _ = run(store, now=9)
    found = {
        row["k"]: (row["t"], row["v"], row[SYSTEM]["deleted"], row[SYSTEM]["covered"]) for row in result.to_pylist()
    }
    assert found == {"k1": (6, None, True, 2), "k2": (7, "2@6", False, 3), "k3": (5, "3@2", False, 2)}


@pytest.mark.parametrize("other", ["append", "shed", "fifo", "linecutting", "auto"])
def test_policy_may_change(other):
    store = DictStore()
    run(store, rows([1, 1, 2], [1, 2, 1]), budget=0, policy="append")
    run(store, rows([1], [3], 3), now=1, budget=0, policy=other, page_slots=8)
    result, report = run(store, now=2)
    assert sorted(result.column("v").to_pylist()) == ["1@3", "2@2"]
    assert report.waiting == 0


def test_other_columns_are_refused_while_rows_wait():
    store = DictStore()
    run(store, rows([1], [1]), budget=0)
    table = rows([1], [2])
    for other in (table.drop_columns(["v"]), table.set_column(0, "k", pa.array([1]))):
        with pytest.raises(CheckpointError, match="until its queue is empty"):
            run(store, other, now=1)


def test_a_column_more_is_null_in_rows_that_waited_before():
    store = DictStore()
    run(store, rows([1, 2], [1, 1]), budget=0)
    result, _ = run(store, rows([2, 3], [2, 2]).add_column(0, "more", pa.array([8, 9])), now=1)
    assert sorted((row["k"], row["more"]) for row in result.to_pylist()) == [("k1", None), ("k2", 8), ("k3", 9)]


def test_batch_touches_only_the_pages_of_its_keys():
    store = DictStore()
    run(store, rows(range(4096), [1] * 4096), budget=0, page_slots=256)
    before = dict(store.values)
    _, report = run(store, rows([5, 600, 7], [2, 2, 2], 4096, 1), now=1, budget=0, page_slots=256)
    assert report.waiting == 4096
    # Text has to be compared, so the two pages are read; what is newer goes to a page of its own.
    assert (report.pages_read, report.pages_written) == (2, 1)
    changed = {place for place, value in store.values.items() if before.get(place) != value}
    assert changed == {("head", 0), ("cells", 16), ("rows", 16)}


def test_whole_numbers_are_keys_that_need_no_rows():
    store = DictStore()
    numbered = rows(range(4096), [1] * 4096).set_column(0, "k", pa.array(range(4096)))
    run(store, numbered, budget=0, page_slots=256)
    again = rows([5, 600, 7], [2, 2, 2], 4096, 1).set_column(0, "k", pa.array([5, 600, 7]))
    result, report = run(store, again, now=1, budget=1, page_slots=256)
    assert report.waiting == 4095
    assert (report.pages_read, report.pages_written) == (1, 1)  # only that of the row served
    assert result.column("k").to_pylist() == [0]


def test_emptied_pages_are_filled_before_new_ones_are_made():
    """State holds few more pages than its rows would fill: they are more than half full, or take what comes."""
    store, generator = DictStore(), np.random.default_rng(1)
    for number in range(60):
        table = rows(generator.integers(0, 400, 50), [number] * 50, 50 * number, number)
        _, report = run(store, table, now=number, budget=20, page_slots=32)
    kinds = [kind for kind, _ in store.values]
    assert kinds.count("cells") == kinds.count("rows") <= 2 * report.waiting / 32 + 4
    assert report.waiting > 200


@pytest.mark.parametrize("policy", ["fifo", "in-place", "linecutting", "auto"])
@pytest.mark.parametrize("cut", [1, 3, 5])
def test_conflicts_are_counted_wherever_they_meet(policy, cut):
    table = rows([1, 2, 1, 3, 2, 1], [5, 5, 5, 5, 5, 5], payload=["a", "b", "c", "d", None, "c"])
    store, conflicts = DictStore(), 0
    coalesce = policy in ("fifo", "in-place")
    for number, part in enumerate([table.slice(0, cut), table.slice(cut)]):
        packed = list(pack(["k"], [0], "t", coalesce)(iter(part.combine_chunks().to_batches())))
        frames = [frame.as_py() for batch in packed for frame in batch.column("frame")]
        # The first batch takes all, the second meets what waits.
        _, report = QueueShard(0, plan(policy=policy), store).run(frames, control=Control(number, 0, 1e-6).to_json())
        conflicts += report.conflicts
    assert conflicts == 2  # of key 1: a, then c; c again is the same row once more; of key 2: b, then null


@pytest.mark.parametrize("coalesce", [False, True])
def test_shards_get_their_own_conflicts(coalesce):
    keys = list(range(20)) * 2
    table = rows(keys, [1] * 40)  # each key comes twice, with two payloads
    found = {}
    for batch in pack(["k"], range(4), "t", coalesce)(iter(table.to_batches())):
        for shard, frame in zip(batch.column("slot").to_pylist(), batch.column("frame").to_pylist(), strict=True):
            _, report = QueueShard(shard, plan(shards=4), DictStore()).run([frame], control=Control(0, None).to_json())
            found[shard] = (report.conflicts, report.applied)
    assert sum(conflicts for conflicts, _ in found.values()) == 20
    assert all(conflicts == applied for conflicts, applied in found.values())


@pytest.mark.parametrize("policy", ["append", "fifo", "in-place", "linecutting", "auto", "shed"])
def test_clock_that_jumps_back_stands_still(policy):
    store, hour = DictStore(), 3_600_000_000
    run(store, rows([1, 2], [1, 1], 0, 2 * hour), now=2 * hour, budget=0, cost=1e-6, policy=policy)
    result, report = run(store, rows([2, 3], [2, 1], 2, hour), now=hour, cost=1e-6, policy=policy)
    assert (report.now_us, report.waiting) == (2 * hour, 0)
    several = policy in ("append", "shed")
    assert set(result.column("v").to_pylist()) == {"1@0", "2@2", "3@3"} | ({"2@1"} if several else set())


def test_weights_and_intervals_come_back_with_the_cells():
    store = DictStore()
    extra = rows([1, 2], [1, 1]).append_column(WEIGHT, pa.array([1.0, 2.5]))
    run(store, extra.append_column(INTERVAL, pa.array([7, 7])), budget=0)
    result, report = run(store, now=10, budget=1)
    assert result.column("k").to_pylist() == ["k2"]
    assert (report.waiting, report.used) == (1, 2)  # the one served rests until its interval has passed


def test_a_feed_of_which_nothing_is_known_stays_so_behind_a_queue():
    least = int(np.iinfo(np.int64).min)
    promises = [of_keys((None, 9)), of_keys((None, least), feed="b")]
    result, _ = run(DictStore(), pa.concat_tables([rows([1], [4]), *promises]))
    assert sorted(promised_of(result), key=str) == [(None, least, "b/0"), (None, 9, "a/0")]


def test_the_end_of_a_feed_waits_for_its_rows_that_wait():
    store, promised = DictStore(), []
    for arriving in ([pa.concat_tables([rows([1, 2], [4, 6]), of_keys((None, None))])], [], []):
        result, report = run(store, *arriving, budget=1)
        promised += [bound for _, bound, _ in promised_of(result)]
    assert (promised, report.waiting) == ([6, None], 0)


def test_punctuation_of_a_key_follows_the_row_of_the_key_that_waits():
    store = DictStore()
    table = pa.concat_tables([rows([1, 2], [50, 60]), of_keys((None, 10), (2, 100), (3, 70))])
    result, _ = run(store, table, budget=1)
    assert promised_of(result) == [(None, 10, "a/0"), ("k2", 60, ALL_FEEDS), ("k3", 70, ALL_FEEDS)]
    assert result.column("t").to_pylist()[0] == 50
    result, _ = run(store, now=1, budget=1)
    assert [row["t"] for row in result.to_pylist()] == [60, 100]
    assert promised_of(result) == [("k2", 100, ALL_FEEDS)]
    result, _ = run(store, of_keys((None, 200)), now=2, budget=1)
    assert promised_of(result) == [(None, 200, "a/0")]
    assert [kind for kind, _ in store.values] == ["head"]


def test_punctuation_of_a_part_of_the_key_waits_for_each_row_with_it_and_speaks_for_the_shard_alone():
    store = DictStore()
    waiting = rows([1, 1, 2], [50, 60, 70], payload=["x", "y", "x"])
    waiting = pa.concat_tables([waiting, of_keys((None, 10), (1, 100), (2, 100))])
    result, _ = run(store, waiting, budget=0, key=("k", "v"))
    assert promised_of(result) == [(None, 10, "a/0"), ("k1", 50, "a/0"), ("k2", 70, "a/0")]
    result, _ = run(store, now=1, budget=1, key=("k", "v"))
    assert promised_of(result) == [("k1", 60, "a/0")]


def test_punctuation_of_a_key_is_not_repeated_while_rows_hold_back_that_of_all():
    store = DictStore()
    result, _ = run(store, of_keys((1, 1)), budget=0)
    assert promised_of(result) == [("k1", 1, ALL_FEEDS)]
    run(store, pa.concat_tables([rows([0, 1], [0, 1]), of_keys((None, 9))]), now=1, budget=0)
    result, _ = run(store, of_keys((1, None)), now=2, budget=0)
    assert result is None or promised_of(result) == []


promises = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["a", ALL_FEEDS])), max_size=3)


@pytest.mark.parametrize("policy", ["append", "fifo", "in-place", "linecutting", "auto"])
@given(batches=arrivals, data=st.data())
def test_promises_of_keys_change_no_row_and_none_leaves_below_them(policy, batches, data):
    stores, given_rows, checked = [DictStore(), DictStore()], [[], []], KeyPromises()
    for number, (arriving, budget) in enumerate([*batches, ([], None)]):
        rest = [row for other, _ in batches[number + 1 :] for row in other]
        tables = [rows([key for key, _ in arriving], [time for _, time in arriving], 10 * number, number)]
        if data.draw(st.booleans()):
            tables.append(of_keys((None, min((time for _, time in rest), default=9))))
        claims = [
            of_keys((key, min((time for each, time in rest if each == key), default=None)), feed=feed)
            for key, feed in data.draw(promises)
        ]
        for at, more in ((0, []), (1, claims)):
            table = pa.concat_tables([*tables, *more])
            result, _ = run(stores[at], table, now=number, budget=budget, cost=1e-6, policy=policy)
            if at:
                checked.check(result, ("k",), "t")
            found = [] if result is None else result.to_pylist()
            given_rows[at].append([row for row in found if row["k"] is None or not row[SYSTEM]["punctuation"]])
    assert given_rows[0] == given_rows[1]


def arrived(keys, arrivals, seq=0):
    n = len(keys)
    system = system_array(source="a", seq=seq + np.arange(n), arrival_us=np.array(arrivals, dtype=np.int64))
    numbers = pa.array(keys, pa.int64())
    return pa.table({"k": numbers, "first_arrival": pa.array([f"n{k}" for k in keys]), SYSTEM: system})


def reporting(**changes):
    given = {"key": ("k", "first_arrival"), "time": None, "shards": 2, "policy": "in-place", "page_slots": 4}
    return ShardPlan(**{**given, "stalest_keys": 3, **changes})


arriving = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=20)


@pytest.mark.parametrize("policy", ["in-place", "fifo", "append"])
@given(batches=st.lists(st.tuples(arriving, st.integers(0, 3)), min_size=1, max_size=4))
def test_stalest_of_all_shards(policy, batches, tmp_path_factory):
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    stores, pending, seq, now = {0: DictStore(), 1: DictStore()}, [], 0, 0
    for drawn, budget in batches:
        came = sorted((now + at, key) for key, at in drawn)
        now += 100
        for shard, store in stores.items():
            mine = [(key, at) for at, key in came if key % 2 == shard]
            frames = [to_frame(arrived([k for k, _ in mine], [at for _, at in mine], seq))] if mine else []
            pending += mine
            seq += len(mine)
            result, report = QueueShard(shard, reporting(policy=policy), store).run(
                frames, control=Control(now, budget).to_json()
            )
            for row in [] if result is None else result.to_pylist():
                of_key = [each for each in pending if each[0] == row["k"]]
                pending = [each for each in pending if each[0] != row["k"]] + of_key[row[SYSTEM]["covered"] :]
            write_report(queue_folder(str(checkpoint)), report)
    oldest = {}
    for key, at in pending:
        oldest[key] = min(oldest.get(key, at), at)
    if not any(each.stalest_keys for each in read_reports(queue_folder(str(checkpoint)), QueueReport)):
        assert pending == []
        return
    found = upstream.stalest_keys(checkpoint, 3, now_us=1_000_000)
    assert found.column_names == ["k", "first_arrival", "first_arrival", "age_s", "covered"]
    got = [
        (1_000_000 - round(age * 1e6), key) for age, key in zip(found[3].to_pylist(), found[0].to_pylist(), strict=True)
    ]
    assert [at for at, _ in got] == sorted(oldest.values())[:3]
    assert all(oldest[key] == at for at, key in got)
    assert len({key for _, key in got}) == len(got)
    waits = Counter(key for key, _ in pending)
    hottest = upstream.stalest_keys(checkpoint, 3, by="updates", now_us=1_000_000)
    counts = hottest["covered"].to_pylist()
    assert counts == [count for _, count in waits.most_common(3)] == [waits[key] for key in hottest[0].to_pylist()]


def test_what_the_queue_does_not_report_is_refused(tmp_path):
    with pytest.raises(OptionError, match="no queue has reported"):
        upstream.stalest_keys(tmp_path)
    folder = queue_folder(str(tmp_path))
    _, report = QueueShard(0, reporting(), DictStore()).run(
        [to_frame(arrived([1], [1]))], control=Control(2, 0).to_json()
    )
    write_report(folder, report)
    assert upstream.stalest_keys(tmp_path, 3).num_rows == 1
    for k in (0, 4):
        with pytest.raises(OptionError, match="stalest_keys="):
            upstream.stalest_keys(tmp_path, k)
    # A shard that has not reported since the option was given may hide staler keys.
    write_report(folder, dataclasses.replace(report, shard=1, stalest_keys=None))
    with pytest.raises(OptionError, match="reports 0 keys"):
        upstream.stalest_keys(tmp_path, 1)


def test_only_the_pages_of_the_stalest_are_read():
    store, big = DictStore(), reporting(page_slots=16, key=("k",), stalest_keys=2)
    QueueShard(0, big, store).run([to_frame(arrived(range(256), range(256)))], control=Control(256, 0).to_json())
    _, report = QueueShard(0, big, store).run([], control=Control(257, 0).to_json())
    assert report.pages_read == 1


def test_queue_staleness_of_what_is_served():
    _, report = QueueShard(0, reporting(), DictStore()).run(
        [to_frame(arrived([1, 1, 2, 3], [1_000_000, 2_000_000, 3_000_000, 4_000_000]))],
        control=Control(5_000_000, 2).to_json(),
    )
    assert (report.applied, report.ages.count, report.ages.total_s, report.ages.max_s) == (2, 2, 6.0, 4.0)
    assert report.oldest_us == 4_000_000


@pytest.mark.parametrize("first_rows", [True, False])
def test_a_batch_without_instructions_has_the_budget_of_the_last_change(first_rows):
    """Also in a shard that had no row yet when the change came."""
    store, seq = DictStore(), 0

    def batch(control=None, keys=5, **changes):
        nonlocal seq
        frames = [to_frame(rows(range(seq, seq + keys), [1] * keys, seq))] if keys else []
        seq += keys
        given = None if control is None else control.to_json()
        return QueueShard(0, plan(budget=1, **changes), store).run(frames, control=given)[1].applied

    if first_rows:
        assert batch() == 1
    batch(Control(1, 3, kept={"budget": 4}), keys=5 if first_rows else 0)
    assert [batch(), batch()] == [4, 4]
    batch(Control(2, 3, kept={}))
    assert [batch(), batch()] == [1, 1]
    assert batch(Control(2, 3, kept={"budget": "last"})) == 3
    assert batch() == 3
    batch(Control(2, 3, kept={"budget": "all"}))
    assert batch() > 5
    batch(Control(2, 0))
    assert batch() == 10, "a tick that changes nothing"


def test_a_share_to_shed_and_a_cost_stay_in_force_without_instructions():
    store = DictStore()

    def batch(at, kept=None, **changes):
        control = None if kept is None else Control(at, 0, drop=kept.get("drop", 0.0), kept=kept).to_json()
        shard = QueueShard(0, plan(budget=0, **changes), store)
        return shard, shard.run([to_frame(rows(range(100), [1] * 100, at * 100))], control=control)[1].shed

    assert [batch(1, policy="shed")[1], batch(2, {"drop": 0.5}, policy="shed")[1]] == [0, pytest.approx(50, abs=20)]
    assert batch(3, policy="shed")[1] > 0
    assert [batch(4, {}, policy="shed")[1], batch(5, policy="shed")[1]] == [0, 0]

    def cost(at, kept=None):
        return batch(at, kept, policy="linecutting", cost_s=1.0)[0]._queue.monitor.cost_s

    assert [cost(6), cost(7, {"cost_s": 7.0}), cost(8), cost(9, {})] == [1.0, 7.0, 7.0, 1.0]
    assert batch(10, {"cost_s": None}, policy="linecutting", cost_s=1.0)[0]._queue.monitor.cost_s is None


def test_a_shard_samples_its_share_of_the_next_rows_that_leave_once_for_each_request():
    store = DictStore()

    def sampled(*tables, budget=0, sample=None):
        shard = QueueShard(1, plan(shards=8), store)
        shard.run(
            [to_frame(table) for table in tables], batch_id=7, control=Control(0, budget, sample=sample).to_json()
        )
        return shard.sample

    assert sampled(rows(range(9), range(9))) is None
    assert sampled(sample=4) is None, "no row leaves"
    found = sampled(budget=5)
    assert (found.shard, found.version, found.batch, found.columns) == (1, 4, 7, ["k", "t", "v"])
    assert [each[0] for each in found.rows] == ["k0", "k1", "k2"], "3 of 20 by 8 shards"
    assert sampled(budget=2, sample=4) is None
    assert sampled(budget=2, sample=5).rows == [("k7", "7", "7@7"), ("k8", "8", "8@8")]
