"""Unions, merges, ordered release and distinct: the same rows for each order of arrival, split and restart."""

import collections
import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.key_promises import KeyPromises

from upstream.conf.errors import CheckpointError, MalformedRowError
from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.reorder.shard import INPUT, ReorderPlan, ReorderShard, admitted, no_memory
from upstream.operators.runtime.feeds import ALL_FEEDS, ENDED, punctuation_rows
from upstream.operators.state.entries import PANE
from upstream.operators.state.store import DictStore

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
BOTH = ("left", "right")


def plan(name="merge", **changes):
    asked = {"key": ("k",), "by": ("k",), "time": "t", "inputs": BOTH, "hold": True, "repeats": "inputs"}
    return ReorderPlan(name, **{**asked, **changes})


UNION = plan("union", hold=False)
ORDERED = plan("ordered", inputs=(), repeats="keep")
DISTINCT = plan("distinct", inputs=(), hold=False, repeats="all", late="refuse")
BY_VALUE = plan("distinct", inputs=(), hold=False, repeats="all", by=("v",), late="refuse")


def rows(numbered, arrival=0):
    """Rows (input, key, time, number), the number being the sequence number in its input, too."""
    tables = [SCHEMA.empty_table()]
    for source in sorted({each[0] for each in numbered}):
        mine = [each[1:] for each in numbered if each[0] == source]
        key, time, number = (pa.array(each, pa.int64()) for each in zip(*mine, strict=True))
        system = system_array(
            source=f"{source}/feed", seq=number.to_numpy(), arrival_us=np.full(len(mine), arrival, dtype=np.int64)
        )
        tables.append(pa.table([key, time, number, system], schema=SCHEMA))
    return pa.concat_tables(tables)


def promises(bounds):
    if not bounds:
        return SCHEMA.empty_table()
    at = pa.array([None if bound == ENDED else bound for bound in bounds.values()], pa.int64())
    return punctuation_rows(SCHEMA, [f"{source}/feed" for source in bounds], 0, t=at).cast(SCHEMA)


def of_key(claim):
    """A feed's promise (feed, key, bound) of one key."""
    feed, key, bound = claim
    at, named = pa.array([None if bound == ENDED else bound], pa.int64()), pa.array([key], pa.int64())
    return punctuation_rows(SCHEMA, [feed], 0, t=at, k=named).cast(SCHEMA)


class Run:
    """A shard that is created again for each batch, and what it has given."""

    def __init__(self, asked):
        self.plan, self.store, self.batch = asked, DictStore(), 0
        self.given, self.promised, self.per_batch, self.report = [], [], [], None
        self.of_keys, self.key_promises = [], KeyPromises()

    def step(self, numbered, bounds, claims=()):
        table = pa.concat_tables([rows(numbered, self.batch), promises(bounds), *map(of_key, claims)])
        return self.run([to_frame(table)] if table.num_rows else [])

    def run(self, frames):
        shard = ReorderShard(0, self.plan, self.store)
        result, self.report = shard.run(frames, batch_id=self.batch)
        self.batch += 1
        self.key_promises.check(result, self.plan.key, "t")
        found = [] if result is None else result.to_pylist()
        self.of_keys.append([
            (row["k"], ENDED if row["t"] is None else row["t"], row[SYSTEM]["source"])
            for row in found
            if row[SYSTEM]["punctuation"] and row["k"] is not None
        ])  # fmt: skip
        found = [row for row in found if not row[SYSTEM]["punctuation"] or row["k"] is None]
        own = [row for row in found if not row[SYSTEM]["punctuation"]]
        for row in own:
            assert not self.promised or row["t"] >= self.promised[-1] or not self.plan.hold, (
                "a row below what was promised"
            )
        for mark in found[len(own) :]:
            assert mark[SYSTEM]["punctuation"]
            at = ENDED if mark["t"] is None else mark["t"]
            assert not self.promised or at > self.promised[-1], "a promise is repeated, or goes back"
            self.promised.append(at)
        self.given += own
        self.per_batch.append(len(own))
        counted = self.report
        left_out = counted.repeats + counted.superseded + counted.refused
        assert counted.rows == counted.released + counted.held + left_out
        assert counted.released == len(self.given)
        return shard, own

    def drain(self):
        while self.report.due:
            self.run([])


