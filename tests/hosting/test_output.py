import itertools
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import FORMS
from kit.hosting import Versions, result_table

from upstream.conf.errors import QueryError
from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.system_column import SYSTEM
from upstream.hosting.host_plan import HostPlan, HostPlans
from upstream.hosting.messages import Outbox
from upstream.hosting.output import (
    BatchOutcome,
    DeferredChanges,
    KnownQueries,
    OutputControl,
    ResultOutput,
    Stamp,
    outcome_of,
    result_frames,
)
from upstream.operators.relations import zsets
from upstream.operators.relations.zsets import BEGINNING, TIME, WEIGHT, consolidated
from upstream.operators.state.store import DictStore

COUNTS = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"
PLAN = HostPlan.of(Versions({1: {"q": (7, COUNTS), "r": (8, COUNTS)}})(1), range(4))
STAMP = Stamp(3, 1, 4, 90, 80)


def sent(known, deferred=None, served=None):
    out = Outbox(PLAN.slots)
    return ResultOutput(PLAN, known, out, deferred or DeferredChanges(DictStore(), {}), served), out


def counted(n, weight=1):
    return pl.DataFrame({"route_id": ["a"], "n": [n], TIME: [5], WEIGHT: [weight]})


def left(out):
    return [
        (
            OutputControl.of(row["control"]),
            [] if row["frame"] is None else result_table(row["frame"]).column("n").to_pylist(),
        )
        for row in out.table().to_pylist()
    ]


def begun():
    known = KnownQueries({})
    known.follow(PLAN)
    return known


def test_a_control_is_read_as_it_was_written():
    for each in (
        OutputControl("rows", 7, "q", 2),
        OutputControl("begun", 7, "q", complete_from=BEGINNING),
        OutputControl("begun", 7, "q"),
        OutputControl("failed", 7, "q", reason='a "b"'),
        OutputControl("late", name="s", count=3, queries=(1, 2)),
    ):
        assert OutputControl.of(each.control()) == each
    assert OutputControl("rows", 7, "q").control() == '{"kind":"rows","name":"q","query":7}'


def test_rows_of_a_query_go_to_one_slot_whatever_shard_they_come_from():
    results, out = sent(begun())
    changes = pl.DataFrame({"route_id": ["a"], "n": [1], TIME: [5], WEIGHT: [1]})
    for shard in range(4):
        results.take(PLAN.queries[7], changes, Stamp(3, shard, 4, 90, 80))
    table = out.table()
    assert len(set(table.column("slot").to_pylist())) == 1
    assert result_table(table.column("frame")[0].as_py()).column("n").to_pylist() == [1]
    assert OutputControl.of(table.column("control")[0].as_py()) == OutputControl("rows", 7, "q")


def test_slots_of_queries_differ():
    results, out = sent(begun())
    plan = HostPlan.of(Versions({1: {f"q{at}": (at, COUNTS) for at in range(40)}})(1), range(4))
    for query in plan.queries.values():
        results.begin(query, None, None)
    counts = np.bincount(out.table().column("slot").to_numpy(), minlength=4)
    assert (counts > 3).all()


def test_a_query_whose_rows_have_one_key_fails_and_says_so_until_it_is_gone():
    known = begun()
    results, out = sent(known)
    twice = pl.DataFrame({"route_id": ["a", "a"], "n": [1, 2], TIME: [5, 5], WEIGHT: [1, 1]})
    results.take(PLAN.queries[7], twice, STAMP)
    results.close(STAMP)
    (control,) = out.table().column("control").to_pylist()
    leaving = OutputControl.of(control)
    assert (leaving.kind, leaving.query, leaving.name) == ("failed", 7, "q")
    assert "one key (row_key)" in leaving.reason
    assert [each.id for each in known.running(PLAN)] == [8]


def test_late_rows_leave_as_a_count_for_the_queries_that_miss_them():
    results, out = sent(begun())
    results.late("buses", 2, [7, 8])
    (control,) = out.table().column("control").to_pylist()
    assert OutputControl.of(control) == OutputControl("late", name="buses", count=2, queries=(7, 8))
    assert out.table().column("frame").null_count == 1
    assert out.table().schema.field("frame").type == pa.binary()


def test_a_query_is_complete_to_its_low_watermark_if_all_shards_have_evaluated_it_and_nothing_waits():
    results, out = sent(begun())
    domain = PLAN.queries[7].domain.name
    results.reach({domain: 1_500_000}, [8])
    outcome = outcome_of((each, None) for each in out.table().column("control").to_pylist())
    assert outcome.bounds(PLAN.queries) == {"q": {"buses": 1_500_000}}
    outcome.waiting[7] = 3
    assert outcome.bounds(PLAN.queries) == {}
    outcome.waiting.clear()
    assert BatchOutcome().bounds(PLAN.queries) == {}


