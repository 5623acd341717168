"""Session windows through `pack` and shards, against sessions found row by row."""

import copy
import dataclasses
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.aggregates.functions import count
from upstream.operators.state.store import DictStore
from upstream.operators.windows.sessions import Sessions, SessionWindows
from upstream.operators.windows.shards.session_shard import GivenSessions, latest_of_key

from .drawn import END, LATE, any_batches, everything, plan_of, totals
from .windows_of import Batch, Run, punctuation_table, rows_table

Key = tuple[int, int]
"""A key and a window-id."""


def sessions_of(rows, gap):
    """By key and first time: the last time, how many rows, their sum and their greatest."""
    by_key: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for key, time, value in rows:
        by_key[key].append((time, value))
    found: dict[Key, tuple[int, int, int, int]] = {}
    for key, mine in by_key.items():
        run: list[tuple[int, int]] = []
        for time, value in [*sorted(mine), (10**9, 0)]:
            if run and time - run[-1][0] > gap:
                values = [each for _, each in run]
                found[key, run[0][0]] = (run[-1][0], len(run), sum(values), max(values))
                run = []
            run.append((time, value))
    return found


def session_plan(gap, emit="all", **more):
    """With an aggregate that cannot be retracted."""
    return plan_of(SessionWindows(gap), emit, aggregates=totals(False), **more)


def given_by(run):
    """What a table of every session holds: the newest result of each, by time and then by `seq`, without tombstones."""
    table: dict[Key, dict[str, Any]] = {}
    for row in sorted(run.results, key=lambda each: each[SYSTEM]["seq"]):
        at = row["key"], row["window_id"]
        if at not in table or micros(row["window_time"]) >= micros(table[at]["window_time"]):
            table[at] = row
    return {at: row for at, row in table.items() if not row[SYSTEM]["deleted"]}


def micros(time):
    return round(time.timestamp() * 1e6)


def values(row, gap):
    """As :func:`sessions_of` has it."""
    assert micros(row["window_start"]) == row["window_id"]
    assert micros(row["window_time"]) == micros(row["window_end"]) - 1
    return micros(row["window_end"]) - gap, row["n"], row["total"], row["top"]


def restarted(plan, batches, tasks, *more):
    """A run whose every batch begins in a new process, and is run twice from the same state."""
    run = Run(plan)
    for batch in [*batches, *more]:
        again = copy.deepcopy(run)
        again.batches([batch], tasks)
        run.batches([batch], tasks)
        assert again.results == run.results
        assert [store.values for store in again.stores] == [store.values for store in run.stores]
    return run


@given(
    st.integers(1, 12),
    any_batches(),
    st.sampled_from(["all", "all+early", "lazy", "early"]),
    st.sampled_from([1, 3]),
    st.sampled_from([1, 2]),
)
def test_sessions_are_those_of_the_rows_whatever_the_order_the_batches_and_restarts(gap, batches, emit, shards, tasks):
    run = restarted(session_plan(gap, emit, shards=shards), batches, tasks, ([], 10 * END))
    expected = sessions_of(everything(batches), gap)
    final = [row for row in run.results if row["final"]]
    got = {(row["key"], row["window_id"]): values(row, gap) for row in final}
    assert len(got) == len(final), "a session closes once"
    if emit.startswith("all"):
        assert got == expected
        assert {at: values(row, gap) for at, row in given_by(run).items()} == expected
    else:
        assert got.items() <= expected.items()
        newest = {key: max(start for other, start in expected if other == key) for key, _ in expected}
        assert {key: max(start for other, start in got if other == key) for key, _ in got} == newest
    assert sum(report.late for report in run.reports) == 0
    assert all({kind for kind, _ in store.values} <= {"head"} for store in run.stores), "nothing is kept at the end"


@given(st.integers(1, 12), any_batches(), LATE, st.sampled_from(["all", "all+early", "lazy"]))
def test_allowed_lateness_merges_sessions_that_were_given_and_takes_back_what_vanishes(gap, batches, late, emit):
    more: list[Batch] = [(late[:3], None), (late[3:], END), ([], 100)]
    run = restarted(session_plan(gap, emit, lateness_us=200), batches, 1, *more)
    expected = sessions_of(everything(batches) + late, gap)
    table = given_by(run)
    if emit == "lazy":
        expected = {at: it for at, it in expected.items() if at[1] == max(s for key, s in expected if key == at[0])}
        table = {at: row for at, row in table.items() if at in expected}
    assert {at: values(row, gap) for at, row in table.items()} == expected
    assert not run.late
    tombstones = [row for row in run.results if row[SYSTEM]["deleted"]]
    assert all(row["n"] is None and row["final"] is None for row in tombstones)
    run.batches([([], 1000)])
    assert all({kind for kind, _ in store.values} <= {"head"} for store in run.stores), "nothing is kept at the end"


