"""Eager emission through `pack` and shards."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.operators.runtime.store import DictStore
from upstream.operators.windows.kinds import SlidingWindows, Windows

from .shards.drawn import any_batches, any_windows, everything, plan_of
from .shards.windows_of import Batch, Run, in_windows, latest_of

FAR = 1000


@settings(max_examples=200, deadline=None)
@given(
    windows=any_windows().filter(lambda each: isinstance(each, SlidingWindows)),
    batches=any_batches(),
    method=st.sampled_from(["paned", "wid"]),
    tasks=st.sampled_from([1, 2]),
)
def test_what_is_given_is_whole_and_increases_up_to_the_last_started(
    windows: Windows, batches: list[Batch], method: str, tasks: int
) -> None:
    """Window integrity: rows are passed over by whole windows, never out of the middle of one."""
    run = Run(plan_of(windows, "eager", method)).batches([*batches, ([], FAR)], tasks)
    expected = in_windows(windows, everything(batches), FAR)
    seen: dict[int, int] = {}
    for each in run.results:
        values = expected[each["key"], each["window_id"]]
        assert (each["n"], each["total"]) == (len(values), sum(values))
        assert each["window_id"] > seen.get(each["key"], -(10**9))
        seen[each["key"]] = each["window_id"]
    assert seen == latest_of(expected)


def test_a_committed_key_takes_no_other_window_until_its_own_closes() -> None:
    """The report's example: committed to the window that starts at 1, the one that starts at 2 is passed over."""
    windows = SlidingWindows(3, 1)
    run = Run(plan_of(windows, "eager", shards=1))
    for second in range(1, 9):
        run.batches([([(1, second, 1)], second + 1)])
    starts = [each["window_id"] - 2 for each in run.results]  # window w is [w - 2, w + 1)
    assert starts == [1, 3, 5]
    assert [each["n"] for each in run.results] == [3, 3, 3]


def test_what_is_needed_is_the_end_of_the_window_that_a_key_is_committed_to() -> None:
    run = Run(plan_of(SlidingWindows(10, 5), "eager", shards=1))
    run.batches([([(1, 7, 1)], 0)])
    assert (run.reports[-1].held, run.reports[-1].needs) == (1, 15), "and not 10, where the row's first window ends"


def test_only_what_a_commitment_may_need_is_kept() -> None:
    """A row between the committed window and the one that started last is superseded, counted, and takes no room."""
    windows = SlidingWindows(10, 10)
    store = [DictStore()]
    run = Run(plan_of(windows, "eager", shards=1), store)
    run.batches([([(1, 3, 1)], 0), ([(1, 35, 1)], 0), ([(1, 12, 1), (1, 13, 1), (1, 4, 1), (1, 36, 1)], 0)])
    assert [report.superseded for report in run.reports] == [0, 0, 2]
    assert run.reports[-1].entries == 4
    run.batches([([], 50)])
    assert [(each["window_id"], each["n"]) for each in run.results] == [(0, 2), (3, 2)]