def test_results_of_queries_that_are_not_served_wait_until_they_are():
    known, store = begun(), DictStore()
    deferred = DeferredChanges(store, {})
    results, out = sent(known, deferred, frozenset([8]))
    results.take(PLAN.queries[7], counted(1), Stamp(3, 1, 4, 90, 80))
    results.take(PLAN.queries[8], counted(1), Stamp(3, 1, 4, 90, 80))
    results.close(STAMP)
    assert left(out) == [
        (OutputControl("rows", 8, "r"), [1]),
        (OutputControl("waiting", queries=(7,), since=(80,)), []),
    ]
    results, out = sent(known, deferred, frozenset([7]))
    results.take(PLAN.queries[7], pl.concat([counted(1, -1), counted(2)]), Stamp(4, 1, 4, 95, 94))
    results.close(Stamp(4, 1, 4, 95, 95))
    assert left(out) == [(OutputControl("rows", 7, "q"), [2])]
    system = result_table(out.table().column("frame")[0].as_py()).column("_upstream")[0].as_py()
    assert system["first_arrival"].timestamp() * 1e6 == 80
    assert store.values == {}


def test_what_waits_of_a_query_that_fails_is_forgotten():
    known, store = begun(), DictStore()
    deferred = DeferredChanges(store, {})
    results, _ = sent(known, deferred, frozenset())
    results.take(PLAN.queries[7], counted(1), STAMP)
    known.fail([7], "no")
    results, out = sent(known, deferred)
    results.close(STAMP)
    assert [leaving.kind for leaving, _ in left(out)] == ["failed"]
    assert store.values == {}


TABLE = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"
FEED = "ISTREAM(SELECT vehicle_id, route_id FROM LATEST(buses))"
DEFERRING = HostPlan.of(Versions({1: {"q": (1, TABLE), "f": (2, FEED)}})(1), [0])


def changes(rows):
    return pl.DataFrame(rows, schema=["route_id", "n", TIME, WEIGHT], orient="row", schema_overrides={"n": pl.Int64()})


_ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 9), st.sampled_from([-1, 1])), min_size=1
)


def net(changes):
    return consolidated(changes.with_columns(pl.lit(0, pl.Int64).alias(TIME)))


@given(st.lists(_ROWS, min_size=1, max_size=20))
def test_what_waits_adds_up_in_few_pages(batches):
    store = DictStore()
    deferred = DeferredChanges(store, {})
    query = DEFERRING.queries[1]
    for at, rows in enumerate(batches):
        deferred.put(query, changes(rows), 50 - at)
        deferred = DeferredChanges(store, json.loads(json.dumps(deferred.to_json())))
        assert len(store.values) <= 8 + len(batches).bit_length()
    expected = net(changes([row for rows in batches for row in rows]))
    waits = list(deferred.firsts) == [1]
    frames, first_us = deferred.take(query)
    assert waits == (first_us == 51 - len(batches))
    assert waits or expected.height == 0
    found = net(pl.concat(frames)).rows() if waits else []
    assert sorted(found) == sorted(expected.rows())
    assert store.values == {}
    assert not deferred.firsts


def test_many_changed_rows_are_not_written_again_for_each_few_more():
    written = []

    class CountedStore(DictStore):
        def put(self, kind, at, value):
            written.append(len(value))
            super().put(kind, at, value)

    deferred = DeferredChanges(CountedStore(), {})
    deferred.put(DEFERRING.queries[1], changes([(f"key {at}", 1, 1, 1) for at in range(5000)]), 5)
    for at in range(60):
        deferred.put(DEFERRING.queries[1], changes([(f"more {at}", 1, 1, 1)]), 5)
    assert sum(written[1:]) < 2 * written[0]


def test_what_adds_up_to_nothing_does_not_wait():
    deferred = DeferredChanges(DictStore(), {})
    for weight in (1, -1) * 4:
        deferred.put(DEFERRING.queries[1], changes([("a", 1, 1, weight)]), 5)
    assert not deferred.firsts


def test_of_a_feed_every_change_waits():
    store = DictStore()
    deferred = DeferredChanges(store, {})
    rows = pl.DataFrame({"vehicle_id": ["a"], "route_id": ["r"], TIME: [1], WEIGHT: [1]})
    for at in range(20):
        deferred.put(DEFERRING.queries[2], rows.with_columns(pl.lit(at, pl.Int64).alias(TIME)), 7)
    frames, first_us = deferred.take(DEFERRING.queries[2])
    assert pl.concat(frames).get_column(TIME).to_list() == list(range(20))
    assert first_us == 7


