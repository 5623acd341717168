"""What shards say they hold, against what rows and windows say is still to come."""

from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows
from upstream.operators.windows.shards.kept_state import Since

from .drawn import ANY_METHOD, SLIDING, any_batches, any_windows, plan_of
from .windows_of import Run


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
