"""The windows that emit results at a step: all of them, or the most recent one of each key (tr620 §6.2)."""

from __future__ import annotations

import numpy as np

from ...conf.errors import OptionError
from ...conf.options import flag_argument, word_argument
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Whole, as_int64
from ...plan.nodes import EMISSIONS, Emit, Output
from .kinds import Windows
from .panes import PaneWindows

MOST_PAIRS = 1 << 28
"""The most (row, window) pairs that are made at once: 4 GB."""


def expand(first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
    """Return a (row, window) pair for each window of each row, in the order of rows, then of windows."""
    # The distance of two int64 always fits 64 bits without a sign.
    more = last.view(np.uint64) - first.view(np.uint64)
    some = last >= first
    pairs = more[some].sum(dtype=np.float64) + np.count_nonzero(some)
    if pairs > MOST_PAIRS:
        raise OptionError(
            f"{len(first)} rows are in {pairs:.3g} windows",
            expected=f"at most {MOST_PAIRS} pairs of a row and a window at once",
            hint="use panes, a longer SLIDE, or smaller batches",
        )
    number = np.where(some, more.view(np.int64) + 1, 0)
    row = np.repeat(np.arange(len(first)), number)
    before = np.cumsum(number) - number
    return row, np.arange(len(row)) - (before - first)[row]


def ranks(codes: Int64s, started: Int64s) -> tuple[Int64s, Int64s]:
    """Return each row's rank in its partition, from 0 over the whole stream, and the rows that each partition has now.

    Rows are in the order that counts; `started` is the rows that each partition had before. The second result is
    `started` for the next rows, and each partition's bound: every row of a lower rank has arrived.
    """
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=len(started)).astype(np.int64)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes)) + np.repeat(started - (np.cumsum(sizes) - sizes), sizes)
    return rank, started + sizes


NONE = LOWEST
"""The id for no window."""


def latest_started(windows: Windows, x: Whole) -> Int64s:
    """Return the last window to begin among those of each row: the report's MRU rule for eager semantics.

    `x` are windowing values, or panes with the windows over these. A row between two windows has :data:`NONE`. Landmark
    windows are refused, since all begin with the stream.
    """
    first, last = windows.wids(x)
    if (last == HIGHEST).any():
        raise OptionError(
            "the latest window to start among landmark windows, which all begin with the stream",
            expected="sliding or tumbling windows",
        )
    return np.where(first <= last, last, NONE)


def latest_fully_arrived(windows: Windows, x: Whole, through: Whole) -> Int64s:
    """Return the latest window of each row up to `through`: the report's MRU rule for lazy semantics.

    `through` is the greatest window that has fully arrived. `x` are windowing values, or panes with the windows over
    these. A row without such a window has :data:`NONE`.
    """
    first, last = windows.wids(x)
    newest = np.minimum(last, as_int64(through))
    return np.where(first <= newest, newest, NONE)


def latest_per_key(values: Int64s, codes: Int64s, keys: int) -> Int64s:
    """Return the greatest of each key's values, which are windows or panes; :data:`NONE` for a key without a row.

    A key's most recent window is the greatest of its rows', so neither the order of arrival nor the batches matter.
    """
    latest = np.full(keys, NONE, dtype=np.int64)
    np.maximum.at(latest, codes, values)
    return latest


def emit_for(output: str, *, early: object) -> Emit:
    """Return the emission for a user's arguments; refuse unknown ones, and early results of eager output."""
    word_argument("output", output, Output)
    if flag_argument("early", early) and output == "eager":
        raise OptionError(
            "output='eager' with early=True",
            expected="early=True with output='latest' or output='all' only",
            hint="leave early out, or take another output",
        )
    return next(emit for emit, asked in EMISSIONS.items() if asked == (output, early))


def output_of(emit: Emit) -> str:
    """Return an emission in words, such as ``all, early=True``."""
    output, early = EMISSIONS[emit]
    return output + (", early=True" if early else "")


def written(emit: Emit) -> str:
    """Return an emission as a user writes it, such as ``output='all', early=True``."""
    output, early = EMISSIONS[emit]
    return f"output={output!r}" + (", early=True" if early else "")


def every_window(
    paned: PaneWindows, codes: Int64s, panes: Int64s, after: int | Int64s, through: int | Int64s
) -> tuple[Int64s, Int64s]:
    """Return key and id of each window ``after < w <= through`` with an entry, by key, then by window."""
    order = np.lexsort((panes, codes))
    codes, panes = codes[order], panes[order]
    after, through = (each if isinstance(each, int) else each[order] for each in (after, through))
    if paned.by_row:
        new = np.ones(len(codes), dtype=np.bool_)
        new[1:] = (codes[1:] != codes[:-1]) | (panes[1:] != panes[:-1])
        new &= (panes > after) & (panes <= through)
        return codes[new], panes[new]
    first, last = paned.over.wids(panes)
    # What the entry before has opened is not opened again: windows of later panes begin and end later.
    opened = np.full(len(codes), LOWEST, dtype=np.int64)
    same = codes[1:] == codes[:-1]
    opened[1:][same] = last[:-1][same]
    begin = np.maximum(
        np.maximum(first, np.minimum(after, HIGHEST - 1) + 1), np.where(opened < HIGHEST, opened + 1, HIGHEST)
    )
    end = np.minimum(last, through)
    end = np.where(opened == HIGHEST, begin - 1, end)
    row, wid = expand(begin, end)
    return codes[row], wid


def most_recent(paned: PaneWindows, last_pane: Int64s, through: int) -> Int64s:
    """Return each key's latest window up to `through` that has an entry, from the pane of its last entry there.

    This is rule MRU_L of the report, if `through` is the greatest window that has fully arrived.
    """
    return last_pane if paned.by_row else latest_fully_arrived(paned.over, last_pane, through)


def partial_windows(paned: PaneWindows, last_pane: Int64s) -> Int64s:
    """Return the window with the most rows so far: the first to close of those with the newest entry."""
    return paned.over.wids(last_pane)[0]