def test_queries_that_are_gone_leave_nothing():
    store = DictStore()
    deferred = DeferredChanges(store, {})
    deferred.put(DEFERRING.queries[1], changes([("a", 1, 1, 1)]), 5)
    deferred.keep([2])
    assert store.values == {}
    assert not deferred.firsts
    assert deferred.take(DEFERRING.queries[1]) == ([], None)


TEXT = FORMS[0]
VERSIONS = Versions(
    {4: {"a": (1, TEXT), "b": (4, TEXT)}, 6: {"a": (1, TEXT), "c": (5, TEXT)}, 7: {"a": (7, TEXT), "c": (5, TEXT)}}
)


def plan(version):
    return HostPlans(VERSIONS, [0])(version)


def again(known):
    return KnownQueries(json.loads(json.dumps(known.to_json())))


def test_queries_that_begin_in_one_batch_are_a_generation():
    known = KnownQueries({})
    known.follow(plan(4))
    assert [known.to_json()["begun"][number] for number in (1, 4)] == [4, 4]
    known = again(known)
    known.follow(plan(6))
    assert [known.to_json()["begun"][number] for number in (1, 5)] == [4, 6]
    known.follow(plan(7))
    assert [known.to_json()["begun"][number] for number in (7, 5)] == [7, 6]


def test_a_query_that_failed_does_not_run_until_it_is_another_incarnation():
    known = KnownQueries({})
    known.follow(plan(6))
    known.fail([1], "first")
    known.fail([1], "second")
    known = again(known)
    known.follow(plan(6))
    assert known.failed == {1: "first"}
    assert [each.id for each in known.running(plan(6))] == [5]
    known.follow(plan(7))
    assert known.failed == {}
    assert [each.id for each in known.running(plan(7))] == [5, 7]


def test_work_for_the_second_stage_is_named_by_the_generation():
    known = KnownQueries({})
    known.follow(plan(4))
    one, two = plan(4).queries.values()
    assert known.job_name(one, one.fragments[0]) != known.job_name(two, two.fragments[0])
    shared = replace(one.fragments[0], onward=())
    assert known.job_name(one, shared) == known.job_name(two, shared) == f"{shared.name}@4"


def test_what_is_refused_has_failed():
    known = KnownQueries({})
    made = HostPlan(Versions({8: {}})(8), [0])
    made.refused[3] = "q", "no"
    known.follow(made)
    assert known.failed == {3: "no"}


def test_what_only_a_query_had_that_failed_is_cleared_when_it_leaves():
    versions = {4: {"a": (1, TEXT)}, 5: {"a": (5, TEXT)}, 6: {"a": (5, TEXT)}}
    for failed, clears in (([1], [False, True, False]), ([], [False, False, False])):
        known = KnownQueries({})
        for version, expected in zip(versions, clears, strict=True):
            known = again(known)
            known.follow(HostPlans(Versions(versions, failed=failed if version > 4 else ()), [0])(version))
            assert known.clears == expected


LEFT = [
    (OutputControl("rows", 1, "one", 0, count=3, took_s=0.25), b"a"),
    (OutputControl("rows", 1, "one", 1, count=2, took_s=0.5), b"b"),
    (OutputControl("begun", 1, "one", complete_from=7), None),
    (OutputControl("begun", 1, "one", complete_from=9), None),
    (OutputControl("failed", 2, "two", reason="a division by zero"), None),
    (OutputControl("failed", 2, "two", reason="a cast"), None),
]


def of(left):
    return outcome_of((leaving.control(), staged) for leaving, staged in left)


def test_the_order_does_not_matter():
    for order in itertools.permutations(LEFT):
        outcome = of(order)
        assert sorted(outcome.staged.pop(1)) == [b"a", b"b"]
        assert (outcome.rows, outcome.took_s, outcome.staged) == ({1: 5}, {1: 0.75}, {})
        assert outcome.began == {1: 9}
        assert outcome.failed == {2: ("two", "a cast")}


def test_what_is_never_whole_in_one_shard_is_never_whole():
    shards = [OutputControl("begun", 1, "one", complete_from=since) for since in (3, None, 5)]
    for order in itertools.permutations(shards):
        assert of((each, None) for each in order).began == {1: None}