def play(asked, arriving, sizes):
    """Batches of these sizes, each input promising after each batch the least time that it still has to send."""
    run = Run(asked)
    todo, at = list(arriving), 0
    for size in [*sizes, len(todo)]:
        batch, at = todo[at : at + size], at + size
        times = {
            source: [time for each, _, time, _ in todo[at:] if each == source] for source in asked.inputs or BOTH[:1]
        }
        run.step(batch, {source: min(mine, default=ENDED) for source, mine in times.items()})
    run.drain()
    return run


arrivals = st.lists(
    st.tuples(st.sampled_from(BOTH), st.integers(0, 3), st.integers(0, 8)), min_size=1, max_size=30
).map(lambda found: [(*each, number) for number, each in enumerate(found)])
sizes = st.lists(st.integers(0, 7), max_size=6)


def groups(found):
    """The numbers of the rows with one key and time, and of which inputs they are."""
    by = collections.defaultdict(list)
    for source, key, time, number in found:
        by[key, time].append((source, number))
    return by


def of_rows(given_rows):
    return groups([(row[SYSTEM]["source"].partition("/")[0], row["k"], row["t"], row["v"]) for row in given_rows])


@pytest.mark.parametrize("flush", [None, 1, 4])
@given(arriving=arrivals, sizes=sizes)
def test_merge_gives_the_preferred_rows_in_the_order_of_time(flush, arriving, sizes):
    run = play(plan(prefer="right", flush_rows=flush), arriving, sizes)
    wanted = {
        which: sorted(
            number for source, number in members if source == ("right" if "right" in dict(members) else "left")
        )
        for which, members in groups(arriving).items()
    }
    assert {which: sorted(number for _, number in members) for which, members in of_rows(run.given).items()} == wanted
    times = [row["t"] for row in run.given]
    assert times == sorted(times)
    assert run.report.held == run.report.remembered == 0
    assert run.promised[-1] == ENDED
    if flush is not None:
        assert max(run.per_batch) <= flush
    assert [kind for kind, _ in run.store.values] == ["head"], "state is left behind"


@pytest.mark.parametrize("asked", [UNION, plan(), plan(flush_rows=2)])
@given(arriving=arrivals, sizes=sizes)
def test_without_preference_one_input_speaks_for_each_key_and_time(asked, arriving, sizes):
    run = play(asked, arriving, sizes)
    found, came = of_rows(run.given), groups(arriving)
    assert found.keys() == came.keys()
    for which, members in found.items():
        (source,) = {source for source, _ in members}
        assert sorted(members) == sorted(each for each in came[which] if each[0] == source)
    if asked.hold:
        times = [row["t"] for row in run.given]
        assert times == sorted(times)
    assert (run.report.held, run.report.remembered) == (0, 0), "purged by punctuation"


@pytest.mark.parametrize("asked", [ORDERED, DISTINCT], ids=["ordered", "distinct"])
@given(arriving=arrivals, sizes=sizes)
def test_one_input_is_put_in_order_or_gives_each_key_and_time_once(asked, arriving, sizes):
    arriving = [("left", *each[1:]) for each in arriving]
    run = play(asked, arriving, sizes)
    if asked.hold:
        assert sorted(row["v"] for row in run.given) == [number for *_, number in arriving]
        assert [row["t"] for row in run.given] == sorted(time for _, _, time, _ in arriving)
    else:
        assert of_rows(run.given).keys() == groups(arriving).keys()
        assert all(len(members) == 1 for members in of_rows(run.given).values())
    assert run.report.remembered == 0


@given(arriving=arrivals, sizes=sizes)
def test_the_newest_row_of_a_union_is_the_preferred_inputs(arriving, sizes):
    run = play(plan("union", hold=False, prefer="left"), arriving, sizes)
    newest = {(row["k"], row["t"]): row for row in sorted(run.given, key=lambda row: row[SYSTEM]["seq"])}
    wanted = {
        which: "left/feed" if "left" in dict(members) else "right/feed" for which, members in groups(arriving).items()
    }
    assert {which: row[SYSTEM]["source"] for which, row in newest.items()} == wanted


