"""The detection of rows that repeat others, of the same batch or of earlier ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.newest import key_codes
from ..runtime.entries import PANE
from .plan import Repeats

__all__ = ["INPUT", "Admitted", "admitted", "no_memory"]

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

INPUT = "__upstream_input"
"""The column of the number of a row's input, among remembered rows."""


@dataclasses.dataclass(frozen=True)
class Admitted:
    """Masks of the rows that :func:`admitted` lets pass."""

    keep: Mask
    remember: Mask  # of these, the rows to remember, so that later repeats are found


def no_memory(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return an empty memory of these columns, with :data:`PANE` for the time, and :data:`INPUT`."""
    fields = [rows.schema.field(name) for name in by]
    return pa.schema([*fields, pa.field(PANE, pa.int64()), pa.field(INPUT, pa.int64())]).empty_table()


def admitted(new: pa.Table, memory: pa.Table, by: Sequence[str], repeats: Repeats, prefer: int | None) -> Admitted:
    """Decide which rows pass, given the rows that passed before.

    Rows with equal times and equal values in `by` are repeats, of which the first to arrive passes. With repeats
    ``inputs``, later rows of the same input also pass: an input may repeat itself, and the later row counts. If an
    input is preferred, its rows pass even after equal ones of another input, and from then on only its rows do.

    `new` and `memory` have the columns `by`, :data:`PANE` and :data:`INPUT`; `new` is in the order in which rows count.
    `prefer` is the number of the preferred input.
    """
    n, known = new.num_rows, memory.num_rows
    if n == 0 or repeats == "keep":
        return Admitted(np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_))
    both = pa.concat_tables([memory.select(new.column_names), new])
    codes, size = key_codes([*(both.column(name) for name in by), both.column(PANE)])
    inputs = both.column(INPUT).to_numpy()
    old, mine = codes[:known], codes[known:]
    first = np.full(size, -1)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    if repeats == "all":
        keep = first[mine] == np.arange(known, known + n)
        return Admitted(keep, keep)
    owner = np.full(size, -1)
    owner[codes] = inputs[first[codes]]
    if prefer is not None:
        owner[codes[inputs == prefer]] = prefer
    keep = inputs[known:] == owner[mine]
    # Remember one row for each owner: further ones add nothing.
    known_before = np.zeros(size, dtype=np.bool_)
    known_before[old[inputs[:known] == owner[old]]] = True
    fresh = np.flatnonzero(keep & ~known_before[mine])
    remember = np.zeros(n, dtype=np.bool_)
    remember[fresh[np.unique(mine[fresh], return_index=True)[1]]] = True
    return Admitted(keep, remember)