@given(st.integers(1, 12), any_batches(), st.sampled_from([0, 7]), LATE, st.sampled_from(["all", "all+early"]))
def test_every_row_is_in_a_result_or_among_the_late_ones(gap, batches, lateness_us, late, emit):
    plan = session_plan(gap, emit, lateness_us=lateness_us)
    run = restarted(plan, batches[:-1], 1, (late, END // 2), ([], 10 * END))
    counted = sum(row["n"] for row in given_by(run).values())
    missed = sum(table.num_rows for table in run.late)
    assert counted + missed == len(everything(batches)) + len(late)
    assert sum(report.late for report in run.reports) == missed
    promised = [(row["batch"], row[SYSTEM]["source"], micros(row["window_end"])) for row in run.punctuation]
    for batch, source, end in promised:
        since = [row for row in run.results if row["batch"] > batch and row[SYSTEM]["source"] == source]
        assert all(micros(row["window_end"]) >= end for row in since), "no result comes below the punctuation"


def test_rows_exactly_a_gap_apart_are_one_session_and_it_waits_for_such_a_row():
    run = Run(session_plan(10, shards=1)).batches([([(1, 0, 1)], 10)])
    assert not run.results, "a row at 10 may still come"
    run.batches([([(1, 10, 2), (1, 21, 4)], 21)])
    assert [values(row, 10) for row in run.results] == [(10, 2, 3, 2)]
    assert run.reports[-1].needs == 32


def test_a_late_row_joins_an_open_session_and_is_late_without_one():
    run = Run(session_plan(10, shards=1)).batches([([(1, 0, 1), (1, 30, 2)], 25), ([(1, 22, 4), (1, 5, 8)], 60)])
    assert {at: values(row, 10) for at, row in given_by(run).items()} == {(1, 0): (0, 1, 1, 1), (1, 22): (30, 2, 6, 4)}
    assert [table.column("v").to_pylist() for table in run.late] == [[8]]


def test_a_key_whose_rows_are_complete_closes_its_sessions_before_the_others():
    run = Run(session_plan(10, shards=1))
    run.tables(
        rows_table([(1, 0, 1), (2, 0, 2), (1, 20, 4)], 1), punctuation_table(0, 1), punctuation_table(15, 1, key=1)
    )
    assert [(row["key"], row["window_id"]) for row in run.results] == [(1, 0)]
    run.tables(rows_table([(1, 4, 8), (2, 4, 16)], 2))
    assert [table.column("v").to_pylist() for table in run.late] == [[8]]
    run.tables(punctuation_table(40, 3))
    assert {at: row["total"] for at, row in given_by(run).items()} == {(1, 0): 1, (1, 20): 4, (2, 0): 18}
    assert {kind for kind, _ in run.stores[0].values} == {"head"}


def test_the_end_of_all_feeds_closes_every_session():
    run = Run(session_plan(10, shards=1))
    run.tables(rows_table([(1, 0, 1)], 1), punctuation_table(0, 1))
    run.tables(punctuation_table(None, 2))
    assert [values(row, 10) for row in run.results] == [(0, 1, 1, 1)]
    assert run.punctuation[-1]["window_time"] is None


def test_a_batch_touches_the_pages_of_its_keys_and_of_sessions_that_close():
    run = Run(session_plan(10, shards=1)).batches([([(key, key % 7, 1) for key in range(100_000)], 0)])
    run.batches([([(77, 9, 1)], 5)])
    assert run.reports[-1].runs_read == 1
    assert run.reports[-1].entries == 100_000
    run.batches([([], 11)])
    closed = {row["key"] for row in run.results}
    assert closed == {key for key in range(0, 100_000, 7) if key != 77}


def test_late_rows_are_counted_where_the_reports_of_closed_sessions_were_lost():
    run = Run(session_plan(10, shards=1)).batches([([(1, 0, 1)], 50)])
    run.forget()
    run.batches([([(1, 5, 2), (1, 8, 4), (1, 45, 8)], 100)])
    assert sum(report.late for report in run.reports) == 2
    assert {at: row["total"] for at, row in given_by(run).items()} == {(1, 0): 1, (1, 45): 8}


def test_other_aggregates_on_the_same_state_are_refused():
    stores = Run(session_plan(10)).batches([([(1, 3, 1)], 0)]).stores
    other = plan_of(SessionWindows(10), aggregates={"n": count()})
    with pytest.raises(CheckpointError, match="other aggregates"):
        Run(other, stores).batches([([(1, 3, 1)], 0)])


def test_frames_of_rows_and_of_parts_make_the_same_sessions():
    """As where the window runs in the stage of the operator before it."""
    rows = [(key, time, time) for key in range(3) for time in (0, 4, 9, 30, 33)]
    whole = Run(session_plan(5))
    whole._final = 10**6
    both = [whole.batches([(rows, 100)]), Run(session_plan(5)).batches([(rows, 100)], tasks=3)]
    tables = [{at: values(row, 5) for at, row in given_by(run).items()} for run in both]
    assert tables[0] == tables[1] == sessions_of(rows, 5)


def test_punctuation_of_a_part_of_the_key_closes_all_sessions_with_it_and_is_passed_on():
    run = Run(dataclasses.replace(plan_of(SessionWindows(10), shards=1), key=("key", "v"), update_key=("key", "v")))
    run.tables(rows_table([(1, 0, 7), (1, 3, 8), (2, 0, 7), (1, 20, 7)], 1), punctuation_table(0, 1))
    assert run.of_keys == []
    for bound, closed in ((10, []), (11, [(1, 7)]), (14, [(1, 8)]), (30, []), (31, [(1, 7)])):
        before = len(run.results)
        run.tables(punctuation_table(bound, 2, key=1))
        assert [(each["key"], each["v"]) for each in run.results[before:]] == closed
        assert (run.of_keys[-1]["key"], run.of_keys[-1]["v"], micros(run.of_keys[-1]["window_end"])) == (1, None, bound)
    run.tables(punctuation_table(40, 3))
    assert [(each["key"], each["v"]) for each in run.results[3:]] == [(2, 7)]


PLAN = plan_of(SessionWindows(5), "all+early")


def sessions(*each):
    """Key, first and last time."""
    key, start, last = (np.array([one[at] for one in each], dtype=np.int64) for at in range(3))
    keys = pa.table([pa.array(key)], schema=PLAN.key_schema)
    return Sessions(keys, start, last, PLAN.algebra.empty(len(each)))


def flags(*values):
    return np.array(values, dtype=bool)


def test_results_in_a_session_with_another_beginning_are_taken_back_with_the_time_that_they_had():
    store = DictStore()
    given = GivenSessions(store, PLAN, {})
    before = sessions((1, 0, 3), (1, 20, 25), (2, 0, 0))
    none = flags(0, 0, 0)
    taken, again = given.replaced(before, flags(1, 0, 1), flags(0, 1, 0), none)
    assert (len(taken), again, given.least_end) == (0, 0, 5)
    given = GivenSessions(store, PLAN, given.to_json())
    after = sessions((1, -4, 30), (2, 0, 0))
    waits, again = given.replaced(after, flags(0, 0), flags(0, 0), flags(0, 0))
    assert len(waits) == again == 0, "nothing is taken back before the session that swallowed it is given"
    taken, again = given.replaced(after, flags(1, 0), flags(0, 0), flags(0, 0))
    assert taken.keys.column("key").to_pylist() == [1, 1]
    assert taken.ends is not None
    assert sorted(zip(taken.wids.tolist(), taken.ends.tolist(), strict=True)) == [(0, 8), (20, 30)]
    assert again == 1, "one of the two results was final"
    given.replaced(after, flags(0, 0), flags(0, 0), flags(1, 1))
    assert not store.values


def test_the_latest_of_each_key_among_some():
    codes = np.array([0, 0, 0, 1, 2, 2])
    assert latest_of_key(codes, flags(1, 1, 0, 0, 1, 1)).tolist() == [False, True, False, False, False, True]
    assert latest_of_key(codes, flags(0, 0, 0, 0, 0, 0)).sum() == 0