@pytest.mark.parametrize("prefer", [None, "left"])
@given(arriving=arrivals, sizes=sizes)
def test_a_union_before_what_asks_for_newest_rows_never_goes_back_in_time(prefer, arriving, sizes):
    """And the newest rows of each key are those of a union that gives every row."""
    asked = plan("union", hold=False, prefer=prefer)
    every, run = play(asked, arriving, sizes), play(dataclasses.replace(asked, newest=True), arriving, sizes)
    last = {}
    for row in run.given:
        assert row["t"] >= last.get(row["k"], row)["t"]
        last[row["k"]] = row
    newest = {}
    for row in every.given:
        if row["t"] >= newest.get(row["k"], row)["t"]:
            newest[row["k"]] = row
    assert {key: row["v"] for key, row in last.items()} == {key: row["v"] for key, row in newest.items()}
    assert every.report.superseded == 0
    assert run.promised == every.promised


def test_what_a_union_has_superseded_is_counted_and_leaves_no_memory():
    run = Run(dataclasses.replace(UNION, newest=True))
    _, own = run.step([("left", 1, 5, 0), ("left", 1, 4, 1), ("right", 1, 5, 0)], {"left": 1, "right": 1})
    assert [row["v"] for row in own] == [0]
    _, own = run.step([("right", 1, 4, 1), ("right", 2, 4, 2), ("left", 1, 5, 2)], {})
    assert [(row["k"], row["v"]) for row in own] == [(1, 2), (2, 2)]
    assert (run.report.superseded, run.report.repeats, run.report.remembered) == (2, 1, 2)
    run.step([], {"left": 9, "right": 9})
    _, own = run.step([("right", 1, 4, 3)], {})
    assert len(own) == 1, "it is late, and takes part"
    assert (run.report.superseded, run.report.late) == (2, 1)


def test_simultaneous_rows_do_not_wait_for_one_another():
    run = Run(plan())
    run.step([("left", 1, 5, 0), ("right", 2, 5, 1)], {"left": 5, "right": 5})
    assert [row["v"] for row in run.given] == [0, 1]
    _, own = run.step([("left", 3, 5, 2)], {})
    assert [row["v"] for row in own] == [2], "more at the same time goes on with it"
    _, own = run.step([("right", 3, 5, 3), ("right", 4, 6, 4)], {"right": 6})
    assert own == [], "one is repeated, the other waits for the left input"
    assert (run.report.held, run.report.repeats) == (1, 1)


def test_nothing_is_let_go_before_each_input_has_promised_something():
    run = Run(plan())
    run.step([("left", 1, 1, 0)], {"left": 100})
    run.step([("right", 1, -(2**63), 1), ("right", 2, -(2**63), 2)], {"right": -(2**63)})
    assert (run.given, run.promised, run.report.held) == ([], [], 3)
    run.step([], {"right": 50})
    assert [row["v"] for row in run.given] == [1, 2, 0]
    assert run.promised == [50]


@pytest.mark.parametrize("prefer", [None, "left"])
@given(arriving=arrivals, size=st.integers(1, 20))
def test_what_is_needed_is_the_least_promise_that_lets_something_go(prefer, arriving, size):
    asked = plan(prefer=prefer, time_format="epoch_us")
    rest = [time for _, _, time, _ in arriving[size:]]
    run = Run(asked)
    run.step(arriving[:size], dict.fromkeys(BOTH, min(rest, default=3)))
    needs, held = run.report.needs, run.report.held
    assert (needs is None) == (held == 0)
    if needs is None:
        return
    run.step([], dict.fromkeys(BOTH, needs - 1))
    assert (run.report.held, run.report.needs) == (held, needs)
    run.step([], dict.fromkeys(BOTH, needs))
    assert run.report.held < held


def test_what_is_needed_is_reported_in_microseconds_or_not_at_all():
    for time_format, needs in ((None, None), ("epoch_s", 7_000_000), ("epoch_ms", 7_000)):
        run = Run(plan(time_format=time_format))
        run.step([("left", 1, 7, 0)], {"left": 7})
        assert run.report.needs == needs
        run.run([])
        assert run.report.needs == needs, "also by a batch without rows"


def test_union_promises_the_least_and_does_not_repeat_itself():
    run = Run(UNION)
    for bounds in ({"left": 20}, {"right": 19}, {"right": 20}, {"right": 21}, {"right": 22}, {"left": 30}):
        run.step([], bounds)
    assert run.promised == [19, 20, 22]


