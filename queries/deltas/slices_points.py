"""The change points of windows of one RANGE and SLIDE over slices, and which slices each window consists of."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...core.rows.exact_integers import LOWEST, Int64s
from ...operators.aggregates.parts import State
from .slices_table import SliceTable
from .windows import next_multiple
from .zsets import OLD, Span

__all__ = ["WindowPoints", "last_multiple", "points_of", "window_at"]


def last_multiple(until: int, slide_us: int) -> int:
    """Return the last multiple of the slide below a time; LOWEST before the first step."""
    return LOWEST if until == LOWEST else (until - 1) // slide_us * slide_us


@dataclass(frozen=True)
class WindowPoints:
    """Change points by group and time; the first of each group is the time before the step.

    Parameters
    ----------
    groups, times : int64 arrays
    low, high : int64 arrays
        The run of slices that the window consists of.

    Attributes
    ----------
    states : dict of str to State
        The states of the windows that were asked for, by part of an aggregate: several queries need the same.
    """

    groups: Int64s
    times: Int64s
    low: Int64s
    high: Int64s
    states: dict[str, State] = field(default_factory=dict, compare=False)


def points_of(
    table: SliceTable,
    width_us: int,
    range_us: int,
    slide_us: int,
    span: Span,
    above: int,
    *,
    begins: bool,
    always: bool,
) -> WindowPoints | None:
    """Return the change points within a span; if its net change is enough, the last one alone.

    Parameters
    ----------
    table : SliceTable
    width_us, range_us, slide_us : int
    span : Span
    above : int
        The number of the last slice to leave out.
    begins : bool
        Whether the windows are new: what is in them already comes at the start of the span.
    always : bool
        Whether the one group that there is begins without slices, too.

    Returns
    -------
    WindowPoints or None
        None if nothing changes.
    """
    old, new = last_multiple(span.before, slide_us), last_multiple(span.until, slide_us)
    count = range_us // width_us
    before = old // width_us if old > LOWEST else LOWEST
    came = table.between(before, new // width_us)
    went = table.between(before - count if old > LOWEST else LOWEST, new // width_us - count)
    there = table.between(before - count, before) if begins and old > LOWEST else came[:0]
    first = np.zeros(int(always and begins), dtype=np.int64)
    size = len(came) + len(went) + len(there) + len(first)
    if size == 0:
        return None
    groups = np.concatenate([table.of[came], table.of[went], table.of[there], first])
    times = np.full(size, span.start)
    times[: len(came)] = next_multiple(table.slices[came] * width_us, slide_us)
    times[len(came) : len(came) + len(went)] = next_multiple(table.slices[went] * width_us + range_us, slide_us)
    if span.net:
        times[:] = span.until - 1
    order = np.lexsort((times, groups))
    groups, times = groups[order], times[order]
    distinct = (np.diff(groups, prepend=-1) != 0) | (np.diff(times, prepend=0) != 0)
    groups, times = groups[distinct], times[distinct]
    # Each group has one point more, before its others.
    firsts = np.flatnonzero(np.diff(groups, prepend=-1) != 0)
    groups, times = np.insert(groups, firsts, groups[firsts]), np.insert(times, firsts, OLD)
    through = times // slide_us * slide_us // width_us
    through[times == OLD] = LOWEST if begins else before
    return WindowPoints(groups, times, *table.runs(groups, through, count, above))


def window_at(table: SliceTable, width_us: int, range_us: int, end: int, above: int) -> WindowPoints:
    """Return the groups of the window that ends at a time, with one point each."""
    count, last = range_us // width_us, end // width_us
    groups: npt.NDArray[np.int64] = np.unique(table.of[table.between(max(last - count, above), last)])
    through = np.full(len(groups), last)
    return WindowPoints(groups, np.full(len(groups), end), *table.runs(groups, through, count, above))
