"""Group-wise punctuation: windows of one key close ahead of all others."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows

from .shards.drawn import END, SLIDING, any_batches, any_windows, everything, plan_of, promised, told, totals
from .shards.windows_of import Run, agree, in_windows, punctuation_table, rows_table


@given(
    any_windows(),
    any_batches(),
    st.sampled_from(["paned", "wid", "buffering"]),
    st.sampled_from(["all", "lazy"]),
    st.booleans(),
    st.data(),
)
def test_true_promises_for_keys_change_no_result(windows, batches, method, emit, differential, data):
    run = Run(plan_of(windows, emit, method, aggregates=totals(differential)))
    for number, (tables, claims) in enumerate(told(batches, data), 1):
        run.tables(*tables, *promised(claims, number))
    expected = {pair: (len(v), sum(v)) for pair, v in in_windows(windows, everything(batches), END).items()}
    got = {(each["key"], each["window_id"]): (each["n"], each["total"]) for each in run.results}
    assert len(got) == len(run.results), "a window closes once"
    assert sum(report.late for report in run.reports) == 0
    agree(got, expected, emit)


@given(SLIDING, any_batches(), st.sampled_from(["paned", "wid"]), st.data())
def test_eager_keys_commit_and_close_as_if_their_promises_were_of_all(windows, batches, method, data):
    """Each key by itself, with what is promised of it as the punctuation of the feed, gives the same in each batch."""
    run = Run(plan_of(windows, "eager", method))
    alone = {key: Run(plan_of(windows, "eager", method)) for key in range(5)}
    bounds = dict.fromkeys(range(5), -(1 << 40))
    for number, ((rows, bound), (tables, claims)) in enumerate(zip(batches, told(batches, data), strict=True), 1):
        run.tables(*tables, *promised(claims, number))
        for key, known in [*((key, bound) for key in range(5) if bound is not None), *claims]:
            bounds[key] = max(bounds[key], known)
        for key, single in alone.items():
            mine = rows_table([row for row in rows if row[0] == key], number)
            single.tables(mine, punctuation_table(bounds[key], number))

    def given_by(*runs):
        return sorted(
            (each["batch"], each["key"], each["window_id"], each["n"], each["total"])
            for one in runs
            for each in one.results
        )

    assert given_by(run) == given_by(*alone.values())
    assert sum(report.late for report in run.reports) == 0


def test_an_early_result_does_not_follow_the_final_one_of_its_key():
    run = Run(plan_of(SlidingWindows(10, 5), "all+early", shards=1))
    run.tables(rows_table([(1, 7, 1), (2, 7, 1)], 1), punctuation_table(0, 1), punctuation_table(10, 1, key=1))
    assert [(each["key"], each["window_id"], each["final"]) for each in run.results] == [(1, 1, True), (2, 1, False)]


def test_a_promise_for_one_key_closes_its_windows_only():
    run = Run(plan_of(SlidingWindows(10, 10), shards=1))
    run.tables(rows_table([(1, 3, 1), (2, 4, 2)], 1), punctuation_table(0, 1), punctuation_table(10, 1, key=1))
    assert [(each["key"], each["window_id"], each["total"]) for each in run.results] == [(1, 0, 1)]
    run.tables(rows_table([(1, 5, 100), (2, 5, 3), (1, 12, 7)], 2))
    assert pa.concat_tables(run.late).column("v").to_pylist() == [100]
    run.tables(punctuation_table(20, 3))
    assert {(each["key"], each["window_id"], each["total"]) for each in run.results[1:]} == {(2, 0, 5), (1, 1, 7)}


def test_a_promise_for_one_key_of_a_feed_that_has_promised_nothing_else_closes_no_later_window():
    run = Run(plan_of(SlidingWindows(10, 10), "all"))
    run.tables(rows_table([(1, 3, 1), (1, 13, 1), (2, 3, 1)], 1), punctuation_table(12, 1, key=1))
    assert [(each["key"], each["window_id"]) for each in run.results] == [(1, 0)]


def test_a_promise_for_one_key_closes_its_landmark_windows():
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


def test_a_promise_for_one_key_needs_all_feeds():
    run = Run(plan_of(SlidingWindows(10, 10), shards=1))
    run.tables(rows_table([(1, 3, 1)], 1, "a"), punctuation_table(50, 1, "a", key=1), punctuation_table(0, 1, "b"))
    assert not run.results
    run.tables(punctuation_table(10, 2, "b"))
    assert [(each["key"], each["window_id"]) for each in run.results] == [(1, 0)]