def test_late_rows_are_refused_counted_or_pass():
    held = Run(plan())
    held.step([], {"left": 10, "right": 10})
    shard, own = held.step([("left", 1, 9, 0), ("left", 1, 10, 1)], {})
    assert [row["v"] for row in own] == [1]
    assert shard.late.column("v").to_pylist() == [0]
    assert (held.report.late, held.report.refused) == (1, 1)
    held.step([("left", 1, 8, 2), ("right", 1, 9, 3)], {})
    assert (held.report.late, held.report.refused) == (3, 3)

    passing = Run(plan("union", hold=False, prefer="left"))
    passing.step([("left", 1, 5, 0)], {"left": 10, "right": 10})
    shard, own = passing.step([("right", 1, 5, 1), ("left", 2, 5, 2)], {})
    assert [row["v"] for row in own] == [1, 2]
    assert own[0][SYSTEM]["seq"] < passing.given[0][SYSTEM]["seq"], "it would replace the preferred row"
    assert own[1][SYSTEM]["seq"] > passing.given[0][SYSTEM]["seq"]
    assert (passing.report.late, passing.report.refused, shard.late) == (2, 0, None)

    once = Run(DISTINCT)
    once.step([("left", 1, 5, 0)], {"left": 10})
    shard, own = once.step([("left", 1, 5, 1)], {})
    assert own == []
    assert shard.late.num_rows == 1


