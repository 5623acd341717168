"""The windows that emit results at a step: all of them, or the most recent one of each key (tr620 §6.2)."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from ...conf.errors import OptionError
from ...conf.options import count_argument, flag_argument, word_argument
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


ResultsFlush = Literal["eager", "slow", "lazy"]
"""The release of closed windows' results: all at once, some in each batch, or each with its key's next rows."""


@dataclasses.dataclass(frozen=True)
class Emission:
    """The results that windows or a join emit, and their pace: the argument `emit` of these steps.

    If `results` is all that you set, give the word alone: ``emit="all"``.

    Parameters
    ----------
    results
        ``all``: every result. ``latest``: of each key only the latest result of a batch. ``eager``, for windows: each
        key's latest started window, and no other until it closes. The default is the step's.
    early
        Also emit results before they are final. The final result replaces or retracts them. Not with ``eager``.
    flush
        For windows: the pace of the results of a closed window. ``eager``: all at once. ``slow``: at most `flush_rows`
        in a batch. ``lazy``: with the key's first row of a later window.
    flush_rows
        For ``slow``: the most results in a batch of all shards.
    flush_windows
        For ``lazy``: the number of later windows with whose end a result leaves at the latest.

    Raises
    ------
    OptionError
        An argument makes no sense, or two do not go together.

    Examples
    --------
    >>> every = us.Emission("all", early=True)
    >>> means = stream.window("15 minutes", emit=every).agg(speed=us.avg("speed"))
    """

    results: Output | None = None
    _: dataclasses.KW_ONLY
    early: bool = False
    flush: ResultsFlush = "eager"
    flush_rows: int | None = None
    flush_windows: int = 1

    def __post_init__(self) -> None:
        if self.results is not None:
            word_argument("results", self.results, Output)
        word_argument("flush", self.flush, ResultsFlush)
        count_argument("flush_windows", self.flush_windows)
        if flag_argument("early", self.early) and self.results == "eager":
            raise OptionError(
                "us.Emission('eager', early=True)",
                expected="early=True with 'latest' or 'all' only",
                hint="leave early out, or take other results",
            )
        if self.flush != "lazy" and self.flush_windows != 1:
            raise OptionError(
                f"flush_windows={self.flush_windows} with flush={self.flush!r}",
                expected="flush_windows with flush='lazy' only",
            )


def emission_for(
    step: str, emit: object, among: tuple[Output, ...], *, flush: bool = False, also: str = ""
) -> Emission:
    """Return a step's emission for its argument `emit`; the first of its words is its default.

    Refuse words that it does not have and, without `flush`, a pace of results that it does not set. `also` has the
    other values of the argument, for the error.
    """
    found = emit
    if isinstance(emit, str) and emit in among:
        found = Emission(emit)
    if not isinstance(found, Emission) or (found.results or among[0]) not in among:
        raise OptionError(
            f"{step}(…, emit={emit!r})",
            expected=", ".join(map(repr, among)) + f"{also}, or us.Emission(…)",
            hint="correct emit",
        )
    if not flush and found.flush != "eager":
        raise OptionError(
            f"{step}(…, emit=us.Emission(…, flush={found.flush!r}))",
            expected="flush='eager': the results of this step do not close all at once",
            hint="leave flush out",
        )
    return dataclasses.replace(found, results=found.results or among[0])


def emit_for(emission: Emission) -> Emit:
    """Return the word of plans for an emission."""
    return next(emit for emit, asked in EMISSIONS.items() if asked == (emission.results, emission.early))


def emission_text(emit: Emit) -> str:
    """Return an emission in words, such as ``all, early``."""
    results, early = EMISSIONS[emit]
    return results + (", early" if early else "")


def written(emit: Emit) -> str:
    """Return an emission as a user writes it, such as ``emit=us.Emission('all', early=True)``."""
    results, early = EMISSIONS[emit]
    return f"emit=us.Emission({results!r}, early=True)" if early else f"emit={results!r}"


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
    """Return each key's latest window up to `through`, a complete one, by its last entry's pane: rule MRU_L."""
    return last_pane if paned.by_row else latest_fully_arrived(paned.over, last_pane, through)


def partial_windows(paned: PaneWindows, last_pane: Int64s) -> Int64s:
    """Return the window with the most rows so far: the first to close of those with the newest entry."""
    return paned.over.wids(last_pane)[0]
