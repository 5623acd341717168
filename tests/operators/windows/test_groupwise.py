"""Group-wise punctuation: windows of one key close ahead of all others."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.operators.aggregates.functions import count, max_, sum_
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows, Windows

from .shards.drawn import END, any_batches, any_windows, everything, plan_of
from .shards.windows_of import Batch, Run, in_windows, latest_of, punctuation_table, rows_table


@settings(max_examples=200, deadline=None)
@given(
    windows=any_windows(),
    batches=any_batches(),
    method=st.sampled_from(["paned", "wid", "buffering"]),
    emit=st.sampled_from(["all", "lazy"]),
    differential=st.booleans(),
    data=st.data(),
)
def test_true_promises_for_keys_change_no_result_but_when_it_comes(
    windows: Windows, batches: list[Batch], method: str, emit: str, differential: bool, data: st.DataObject
) -> None:
    """Whatever is promised for keys, each window is given once, whole; and nothing is late."""
    if not isinstance(windows, SlidingWindows) and method == "wid":
        method = "paned"
    aggregates = {"n": count(), "total": sum_("v"), **({} if differential else {"top": max_("v")})}
    run = Run(plan_of(windows, emit, method, aggregates=aggregates))
    for number, (rows, bound) in enumerate(batches):
        rest = [row for other, _ in batches[number + 1 :] for row in other]
        tables = [rows_table(rows, number + 1)]
        if bound is not None:
            tables.append(punctuation_table(bound, number + 1))
        for key in data.draw(st.lists(st.integers(0, 4), max_size=3)):
            known = min((row[1] for row in rest if row[0] == key), default=END)
            tables.append(punctuation_table(known, number + 1, key=key))
        run.tables(*tables)
    expected = {pair: (len(v), sum(v)) for pair, v in in_windows(windows, everything(batches), END).items()}
    got = {(each["key"], each["window_id"]): (each["n"], each["total"]) for each in run.results}
    assert len(got) == len(run.results), "a window closes once"
    assert sum(report.late for report in run.reports) == 0
    if emit == "all":
        assert got == expected
    else:
        assert got.items() <= expected.items()
        assert latest_of(got) == latest_of(expected)


@settings(max_examples=200, deadline=None)
@given(
    windows=any_windows().filter(lambda each: isinstance(each, SlidingWindows)),
    batches=any_batches(),
    method=st.sampled_from(["paned", "wid"]),
    data=st.data(),
)
def test_eager_keys_commit_and_close_as_if_their_promises_were_of_all(
    windows: Windows, batches: list[Batch], method: str, data: st.DataObject
) -> None:
    """Each key by itself, with what is promised of it as the punctuation of the feed, gives the same in each batch."""
    run = Run(plan_of(windows, "eager", method))
    alone = {key: Run(plan_of(windows, "eager", method)) for key in range(5)}
    bounds = dict.fromkeys(range(5), -(1 << 40))
    for number, (rows, bound) in enumerate(batches):
        rest = [row for other, _ in batches[number + 1 :] for row in other]
        tables = [rows_table(rows, number + 1)]
        if bound is not None:
            tables.append(punctuation_table(bound, number + 1))
            bounds = {key: max(own, bound) for key, own in bounds.items()}
        for key in data.draw(st.lists(st.integers(0, 4), max_size=3)):
            known = min((row[1] for row in rest if row[0] == key), default=END)
            tables.append(punctuation_table(known, number + 1, key=key))
            bounds[key] = max(bounds[key], known)
        run.tables(*tables)
        for key, single in alone.items():
            mine = rows_table([row for row in rows if row[0] == key], number + 1)
            single.tables(mine, punctuation_table(bounds[key], number + 1))
    given = [(each["batch"], each["key"], each["window_id"], each["n"], each["total"]) for each in run.results]
    expected = [
        (each["batch"], each["key"], each["window_id"], each["n"], each["total"])
        for single in alone.values()
        for each in single.results
    ]
    assert sorted(given) == sorted(expected)
    assert sum(report.late for report in run.reports) == 0


def test_an_early_result_does_not_follow_the_final_one_of_its_key() -> None:
    """A row may come with the promise that closes its first window."""
    run = Run(plan_of(SlidingWindows(10, 5), "all+early", shards=1))
    run.tables(rows_table([(1, 7, 1), (2, 7, 1)], 1), punctuation_table(0, 1), punctuation_table(10, 1, key=1))
    assert [(each["key"], each["window_id"], each["final"]) for each in run.results] == [(1, 1, True), (2, 1, False)]


def test_a_promise_for_one_key_closes_its_windows_only() -> None:
    """And a row of it that comes later is late, though the feed as a whole has not gone so far."""
    run = Run(plan_of(SlidingWindows(10, 10), shards=1))
    run.tables(rows_table([(1, 3, 1), (2, 4, 2)], 1), punctuation_table(0, 1), punctuation_table(10, 1, key=1))
    assert [(each["key"], each["window_id"], each["total"]) for each in run.results] == [(1, 0, 1)]
    run.tables(rows_table([(1, 5, 100), (2, 5, 3), (1, 12, 7)], 2))
    assert pa.concat_tables(run.late).column("v").to_pylist() == [100]
    run.tables(punctuation_table(20, 3))
    assert {(each["key"], each["window_id"], each["total"]) for each in run.results[1:]} == {(2, 0, 5), (1, 1, 7)}


def test_a_promise_for_one_key_of_a_feed_that_has_promised_nothing_else_closes_no_later_window() -> None:
    run = Run(plan_of(SlidingWindows(10, 10), "all"))
    run.tables(rows_table([(1, 3, 1), (1, 13, 1), (2, 3, 1)], 1), punctuation_table(12, 1, key=1))
    assert [(each["key"], each["window_id"]) for each in run.results] == [(1, 0)]


def test_a_promise_for_one_key_closes_its_landmark_windows() -> None:
    """They hold what the windows before them held, of which only one entry for each key is kept."""
    run = Run(plan_of(LandmarkWindows(10), shards=1))
    run.tables(rows_table([(1, 3, 1), (2, 4, 2), (1, 14, 10)], 1), punctuation_table(10, 1))
    assert [(each["key"], each["window_id"], each["total"]) for each in run.results] == [(1, 0, 1), (2, 0, 2)]
    run.tables(rows_table([(1, 25, 100)], 2), punctuation_table(30, 2, key=1))
    assert [(each["key"], each["window_id"], each["total"]) for each in run.results[2:]] == [(1, 1, 11), (1, 2, 111)]
    run.tables(punctuation_table(None, 3, key=2))
    assert len(run.results) == 4, "a key that has ended still is in each later window, as that closes"
    run.tables(punctuation_table(40, 4))
    assert {(each["key"], each["window_id"], each["total"]) for each in run.results[4:]} == {
        (2, 1, 2), (2, 2, 2), (2, 3, 2), (1, 3, 111),
    }  # fmt: skip


def test_a_promise_for_one_key_needs_all_feeds() -> None:
    """One feed's promise for a key is worth nothing while another feed may still bring rows of it."""
    run = Run(plan_of(SlidingWindows(10, 10), shards=1))
    run.tables(rows_table([(1, 3, 1)], 1, "a"), punctuation_table(50, 1, "a", key=1), punctuation_table(0, 1, "b"))
    assert not run.results
    run.tables(punctuation_table(10, 2, "b"))
    assert [(each["key"], each["window_id"]) for each in run.results] == [(1, 0)]
