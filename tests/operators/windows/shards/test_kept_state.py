"""What shards say they hold, against what rows and windows say is still to come."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError
from upstream.core.rows.system_column import SYSTEM
from upstream.operators.aggregates.functions import count, max_
from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows
from upstream.operators.windows.shards import kept_state
from upstream.operators.windows.shards.kept_state import Since

from .drawn import ANY_METHOD, END, LATE, METHODS, SLIDING, any_batches, any_windows, plan_of
from .windows_of import Run, punctuation_table, rows_table


def still_to_come(windows, rows, closed):
    """The end of the first window after `closed` that will have a result which no earlier one has given, row by row."""
    opened = {time for _, time, _ in rows}
    found: list[int] = []
    for _, time, _ in rows:
        first, last = (int(end) for end in windows.wids(time))
        if isinstance(windows, LandmarkWindows):
            last = first
        if isinstance(windows, SlideByTupleWindows):
            found += [wid for wid in opened if first <= wid <= last and wid > closed]
        elif last > closed and last >= first:
            found.append(max(first, closed + 1))
    return int(windows.extent(min(found))[1]) if found else None


@given(any_windows(), any_batches(), st.sampled_from(["all", "lazy", "early"]), ANY_METHOD)
def test_needs_is_the_end_of_the_first_window_with_something_in_it(windows, batches, emit, method):
    if method == "wid" and not isinstance(windows, SlidingWindows):
        method = "paned"
    run, rows = Run(plan_of(windows, emit, method, shards=1)), []
    for batch in batches:
        run.batches([batch])
        rows += batch[0]
        if not run.reports:
            continue
        report = run.reports[-1]
        assert report.needs == still_to_come(windows, rows, report.closed)
        assert (report.needs is None) == (report.held == 0) == (report.held_since_us is None)
        # The promise that it asks for does close a window.
        assert report.needs is None or windows.last_complete(report.needs) > report.closed


@given(SLIDING, any_batches(), st.sampled_from(["all", "lazy", "eager"]))
def test_promising_what_is_needed_empties_the_shard(windows, batches, emit):
    run = Run(plan_of(windows, emit, shards=1)).batches(batches[:-1])
    while run.reports and run.reports[-1].needs is not None:
        given_before = len(run.results)
        run.batches([([], run.reports[-1].needs)])
        assert len(run.results) > given_before
    assert all(report.bounds == {"feed": report.bound} for report in run.reports if report.bound is not None)


def test_since_is_the_arrival_of_what_is_still_held():
    run = Run(plan_of(SlidingWindows(10, 10), shards=1))
    run.batches([([(1, 5, 1)], 0), ([(1, 95, 1)], 0), ([(1, 8, 1)], 0), ([], 10)])
    assert [report.held_since_us for report in run.reports] == [1, 1, 1, 2]


def test_since_stays_small():
    since = Since()
    for pane in range(1000):
        since.add(pane, pane)
    assert len(since.to_json()) == 64
    assert since.oldest(0) == 0
    assert Since(since.to_json()).oldest(990) == 990
    assert since.oldest(1000) is None


def in_key_order(run):
    """What each result is, of each key and window in the order in which they left."""
    found = [(each["key"], each["window_id"], each["n"], each["total"], each["final"]) for each in run.results]
    return sorted(found, key=lambda each: each[:2])


def promises_are_kept(run):
    """No result leaves below what its shard promised in an earlier batch."""
    promised: dict[str, Any] = {}
    marks = sorted(run.punctuation, key=lambda each: each["batch"])
    for each in sorted(run.results, key=lambda each: each["batch"]):
        source = each[SYSTEM]["source"]
        for mark in marks:
            if mark[SYSTEM]["source"] == source and mark["batch"] < each["batch"]:
                promised[source] = mark["window_time"]
        if source in promised:
            assert promised[source] is not None, "a feed that has ended gives nothing more"
            assert each["window_time"] >= promised[source]


def last_promises(run):
    """The last punctuation of each shard."""
    return {each[SYSTEM]["source"]: each["window_time"] for each in run.punctuation}


@given(
    any_windows(),
    any_batches(),
    LATE,
    st.sampled_from(["all", "lazy", "eager"]),
    METHODS,
    st.fixed_dictionaries({"flush": st.just("slow"), "flush_rows": st.integers(1, 5)}),
    st.sampled_from([1, 3]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2, 64]),
)
def test_slow_flush_gives_the_same_results_a_few_in_each_batch(
    windows, batches, late, emit, method, flush, shards, patient, end, parts
):
    if emit == "eager" and (not isinstance(windows, SlidingWindows) or method != "paned"):
        emit = "all"
    lateness = 30 if isinstance(windows, SlidingWindows) and emit != "eager" else 0
    plans = (plan_of(windows, emit, method, shards=shards, lateness_us=lateness, **given) for given in ({}, flush))
    at_once, slow = map(Run, plans)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_state, "_PARTS", parts)
        for batch in [*batches, (late[:3], None), (late[3:], END + 3)]:
            at_once.batches([batch])
            slow.batches([batch])
            if patient:
                slow.ticks()
        for run in (at_once, slow) if end else ():
            run.tables(punctuation_table(None, 99))
        slow.ticks()
    assert in_key_order(slow) == in_key_order(at_once)
    counts = Counter((each["batch"], each[SYSTEM]["source"]) for each in slow.results)
    assert max(counts.values(), default=0) <= flush["flush_rows"]
    promises_are_kept(slow)
    assert last_promises(slow) == last_promises(at_once)
    assert slow.waiting() == 0
    assert {kind for store in slow.stores for kind, _ in store.values} <= {"head", "run", "rows", "running", "modes"}


@given(
    any_windows().filter(lambda each: not isinstance(each, SlideByTupleWindows)),
    any_batches(),
    METHODS,
    st.integers(1, 3),
    st.sampled_from([1, 3]),
    st.booleans(),
)
def test_lazy_flush_gives_each_result_with_its_keys_next_rows(windows, batches, method, windows_later, shards, end):
    at_once = Run(plan_of(windows, "all", method, shards=shards)).batches(batches)
    lazy = Run(plan_of(windows, "all", method, shards=shards, flush="lazy", flush_windows=windows_later))
    lazy.batches(batches)
    expected: dict[tuple[int, int], int] = {}
    for each in at_once.results:
        key, wid = each["key"], each["window_id"]
        for number, (rows, _) in enumerate(batches, 1):
            if number < each["batch"]:
                continue
            bounds = [other for _, other in batches[:number] if other is not None]
            closed = int(windows.last_complete(max(bounds)))
            end_us = int(windows.extent(wid)[1])
            inside = [row for row in rows if row[0] == key and row[1] >= end_us]
            inside = [row for row in inside if int(windows.wids(row[1])[0]) <= int(windows.wids(row[1])[1])]
            if inside or wid + windows_later <= closed:
                expected[key, wid] = number
                break
    got = {(each["key"], each["window_id"]): each["batch"] for each in lazy.results}
    assert got == expected
    assert len(lazy.results) == len(got), "each once"
    assert any(kind == "waiting" for store in lazy.stores for kind, _ in store.values) == (lazy.waiting() > 0)
    if end:
        for run in (at_once, lazy):
            run.tables(punctuation_table(None, 99))
        assert in_key_order(lazy) == in_key_order(at_once)
        assert last_promises(lazy) == last_promises(at_once)
    promises_are_kept(lazy)


@settings(max_examples=60)
@given(batches=any_batches(), late=LATE, slide=st.integers(2, 6))
def test_lazy_corrections_stay_in_their_order(batches, late, slide):
    runs = [
        Run(plan_of(SlidingWindows(6, slide), lateness_us=30, **flush))
        for flush in ({}, {"flush": "lazy", "flush_windows": 2})
    ]
    for run in runs:
        run.batches([*batches, (late[:3], None), (late[3:], END + 3)])
        run.tables(punctuation_table(None, 99))
    assert in_key_order(runs[1]) == in_key_order(runs[0])
    promises_are_kept(runs[1])


def test_many_results_wait_in_pages_and_a_batch_reads_those_of_its_keys():
    run = Run(plan_of(SlidingWindows(10, 10), shards=1, flush="lazy"))
    run.batches([([(key, 1, key) for key in range(5000)], 10)])
    assert run.results == []
    report = run.reports[-1]
    assert (report.due, report.waiting, report.needs) == (0, 5000, 20)
    pages = {page: value for (kind, page), value in run.stores[0].values.items() if kind == "waiting"}
    assert len(pages) == 8
    run.batches([([(7, 11, 0), (8, 12, 0), (9, 9, 0)], None)])  # the last one is late: it is of no later window
    assert [(each["key"], each["total"]) for each in run.results] == [(7, 7), (8, 8)]
    after = {page: value for (kind, page), value in run.stores[0].values.items() if kind == "waiting"}
    assert len([page for page in pages if pages[page] != after[page]]) <= 2
    assert run.reports[-1].waiting == 4998
    run.batches([([], 19)])
    assert len(run.results) == 2
    run.batches([([], 20)])
    assert sorted(each["total"] for each in run.results) == list(range(5000))


def test_results_that_begin_to_wait_lie_beside_those_that_wait():
    run = Run(plan_of(SlidingWindows(10, 10), shards=1, flush="lazy", flush_windows=2))
    run.batches([([(key, 1, key) for key in range(3000)], 10), ([(key, 11, key) for key in range(3000, 6000)], None)])
    run.batches([([], 20)])
    assert (run.results, run.reports[-1].waiting) == ([], 6000)
    run.batches([([], 40)])
    assert sorted(each["total"] for each in run.results) == list(range(6000))


def test_a_slow_shard_far_behind_promises_no_more_than_has_left():
    run = Run(plan_of(SlidingWindows(10, 10), shards=1, flush="slow", flush_rows=1))
    for wid in range(200):
        run.batches([([(key, 10 * wid, 1) for key in range(2)], 10 * wid + 10)])
    assert (len(run.results), run.reports[-1].waiting) == (200, 200)
    promises_are_kept(run)
    run.ticks()
    assert [(each["window_id"], each["key"]) for each in run.results] == [(n // 2, n % 2) for n in range(400)]
    promises_are_kept(run)
    assert len(run.punctuation) > 60


def test_a_correction_that_waits_behind_later_windows_holds_the_promise_back(monkeypatch):
    monkeypatch.setattr(kept_state, "_PARTS", 1)
    run = Run(plan_of(SlidingWindows(10, 10), shards=1, lateness_us=30, flush="slow", flush_rows=1))
    run.batches([([(1, 10 * wid, 1) for wid in range(4)], 40), ([(2, 12, 1)], None), ([], 80)]).ticks()
    assert [(each["key"], each["window_id"]) for each in run.results] == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 1)]
    promises_are_kept(run)
    assert run.punctuation[-1]["window_id"] is None
    assert len(run.punctuation) > 1


def test_what_waits_is_told_and_leaves_when_the_job_flushes_at_once_again():
    windows = SlidingWindows(10, 10)
    lazy = Run(plan_of(windows, shards=1, flush="lazy")).batches([([(1, 1, 5), (2, 2, 6)], 10)])
    assert lazy.results == []
    again = Run(plan_of(windows, shards=1), lazy.stores)
    again.batches([([(1, 11, 0)], None)])
    assert [(each["key"], each["total"]) for each in again.results] == [(1, 5), (2, 6)]


def test_slow_flush_is_for_the_life_of_a_checkpoint():
    """Spark counts the sources of a query: ticks cannot come or go."""
    windows = SlidingWindows(10, 10)
    flush: dict[str, Any] = {"flush": "slow", "flush_rows": 1}
    slow = Run(plan_of(windows, shards=1, **flush)).batches([([(1, 1, 5), (2, 2, 6)], 10)])
    with pytest.raises(CheckpointError, match=r"another flush 'slow', now None"):
        Run(plan_of(windows, shards=1), slow.stores).batches([([], 20)])
    eager = Run(plan_of(windows, shards=1)).batches([([(1, 1, 5), (2, 2, 6)], 10)])
    with pytest.raises(CheckpointError, match=r"flush 'eager or lazy', now 'slow'"):
        Run(plan_of(windows, shards=1, **flush), eager.stores).batches([([], 20)])


def test_other_aggregates_are_refused_while_results_wait():
    flush: dict[str, Any] = {"flush": "slow", "flush_rows": 1, "shards": 1}
    run = Run(plan_of(SlidingWindows(10, 10), **flush)).batches([([(1, 1, 5), (2, 2, 6)], 10)])
    other = plan_of(SlidingWindows(10, 10), aggregates={"n": count(), "top": max_("v")}, **flush)
    with pytest.raises(CheckpointError, match="1 results wait"):
        Run(other, run.stores).batches([([], 20)])
    run.ticks()
    assert Run(other, run.stores).batches([([(1, 11, 7)], 20)]).results[0]["top"] == 7


def test_a_result_of_a_keys_own_punctuation_does_not_wait_lazily():
    run = Run(plan_of(SlidingWindows(10, 10), shards=1, flush="lazy"))
    run.tables(rows_table([(1, 1, 5), (2, 2, 6)], 1), punctuation_table(10, 1, key=1), punctuation_table(0, 1))
    assert [(each["key"], each["total"]) for each in run.results] == [(1, 5)]
