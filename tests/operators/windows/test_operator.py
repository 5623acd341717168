"""Eager emission through `pack` and shards."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows

from .shards.drawn import END, SLIDING, any_batches, any_windows, everything, plan_of, promised, told, totals
from .shards.windows_of import Run, agree, agree_and_increase, in_windows, punctuation_table, rows_table

FAR = 1000


@given(SLIDING, any_batches(), st.sampled_from(["paned", "wid"]), st.sampled_from([1, 2]))
def test_what_is_given_is_whole_and_increases_up_to_the_last_started(windows, batches, method, tasks):
    run = Run(plan_of(windows, "eager", method)).batches([*batches, ([], FAR)], tasks)
    agree_and_increase(run, in_windows(windows, everything(batches), FAR))


def test_a_committed_key_takes_no_other_window_until_its_own_closes():
    """The report's example: committed to the window that starts at 1, the one that starts at 2 is passed over."""
    windows = SlidingWindows(3, 1)
    run = Run(plan_of(windows, "eager", shards=1))
    for second in range(1, 9):
        run.batches([([(1, second, 1)], second + 1)])
    starts = [each["window_id"] - 2 for each in run.results]  # window w is [w - 2, w + 1)
    assert starts == [1, 3, 5]
    assert [each["n"] for each in run.results] == [3, 3, 3]


def test_what_is_needed_is_the_end_of_the_window_that_a_key_is_committed_to():
    run = Run(plan_of(SlidingWindows(10, 5), "eager", shards=1))
    run.batches([([(1, 7, 1)], 0)])
    assert (run.reports[-1].held, run.reports[-1].needs) == (1, 15), "and not 10, where the row's first window ends"


def test_only_what_a_commitment_may_need_is_kept():
    windows = SlidingWindows(10, 10)
    store = [DictStore()]
    run = Run(plan_of(windows, "eager", shards=1), store)
    run.batches([([(1, 3, 1)], 0), ([(1, 35, 1)], 0), ([(1, 12, 1), (1, 13, 1), (1, 4, 1), (1, 36, 1)], 0)])
    assert [report.superseded for report in run.reports] == [0, 0, 2]
    assert run.reports[-1].entries == 4
    run.batches([([], 50)])
    assert [(each["window_id"], each["n"]) for each in run.results] == [(0, 2), (3, 2)]


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