def test_late_rows_count_for_each_query_and_shard():
    late = OutputControl("late", name="stream", count=2, queries=(1, 3))
    assert of(
        [(late, None), (late, None), (OutputControl("late", name="other", count=1, queries=(3,)), None)]
    ).late == {
        1: 4,
        3: 5,
    }


def test_queries_wait_if_they_wait_in_one_shard():
    waits = [
        OutputControl("waiting", queries=(1, 4), since=(7, 9)),
        OutputControl("waiting", queries=(2, 4), since=(8, 5)),
    ]
    for order in itertools.permutations(waits):
        assert of((each, None) for each in order).waiting == {1: 7, 2: 8, 4: 5}


def test_a_row_of_no_known_kind_is_an_error():
    with pytest.raises(ValueError, match="'waits'"):
        of([(OutputControl("waits"), None)])


NEWEST = "SELECT vehicle_id, route_id FROM LATEST(buses) WHERE speed > 1 EMIT CHANGES"


def query(text, buckets=1):
    return HostPlan.of(Versions({1: {"q": (1, text)}}, buckets)(1), range(4)).queries[1]


def frame_of_changes(rows):
    kinds = {"vehicle_id": pl.String(), "route_id": pl.String(), TIME: pl.Int64(), WEIGHT: pl.Int64()}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def taken(hosted, rows, stamp=STAMP):
    frames = result_frames(hosted, frame_of_changes(rows), stamp)
    return pa.concat_tables([result_table(frame) for _, frame in frames])


def test_a_key_that_goes_is_a_tombstone_and_one_that_stays_is_not():
    hosted = query(NEWEST)
    rows = [("a", "1", 5, -1), ("a", "2", 5, 1), ("b", "1", 6, -1), ("c", "1", 7, 1), ("c", "1", 8, -1)]
    table = taken(hosted, rows)
    system = table.column(SYSTEM).to_pylist()
    key = hosted.result.key[0]
    named = dict(zip(table.column(key).to_pylist(), table.column("route_id").to_pylist(), strict=True))
    assert named == {"a": "2", "b": "1"}
    assert [each["deleted"] for each in system] == [False, True]
    assert [each["first_arrival"].timestamp() * 1e6 for each in system] == [80, 80]
    assert [each["arrival"].timestamp() * 1e6 for each in system] == [90, 90]
    assert table.schema.names == [*hosted.result.schema.names, SYSTEM]


def test_later_batches_win_then_upserts():
    hosted = query(NEWEST)
    up = taken(hosted, [("a", "1", 5, 1)], Stamp(3, 0, 4, 90, 80))
    down = taken(hosted, [("a", "1", 5, -1)], Stamp(3, 3, 4, 90, 80))
    later = taken(hosted, [("a", "1", 5, -1)], Stamp(4, 0, 4, 90, 80))
    seq = [each.column(SYSTEM)[0].as_py()["seq"] for each in (down, up, later)]
    assert seq == sorted(seq)
    assert len(set(seq)) == 3


def test_sequences_of_shards_differ():
    hosted = query(FEED)
    rows = [("a", "1", 5, 3)]
    seqs = [
        each["seq"] for shard in range(4) for each in taken(hosted, rows, Stamp(3, shard, 4, 9, 8))[SYSTEM].to_pylist()
    ]
    assert len(set(seqs)) == 12


def test_two_rows_of_one_key_are_refused():
    with pytest.raises(QueryError, match="one key"):
        taken(query(NEWEST), [("a", "1", 5, 1), ("a", "2", 5, 1)])
    with pytest.raises(QueryError, match="one key"):
        taken(query(NEWEST), [("a", "1", 5, 2)])


def test_a_feed_takes_no_more_copies_than_a_step_can_hold(monkeypatch):
    monkeypatch.setattr(zsets, "_MOST_GROWTH", 10)
    assert taken(query(FEED), [("a", "1", 5, 11)]).num_rows == 11
    with pytest.raises(QueryError, match="more than there are"):
        taken(query(FEED), [("a", "1", 5, 12)])


def test_rows_of_a_bucket_are_those_of_its_keys():
    hosted = query(NEWEST, buckets=3)
    rows = [(str(at), "1", 5, 1 if at % 3 else -1) for at in range(30)]
    frames = result_frames(hosted, frame_of_changes(rows), STAMP)
    found = {number: result_table(frame) for number, frame in frames}
    assert set(found) == {0, 1, 2}
    assert sum(each.num_rows for each in found.values()) == 30
    for number, table in found.items():
        assert set(bucket_of([table.column(name) for name in hosted.result.key], 3).tolist()) == {number}
