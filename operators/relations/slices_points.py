"""The change points of windows of one RANGE and SLIDE over slices, and the slices of each window."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...core.rows.exact_integers import LOWEST, Int64s
from ..aggregates.parts import State
from .slices_table import SliceTable
from .windows import next_multiple
from .zsets import OLD, Span


def last_multiple(until: int, slide_us: int) -> int:
    """Return the last multiple of the slide below a time; LOWEST before the first step."""
    return LOWEST if until == LOWEST else (until - 1) // slide_us * slide_us


@dataclass(frozen=True)
class WindowPoints:
    """Change points by group and time; the first of each group is the time before the step."""

    groups: Int64s
    times: Int64s
    low: Int64s  # Begins the run of slices that is the window.
    high: Int64s  # Ends it, exclusive.
    # Computed window states by part of an aggregate, shared by queries.
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
    """Return the change points within a span, or only the last one for a net change; None if nothing changes.

    Slices up to number ``above`` are left out. ``begins``: the windows are new, so their contents come at the start.
    ``always``: the one group of all rows begins even without slices.
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
