"""Eager emission through `pack` and shards."""

from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlidingWindows

from .shards.drawn import SLIDING, any_batches, everything, plan_of
from .shards.windows_of import Run, agree_and_increase, in_windows

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
