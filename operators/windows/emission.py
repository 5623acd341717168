"""The windows that emit results at a step: all of them, or the most recent one of each key (tr620 §6.2)."""

from __future__ import annotations

from typing import get_args

import numpy as np
import numpy.typing as npt

from ...conf.errors import OptionError
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ...plan.specification import EMISSIONS, Emit, Output
from .panes import Paned
from .recent import latest_fully_arrived
from .rows import expand

__all__ = [
    "Emit",
    "Output",
    "emit_for",
    "every_window",
    "most_recent",
    "partial_windows",
    "written",
]

Mask = npt.NDArray[np.bool_]


def emit_for(output: str, *, early: object) -> Emit:
    """Return the emission for a user's arguments; refuse unknown ones, and early results of eager output."""
    if output not in get_args(Output):
        raise OptionError(f"output={output!r}", expected="one of " + ", ".join(get_args(Output)))
    if not isinstance(early, bool):
        raise OptionError(f"early={early!r}", expected="True or False")
    if output == "eager" and early:
        raise OptionError(
            "output='eager' with early=True",
            expected="early=True with output='latest' or output='all' only",
            hint="leave early out, or take another output",
        )
    return next(emit for emit, asked in EMISSIONS.items() if asked == (output, early))


def written(emit: Emit) -> str:
    """Return an emission as a user writes it, such as ``output='all', early=True``."""
    output, early = EMISSIONS[emit]
    return f"output={output!r}" + (", early=True" if early else "")


def every_window(
    paned: Paned, codes: Int64s, panes: Int64s, after: int | Int64s, through: int | Int64s
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


def most_recent(paned: Paned, last_pane: Int64s, through: int) -> Int64s:
    """Return each key's latest window up to `through` that has an entry, from the pane of its last entry there.

    This is rule MRU_L of the report, if `through` is the greatest window that has fully arrived.
    """
    return last_pane if paned.by_row else latest_fully_arrived(paned.over, last_pane, through)


def partial_windows(paned: Paned, last_pane: Int64s) -> Int64s:
    """Return the window with the most rows so far: the first to close of those with the newest entry."""
    return paned.over.wids(last_pane)[0]