def test_what_is_let_go_at_once_goes_a_part_at_a_time():
    run = Run(plan("ordered", inputs=(), repeats="keep", flush_rows=3))
    run.step([("left", 1, number // 2, number) for number in range(10)], {"left": 100})
    assert run.per_batch == [3]
    assert run.promised == [1], "the fourth row, at time 1, has not gone on yet"
    assert (run.report.due, run.report.held) == (7, 7)
    _, own = run.step([("left", 2, 1, 10), ("left", 2, 0, 11)], {})
    assert [row["v"] for row in own] == [3, 10, 4], "what still can be put in order is"
    assert run.report.refused == 1
    run.drain()
    assert run.per_batch == [3, 3, 3, 2]
    assert run.promised[-1] == 100


def test_distinct_by_other_columns_where_a_null_repeats_a_null():
    run = Run(BY_VALUE)
    run.step([("left", 1, 5, 7), ("left", 2, 5, 7), ("left", 3, 6, 7)], {})
    for key in (4, 5):
        nulls = rows([("left", key, 5, 0)]).set_column(2, "v", pa.nulls(1, pa.int64()))
        run.run([to_frame(nulls)])
    assert [(row["k"], row["t"], row["v"]) for row in run.given] == [(1, 5, 7), (3, 6, 7), (4, 5, None)]


def test_the_clock_is_that_of_punctuation_too_and_stays():
    run = Run(plan())
    later = punctuation_rows(SCHEMA, ["left/feed"], 70, t=pa.array([3])).cast(SCHEMA)
    run.run([to_frame(pa.concat_tables([rows([("left", 1, 5, 0)], 9), later]))])
    assert run.report.now_us == 70
    for frames in ([to_frame(rows([("left", 1, 6, 0)], 10))], []):
        run.run(frames)
        assert run.report.now_us == 70


def test_streams_without_a_time_are_numbered_anew():
    run = Run(plan("union", time=None, hold=False))
    run.step([("left", 1, 5, 900), ("right", 1, 5, 3)], {})
    run.step([("right", 1, 5, 4)], {})
    assert [row[SYSTEM]["seq"] for row in run.given] == [0, 1, 2]
    assert [row["v"] for row in run.given] == [3, 900, 4]
    run.step([], {"left": 5, "right": 5})
    assert run.promised == [], "nobody's time is known"


def test_other_columns_are_refused_while_rows_are_held():
    run, other = Run(plan()), rows([("left", 1, 5, 0)])
    run.step([("left", 1, 5, 0)], {"left": 1})
    for changed in (other.set_column(2, "v", other.column("v").cast(pa.float64())), other.drop_columns(["v"])):
        with pytest.raises(CheckpointError, match="other columns"):
            ReorderShard(0, plan(), run.store).run([to_frame(changed)])


@pytest.mark.parametrize("flush", [None, 1])
def test_a_column_more_is_null_in_rows_that_were_held_before(flush):
    run = Run(plan(flush_rows=flush))
    run.step([("left", 1, 5, 0), ("left", 1, 7, 1)], {"left": 5})
    wider = pa.concat_tables([rows([("right", 1, 6, 2)]), promises({"left": 9, "right": 9})])
    _, given = run.run([to_frame(wider.add_column(2, "more", pa.array([9, None, None])))])
    while run.report.due:  # batches without rows, and so without a schema
        given += run.run([])[1]
    assert [(row["t"], row["more"]) for row in given] == [(5, None), (6, 9), (7, None)]


def test_rows_without_a_time_have_no_place():
    bad = rows([("left", 1, 5, 0)]).set_column(1, "t", pa.nulls(1, pa.int64()))
    with pytest.raises(MalformedRowError, match=r"1 of 1 rows .*'t'"):
        ReorderShard(0, plan(), DictStore()).run([to_frame(bad)])


def play_keys(asked, arriving, sizes, data):
    """The same batches with true promises of single keys and without, given by each input after its rows."""
    with_them, without = Run(asked), Run(asked)
    todo, at = list(arriving), 0
    for size in [*sizes, len(todo)]:
        batch, at = todo[at : at + size], at + size
        rest, bounds, claims = todo[at:], {}, []
        for source in asked.inputs or BOTH[:1]:
            own = [(key, time) for each, key, time, _ in rest if each == source]
            if not own or data.draw(st.booleans()):
                bounds[source] = min((time for _, time in own), default=ENDED)
            for key in data.draw(st.lists(st.integers(0, 3), max_size=3)):
                least = min((time for each, time in own if each == key), default=ENDED)
                feed = data.draw(st.sampled_from(["feed", ALL_FEEDS]))
                claims.append((f"{source}/{feed}" if asked.inputs or feed == "feed" else feed, key, least))
        with_them.step(batch, bounds, claims)
        without.step(batch, bounds)
    for run in (with_them, without):
        run.drain()
    return with_them, without


PLANS = [
    plan(prefer="right"), plan(flush_rows=2), ORDERED, UNION, plan("union", hold=False, prefer="left"),
    plan("union", hold=False, repeats="keep"), DISTINCT, BY_VALUE,
]  # fmt: skip


@pytest.mark.parametrize("asked", PLANS, ids=lambda asked: f"{asked.name}-{asked.prefer}-{asked.repeats}-{asked.by[0]}")
@given(arriving=arrivals, sizes=sizes, data=st.data())
def test_promises_of_keys_change_no_row_and_are_passed_on_where_they_hold(asked, arriving, sizes, data):
    if not asked.inputs:
        arriving = [("left", *each[1:]) for each in arriving]
    with_them, without = play_keys(asked, arriving, sizes, data)
    assert with_them.given == without.given
    assert with_them.per_batch == without.per_batch
    assert with_them.promised == without.promised
    assert with_them.report.late == 0
    assert with_them.report.remembered <= without.report.remembered
    assert [kind for kind, _ in with_them.store.values] == ["head"], "state is left behind"


def test_a_union_promises_of_a_key_what_all_of_its_inputs_do():
    run = Run(UNION)
    run.step([("left", 1, 5, 0), ("right", 1, 4, 1)], {"left": 2, "right": 3}, [("left/feed", 1, 9)])
    run.step([], {}, [("right/feed", 1, 7)])
    run.step([], {"right": 8})
    run.step([], {"left": 20, "right": 20})
    assert run.of_keys == [[(1, 3, ALL_FEEDS)], [(1, 7, ALL_FEEDS)], [(1, 8, ALL_FEEDS)], []]
    assert run.promised == [2, 20]
    run.step([], {}, [(f"left/{ALL_FEEDS}", 1, 30)])
    assert run.of_keys[4] == [], "the right has promised nothing more"
    run.step([], {}, [("right/feed", 1, 25)])
    assert run.of_keys[5] == [(1, 25, ALL_FEEDS)]
    run.step([], {"left": 30, "right": 30})
    assert not any(kind == "single" for kind, _ in run.store.values)


def test_an_ordered_release_promises_of_a_key_no_more_than_its_held_rows_allow():
    """It is the shard that is in order: rows of a key wait for earlier ones of others, whatever is known of it."""
    run = Run(ORDERED)
    run.step([("left", 1, 5, 0), ("left", 2, 6, 1)], {"left": 3}, [("left/feed", 1, 9), ("left/feed", 3, 9)])
    assert run.per_batch == [0]
    assert sorted(run.of_keys[0]) == [(1, 5, ALL_FEEDS), (3, 9, ALL_FEEDS)]
    run.step([], {"left": 5})
    assert (run.per_batch[1], run.of_keys[1]) == (1, [(1, 9, ALL_FEEDS)])


def test_distinct_forgets_what_the_punctuation_of_its_key_has_passed_and_refuses_it_from_then_on():
    run = Run(DISTINCT)
    start = [("left", key, time, 3 * key + time) for key in (1, 2) for time in (4, 5, 6)]
    run.step(start, {"left": 2}, [("left/feed", 1, 6)])
    assert run.report.remembered == 4
    shard, own = run.step([("left", 1, 5, 90), ("left", 1, 6, 91), ("left", 2, 5, 92), ("left", 1, 7, 93)], {})
    assert [row["v"] for row in own] == [93]
    assert (run.report.late, run.report.refused, run.report.repeats) == (1, 1, 2)
    assert shard.late.column("v").to_pylist() == [90]


def test_distinct_by_other_columns_knows_its_rows_until_all_keys_have_passed_them():
    run = Run(plan("distinct", inputs=(), hold=False, repeats="all", by=("v",), late="refuse", shards=2))
    run.step([("left", 1, 4, 0)], {"left": 2}, [("left/feed", 1, 6)])
    assert (run.report.remembered, run.of_keys) == (1, [[(1, 6, "distinct/0")]])
    _, own = run.step([("left", 1, 4, 0)], {})
    assert (own, run.report.repeats) == ([], 1)


def test_punctuation_of_the_keys_of_another_shard_is_left_out():
    run = Run(plan("union", hold=False, shards=3))
    claims = [(f"{source}/feed", key, 9) for source in BOTH for key in range(12)]
    run.step([], {"left": 2, "right": 2}, claims)
    mine = np.flatnonzero(bucket_of([pa.array(range(12), pa.int64())], 3) == 0).tolist()
    assert sorted(run.of_keys[0]) == [(key, 9, ALL_FEEDS) for key in mine]


def keyed(*each):
    """Rows (key, time, input)."""
    key, time, source = zip(*each, strict=True) if each else ((), (), ())
    return pa.table(
        {"k": pa.array(key, pa.string()), PANE: pa.array(time, pa.int64()), INPUT: pa.array(source, pa.int64())}
    )


def outcome(new, memory, repeats, prefer=None):
    found = admitted(new, memory, ["k"], repeats, prefer)
    assert found.keep.dtype == found.remember.dtype == bool
    return found.keep.tolist(), found.remember.tolist()


NEW = keyed(("a", 1, 0), ("a", 1, 1), ("a", 1, 0), ("a", 2, 1), ("b", 1, 1), ("b", 1, 0))
NONE = keyed()


def test_nothing_is_remembered_at_first():
    table = pa.table({"v": [1.5], "k": ["a"], "t": [1]})
    nothing = no_memory(table, ["k", "v"])
    assert nothing.num_rows == 0
    assert nothing.schema == pa.schema(
        [("k", pa.string()), ("v", pa.float64()), (PANE, pa.int64()), (INPUT, pa.int64())]
    )


def test_all_go_on_where_repeats_are_kept():
    assert outcome(NEW, NONE, "keep") == ([True] * 6, [False] * 6)
    assert outcome(NONE, NEW, "inputs") == ([], [])


def test_one_of_all_goes_on():
    keep = [True, False, False, True, True, False]
    assert outcome(NEW, NONE, "all") == (keep, keep)
    keep = [False, False, False, True, False, False]
    assert outcome(NEW, keyed(("b", 1, 0), ("a", 1, 1)), "all") == (keep, keep)


def test_the_rows_of_the_first_input_go_on():
    assert outcome(NEW, NONE, "inputs") == (
        [True, False, True, True, True, False],
        [True, False, False, True, True, False],
    )
    memory = keyed(("a", 1, 1), ("b", 9, 0))
    assert outcome(NEW, memory, "inputs") == (
        [False, True, False, True, True, False],
        [False, False, False, True, True, False],
    ), "what is remembered is not remembered again"


@pytest.mark.parametrize("columns", [["k", PANE, INPUT], [INPUT, PANE, "k"]])
def test_the_rows_of_the_preferred_input_go_on_whoever_came_first(columns):
    memory = keyed(("a", 2, 1), ("b", 1, 0)).select(columns)
    assert outcome(NEW, memory, "inputs", prefer=1) == (
        [False, True, False, True, True, False],
        [False, True, False, False, True, False],
    )
    assert outcome(NEW, memory, "inputs", prefer=0) == (
        [True, False, True, True, False, True],
        [True, False, False, False, False, False],
    )
