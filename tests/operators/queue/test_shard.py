"""A shard over its pages of state against the queue in memory; state that does not fit is refused."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.key_promises import KeyPromises

from upstream.conf.errors import CheckpointError
from upstream.core.pushdown.ipc_frames import from_frame, to_frame
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.operators.queue.cells import Cells
from upstream.operators.queue.control import Control, ShardPlan
from upstream.operators.queue.shard import QueueShard
from upstream.operators.runtime.arrivals import INTERVAL, WEIGHT
from upstream.operators.runtime.key_bounds import ALL_FEEDS
from upstream.operators.runtime.pack import pack
from upstream.operators.runtime.store import DictStore


def rows(keys, times, seq=0, arrival=0, payload=None, deleted=None):
    n = len(keys)
    system = system_array(
        source="a", seq=seq + np.arange(n), arrival_us=np.full(n, arrival, dtype=np.int64), deleted=deleted
    )
    values = [f"{key}@{seq + i}" for i, key in enumerate(keys)] if payload is None else payload
    return pa.table(
        {
            "k": pa.array([f"k{key}" for key in keys], pa.string()),
            "t": pa.array(times, pa.int64()),
            "v": pa.array(values, pa.string()),
            SYSTEM: system,
        }
    )


def plan(**changes):
    return ShardPlan(**{"key": ("k",), "time": "t", "shards": 1, "policy": "in-place", "page_slots": 2, **changes})


def test_frame_round_trip():
    table = rows([1, 2], [3, 4])
    assert from_frame(to_frame(table)).equals(table)


arrivals = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=8), st.integers(0, 5)), max_size=10
)


@pytest.mark.parametrize("policy", ["fifo", "in-place", "linecutting", "auto"])
@given(batches=arrivals)
def test_drained_shard_has_given_the_newest_row_of_each_key(policy, batches):
    """Any budgets, each batch by a new shard object on the stored state: nothing lost, doubled or overtaken."""
    store, seq, newest, given_rows = DictStore(), 0, {}, []
    covered = came = 0
    for number, (arriving, budget) in enumerate([*batches, ([], None)]):
        keys, times = [key for key, _ in arriving], [time for _, time in arriving]
        frames = [to_frame(rows(keys, times, seq, number))] if keys else []
        for place, (key, time) in enumerate(arriving):
            if (time, seq + place) >= newest.get(key, (-1, -1)):
                newest[key] = (time, seq + place)
        seq += len(keys)
        came += len(keys)
        result, report = QueueShard(0, plan(policy=policy), store).run(frames, Control(number, budget, 1e-6))
        if result is not None:
            given_rows += result.select(["k", "t", "v"]).to_pylist()
            covered += sum(each["covered"] for each in result.column(SYSTEM).to_pylist())
        assert report.delivered == (0 if result is None else len(result))
        assert report.allocated >= report.used >= report.waiting
    assert report.waiting == 0
    last = {row["k"]: (row["t"], int(row["v"].split("@")[1])) for row in sorted(given_rows, key=lambda row: row["t"])}
    best = {}
    for row in given_rows:
        place = (row["t"], int(row["v"].split("@")[1]))
        best[row["k"]] = max(best.get(row["k"], place), place)
    assert best == {f"k{key}": place for key, place in newest.items()}
    assert set(last) == set(best)
    assert len(given_rows) == len({row["v"] for row in given_rows})
    assert covered <= came
    assert [kind for kind, _ in store.values if kind in ("rows", "cells")] == []


def test_batch_run_again_gives_the_same():
    store = DictStore()
    QueueShard(0, plan(), store).run([to_frame(rows([1, 2, 3], [1, 1, 1]))], Control(0, 1))
    before = dict(store.values)
    frames = [to_frame(rows([2, 4], [2, 1], 3, 5)), to_frame(rows([3], [7], 5, 6))]
    first, report = QueueShard(0, plan(), store).run(frames, Control(9, 2))
    after = dict(store.values)
    store.values = before
    again, report_again = QueueShard(0, plan(), store).run(frames[::-1], Control(9, 2))
    assert first.equals(again)
    assert report == report_again
    assert store.values == after


def test_punctuation_waits_for_the_rows_that_wait():
    store = DictStore()
    marks = system_array(source="a", seq=np.array([9]), arrival_us=np.array([0]), punctuation=True)
    bound = pa.table({"k": pa.nulls(1, pa.string()), "t": [100], "v": pa.nulls(1, pa.string()), SYSTEM: marks})
    frame = to_frame(pa.concat_tables([rows([1, 2], [50, 60]), bound]))
    result, _ = QueueShard(3, plan(), store).run([frame], Control(0, 1))
    assert result.column("t").to_pylist() == [50, 60]  # key 1, then: complete up to the row that waits
    assert result.column(SYSTEM).to_pylist()[1]["source"] == "a/3"
    result, _ = QueueShard(3, plan(), store).run([], Control(1, 1))  # nothing new, but nothing waits any more
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
        result, _ = QueueShard(0, plan(), store).run([frame], Control(9, None))
    else:
        for number, part in enumerate(parts):
            QueueShard(0, plan(), store).run([to_frame(part)], Control(number, 0))
        result, _ = QueueShard(0, plan(), store).run([], Control(9, None))
    found = {
        row["k"]: (row["t"], row["v"], row[SYSTEM]["deleted"], row[SYSTEM]["covered"]) for row in result.to_pylist()
    }
    assert found == {"k1": (6, None, True, 2), "k2": (7, "2@6", False, 3), "k3": (5, "3@2", False, 2)}


def test_conflicts_are_counted_whatever_lies_between():
    store = DictStore()
    _, report = QueueShard(0, plan(), store).run(
        [to_frame(rows([1, 1, 2], [5, 5, 5], payload=["a", "b", None]))], Control(0, 0)
    )
    assert report.conflicts == 1
    again = [to_frame(rows([1, 2], [5, 5], 3, 1, payload=["b", "c"]))]
    assert QueueShard(0, plan(), store).run(again, Control(1, 0))[1].conflicts == 1  # b and b agree; null and c do not


@pytest.mark.parametrize("change", [{"key": ("v",)}, {"time": None}, {"shards": 2}])
def test_what_a_checkpoint_is_bound_to_may_not_change(change):
    store = DictStore()
    QueueShard(0, plan(), store).run([to_frame(rows([1, 2], [1, 1]))], Control(0, 1))
    with pytest.raises(CheckpointError, match="new checkpointLocation"):
        QueueShard(0, plan(**change), store)


@pytest.mark.parametrize("other", ["append", "shed", "fifo", "linecutting", "auto"])
def test_policy_may_change(other):
    store = DictStore()
    QueueShard(0, plan(policy="append"), store).run([to_frame(rows([1, 1, 2], [1, 2, 1]))], Control(0, 0))
    QueueShard(0, plan(policy=other, page_slots=8), store).run([to_frame(rows([1], [3], 3))], Control(1, 0))
    result, report = QueueShard(0, plan(policy="in-place"), store).run([], Control(2, None))
    assert sorted(result.column("v").to_pylist()) == ["1@3", "2@2"]
    assert report.waiting == 0


def test_other_columns_are_refused_while_rows_wait():
    store = DictStore()
    QueueShard(0, plan(), store).run([to_frame(rows([1], [1]))], Control(0, 0))
    table = rows([1], [2])
    for other in (table.drop_columns(["v"]), table.set_column(0, "k", pa.array([1]))):
        with pytest.raises(CheckpointError, match="let the query as it was run until its queue is empty"):
            QueueShard(0, plan(), store).run([to_frame(other)], Control(1, None))


def test_a_column_more_is_null_in_rows_that_waited_before():
    store = DictStore()
    QueueShard(0, plan(), store).run([to_frame(rows([1, 2], [1, 1]))], Control(0, 0))
    wider = rows([2, 3], [2, 2]).add_column(0, "more", pa.array([8, 9]))
    result, _ = QueueShard(0, plan(), store).run([to_frame(wider)], Control(1, None))
    assert sorted(zip(*(result.column(each).to_pylist() for each in ("k", "more")), strict=True)) == [
        ("k1", None),
        ("k2", 8),
        ("k3", 9),
    ]


def test_batch_touches_only_the_pages_of_its_keys():
    store = DictStore()
    big = plan(page_slots=256)
    everything = [to_frame(rows(range(4096), [1] * 4096))]
    QueueShard(0, big, store).run(everything, Control(0, 0))
    before = dict(store.values)
    _, report = QueueShard(0, big, store).run([to_frame(rows([5, 600, 7], [2, 2, 2], 4096, 1))], Control(1, 0))
    assert report.waiting == 4096
    # Text has to be compared, so the two pages are read; what is newer goes to a page of its own.
    assert (report.pages_read, report.pages_written) == (2, 1)
    changed = {place for place, value in store.values.items() if before.get(place) != value}
    assert changed == {("head", 0), ("cells", 16), ("rows", 16)}


def test_whole_numbers_are_keys_that_need_no_rows():
    store = DictStore()
    numbered = rows(range(4096), [1] * 4096).set_column(0, "k", pa.array(range(4096)))
    QueueShard(0, plan(page_slots=256), store).run([to_frame(numbered)], Control(0, 0))
    again = rows([5, 600, 7], [2, 2, 2], 4096, 1).set_column(0, "k", pa.array([5, 600, 7]))
    result, report = QueueShard(0, plan(page_slots=256), store).run([to_frame(again)], Control(1, 1))
    assert report.waiting == 4095
    assert (report.pages_read, report.pages_written) == (1, 1)  # only that of the row served
    assert result.column("k").to_pylist() == [0]


def test_emptied_pages_are_filled_before_new_ones_are_made():
    """However long rows come and go, state holds few more pages than its rows would fill: they are more than half full,
    or take what comes.
    """
    store, seq, generator = DictStore(), 0, np.random.default_rng(1)
    for number in range(60):
        keys = generator.integers(0, 400, 50)
        frame = to_frame(rows(keys, [number] * 50, seq, number))
        _, report = QueueShard(0, plan(page_slots=32), store).run([frame], Control(number, 20))
        seq += 50
    pages = len([kind for kind, _ in store.values if kind == "cells"])
    assert pages == len([kind for kind, _ in store.values if kind == "rows"])
    assert report.waiting > 200
    assert pages <= 2 * report.waiting / 32 + 4


def test_keys_of_a_megabyte():
    store = DictStore()
    key = "x" * 1_000_000
    table = rows([0, 0], [1, 2]).set_column(0, "k", pa.array([key, key]))
    result, report = QueueShard(0, plan(), store).run([to_frame(table)], Control(0, 5))
    assert (len(result), report.superseded) == (1, 1)


def test_a_hundred_thousand_updates_of_one_key_leave_one_row():
    table = rows([1] * 100_000, range(100_000), payload=["x"] * 100_000)
    result, _ = QueueShard(0, plan(), DictStore()).run([to_frame(table)], Control(0, 5))
    assert result.column("t").to_pylist() == [99_999]
    assert result.column(SYSTEM).to_pylist()[0]["covered"] == 100_000


@pytest.mark.parametrize("policy", ["fifo", "in-place", "linecutting", "auto"])
@pytest.mark.parametrize("cut", [1, 3, 5])
def test_conflicts_are_counted_wherever_they_meet(policy, cut):
    """In one task (there `pack` coalesces for fifo and in-place), in one shard, or in the queue: the same count."""
    table = rows([1, 2, 1, 3, 2, 1], [5, 5, 5, 5, 5, 5], payload=["a", "b", "c", "d", "b", "c"])
    store, conflicts = DictStore(), 0
    coalesce = policy in ("fifo", "in-place")
    for number, part in enumerate([table.slice(0, cut), table.slice(cut)]):
        packed = list(pack(["k"], [0], "t", coalesce)(iter(part.combine_chunks().to_batches())))
        frames = [frame.as_py() for batch in packed for frame in batch.column("frame")]
        # The first batch takes all, the second meets what waits.
        _, report = QueueShard(0, plan(policy=policy), store).run(frames, Control(number, 0, 1e-6))
        conflicts += report.conflicts
    assert conflicts == 1  # of key 1: a, then c; c again is the same row once more


@pytest.mark.parametrize("coalesce", [False, True])
def test_shards_get_their_own_conflicts(coalesce):
    keys = list(range(20)) * 2
    table = rows(keys, [1] * 40)  # each key comes twice, with two payloads
    found = {}
    for batch in pack(["k"], range(4), "t", coalesce)(iter(table.to_batches())):
        for shard, frame in zip(batch.column("slot").to_pylist(), batch.column("frame").to_pylist(), strict=True):
            _, report = QueueShard(shard, plan(shards=4), DictStore()).run([frame], Control(0, None))
            found[shard] = (report.conflicts, report.delivered)
    assert sum(conflicts for conflicts, _ in found.values()) == 20
    assert all(conflicts == delivered for conflicts, delivered in found.values())


@pytest.mark.parametrize("policy", ["append", "fifo", "in-place", "linecutting", "auto", "shed"])
def test_clock_that_jumps_back_stands_still(policy):
    store, hour = DictStore(), 3_600_000_000
    first = [to_frame(rows([1, 2], [1, 1], 0, 2 * hour))]
    QueueShard(0, plan(policy=policy), store).run(first, Control(2 * hour, 0, 1e-6))
    back = [to_frame(rows([2, 3], [2, 1], 2, hour))]
    result, report = QueueShard(0, plan(policy=policy), store).run(back, Control(hour, None, 1e-6))
    assert report.now_us == 2 * hour
    assert report.waiting == 0
    delivered = result.column("v").to_pylist()
    assert set(delivered) - {"2@0"} == {"1@0", "2@2", "3@3"} or policy in ("append", "shed", "auto")
    assert {"1@0", "2@2", "3@3"} <= set(delivered)


def test_weights_and_intervals_come_back_with_the_cells():
    store = DictStore()
    extra = rows([1, 2], [1, 1]).append_column(WEIGHT, pa.array([1.0, 2.5]))
    extra = extra.append_column(INTERVAL, pa.array([7, 7]))
    QueueShard(0, plan(), store).run([to_frame(extra)], Control(0, 0))
    result, report = QueueShard(0, plan(), store).run([], Control(10, 1))
    assert result.column("k").to_pylist() == ["k2"]
    assert (report.waiting, report.used) == (1, 2)  # the one served rests until its interval has passed


finite = st.integers(-(2**63), 2**63 - 1)


@given(numbers=st.lists(finite, max_size=20), near=st.lists(st.integers(0, 300), min_size=20, max_size=20), low=finite)
def test_cells_come_back_as_they_were(numbers, near, low):
    cells = Cells.empty(len(numbers))
    cells.number[:], cells.weight[:] = numbers, [value / 7 for value in near[: len(numbers)]]
    cells.time[:] = [min(low + value, 2**63 - 1) for value in near[: len(numbers)]]
    cells.state[:] = [value % 3 for value in near[: len(numbers)]]
    again = Cells.from_bytes(cells.to_bytes())
    for field in dataclasses.fields(Cells):
        assert getattr(again, field.name).dtype == getattr(cells, field.name).dtype
        assert getattr(again, field.name).tolist() == getattr(cells, field.name).tolist()


def test_a_feed_of_which_nothing_is_known_stays_so_behind_a_queue() -> None:
    store, least = DictStore(), np.iinfo(np.int64).min
    one = np.zeros(1, dtype=np.int64)
    marks = [system_array(source=feed, seq=one, arrival_us=one, punctuation=True) for feed in "ab"]
    times = [9, int(least)]
    promises = [
        pa.table({"k": pa.nulls(1, pa.string()), "t": [time], "v": pa.nulls(1, pa.string()), SYSTEM: mark})
        for time, mark in zip(times, marks, strict=True)
    ]
    frames = [to_frame(pa.concat_tables([rows([1], [4]), *promises]))]
    result, _ = QueueShard(0, plan(), store).run(frames, Control(0, None, 1e-6))
    given_rows = result.to_pylist()
    promised = {row[SYSTEM]["source"]: row["t"] for row in given_rows if row[SYSTEM]["punctuation"]}
    assert promised == {"a/0": 9, "b/0": least}


def test_the_end_of_a_feed_waits_for_its_rows_that_wait() -> None:
    store, one = DictStore(), np.zeros(1, dtype=np.int64)
    system = system_array(source="a", seq=one, arrival_us=one, punctuation=True)
    end = pa.table(
        {"k": pa.nulls(1, pa.string()), "t": pa.nulls(1, pa.int64()), "v": pa.nulls(1, pa.string()), SYSTEM: system}
    )
    frames = [to_frame(pa.concat_tables([rows([1, 2], [4, 6]), end]))]
    promised = []
    for arriving in (frames, [], []):
        result, report = QueueShard(0, plan(), store).run(arriving, Control(0, 1, 1e-6))
        promised += [row["t"] for row in ([] if result is None else result.to_pylist()) if row[SYSTEM]["punctuation"]]
    assert (promised, report.waiting) == ([6, None], 0)


def of_keys(*claims, feed="a"):
    """Promises (key, bound) of single keys; for all keys where the key is None."""
    marks = system_array(
        source=feed, seq=np.zeros(len(claims), np.int64), arrival_us=np.zeros(len(claims), np.int64), punctuation=True
    )
    keys = pa.array([None if key is None else f"k{key}" for key, _ in claims], pa.string())
    times = pa.array([bound for _, bound in claims], pa.int64())
    return pa.table({"k": keys, "t": times, "v": pa.nulls(len(claims), pa.string()), SYSTEM: marks})


def promised_of(result):
    rows = [] if result is None else result.to_pylist()
    return [(row["k"], row["t"], row[SYSTEM]["source"]) for row in rows if row[SYSTEM]["punctuation"]]


def test_punctuation_of_a_key_follows_the_row_of_the_key_that_waits():
    store = DictStore()
    frame = to_frame(pa.concat_tables([rows([1, 2], [50, 60]), of_keys((None, 10), (2, 100), (3, 70))]))
    result, _ = QueueShard(0, plan(), store).run([frame], Control(0, 1))
    assert promised_of(result) == [(None, 10, "a/0"), ("k2", 60, ALL_FEEDS), ("k3", 70, ALL_FEEDS)]
    assert result.column("t").to_pylist()[0] == 50
    result, _ = QueueShard(0, plan(), store).run([], Control(1, 1))
    assert [row["t"] for row in result.to_pylist()] == [60, 100]
    assert promised_of(result) == [("k2", 100, ALL_FEEDS)]
    result, _ = QueueShard(0, plan(), store).run([to_frame(of_keys((None, 200)))], Control(2, 1))
    assert promised_of(result) == [(None, 200, "a/0")]
    assert [kind for kind, _ in store.values] == ["head"]


def test_punctuation_of_a_part_of_the_key_waits_for_each_row_with_it_and_speaks_for_the_shard_alone():
    both = plan(key=("k", "v"))
    store = DictStore()
    waiting = pa.concat_tables(
        [rows([1, 1, 2], [50, 60, 70], payload=["x", "y", "x"]), of_keys((None, 10), (1, 100), (2, 100))]
    )
    result, _ = QueueShard(0, both, store).run([to_frame(waiting)], Control(0, 0))
    assert promised_of(result) == [(None, 10, "a/0"), ("k1", 50, "a/0"), ("k2", 70, "a/0")]
    result, _ = QueueShard(0, both, store).run([], Control(1, 1))
    assert promised_of(result) == [("k1", 60, "a/0")]


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
            frames = [to_frame(pa.concat_tables([*tables, *more]))]
            result, _ = QueueShard(0, plan(policy=policy), stores[at]).run(frames, Control(number, budget, 1e-6))
            if at:
                checked.check(result, ("k",), "t")
            found = [] if result is None else result.to_pylist()
            given_rows[at].append([row for row in found if row["k"] is None or not row[SYSTEM]["punctuation"]])
    assert given_rows[0] == given_rows[1]
