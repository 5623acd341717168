"""The method ``adaptive`` (AdaptWID, thesis §6.3): a shard's keys with rows, and those with partial aggregates."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from ....core.pushdown.ipc_frames import from_frame, to_frame
from ....core.rows.exact_integers import Int64s
from ....core.rows.system_column import system_field
from ...runtime.entries import PANE, Entries
from ...runtime.store import Store
from ..adaptive import GroupModes, Properties, much_larger
from .plan import WindowPlan

__all__ = ["KeyModes", "with_automatic_method"]

_KIND, _HEAD = "modes", "adaptive"
_WORD = 8  # bytes of the pane beside both, and about the least size of a value without a fixed width


class KeyModes:
    """The modes of a shard's keys, over its batches.

    Parameters
    ----------
    plan : WindowPlan
    store : Store
        The shard's.
    head : mapping
        The shard's head; :meth:`to_json` goes into it.
    """

    def __init__(self, plan: WindowPlan, store: Store, head: dict[str, Any]) -> None:
        self._plan = plan
        self._store = store
        self._least = plan.paned.most_panes or 1
        self._stream = Properties(**head[_HEAD]) if _HEAD in head else Properties(0.0, 0.0, float(self._least))
        frame = store.get(_KIND, 0)
        self._modes = (
            GroupModes.none(self._least, plan.key_schema)
            if frame is None
            else GroupModes(self._least, from_frame(frame))
        )

    def to_json(self) -> dict[str, Any]:
        return {_HEAD: self._stream.to_json()}

    def heard(self, rows: pa.Table, panes: Int64s, over: frozenset[str]) -> None:
        """Account for arrived rows, with their system column; the input partitions in `over` have ended."""
        self._stream = self._stream.heard(system_field(rows, "source"), panes, over)

    def closed(self, kept_from: int) -> None:
        """Account for a window that has closed; until then panes from `kept_from` on were kept."""
        self._stream = self._stream.closed(kept_from, self._least)

    def split(self, rows: pa.Table | None, entries: Entries, needed: int) -> tuple[pa.Table | None, Entries]:
        """Split a batch into rows of sparse keys and entries of dense keys; `entries` are the lifted `rows`.

        `needed` is the first pane that is needed from now on. Rows and entries of earlier batches stay until their
        panes are over, so a switch moves nothing. At the threshold both take the same memory, and the key's new rows
        are kept the other way. So the more costly way never keeps more than that.
        """
        if rows is not None and rows.num_rows:
            tup, aggr = rows.nbytes / rows.num_rows, entries.table().nbytes / max(len(entries), 1)
            self._stream = self._stream.sized(aggr, tup)
        keys = self._plan.key_schema.empty_table() if rows is None else rows.select(list(self._plan.key))
        panes = np.empty(0, dtype=np.int64) if rows is None else rows.column(PANE).to_numpy()
        self._modes = self._modes.observed(keys, panes, needed, self._stream)
        if self._modes.table.num_rows:
            self._store.put(_KIND, 0, to_frame(self._modes.table))
        else:
            self._store.remove(_KIND, 0)
        if rows is None:
            return None, entries
        return rows.filter(pa.array(~self._modes.is_dense(keys))), entries.take(self._modes.is_dense(entries.keys))


def with_automatic_method(plan: WindowPlan) -> WindowPlan:
    """Return the plan with ``adaptive`` if its aggregates' least state is much larger than a row, else ``paned``.

    Windows over rows, and windows to which keys are committed, must not keep rows, so they are ``paned``. Sketches and
    lists grow with their rows: those of sparse keys are small, so ``paned`` suits them.
    """
    if plan.by_rows or plan.emit == "eager":
        return dataclasses.replace(plan, method="paned")
    least = plan.algebra.size_of(plan.algebra.empty(1)).bytes
    fields = [plan.marked_schema.field(name) for name in plan.stored_columns if name not in plan.key]
    row = sum(_width(field.type) for field in fields)
    beside = _WORD * (1 + len(plan.key))
    return dataclasses.replace(plan, method="adaptive" if much_larger(least + beside, row + beside) else "paned")


def _width(kind: pa.DataType) -> float:
    try:
        return kind.bit_width / 8
    except ValueError:  # strings, lists and the like
        return _WORD
