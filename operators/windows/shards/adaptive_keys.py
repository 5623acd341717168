"""The method ``adaptive`` (AdaptWID, thesis §6.3): a shard's keys with rows, and those with partial aggregates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.rows.exact_integers import LOWEST, Int64s, Mask
from ....core.rows.frames import from_frame, to_frame
from ....core.rows.newest import key_codes
from ....core.rows.system_column import system_field
from ...state.entries import PANE, Entries, Keys, grouped
from ...state.store import Store
from .plan import WindowPlan

Floats = npt.NDArray[np.float64]

BACK = 0.7
"""A dense group keeps rows again below this share of its aggregates' memory, against thrashing (thesis §6.3.4.2)."""

MUCH = 5
"""The size of a partial aggregate, in rows, above which ``auto`` adapts."""

_WEIGHT = 0.2  # of the newest measurement of a size
_PERIOD, _ROWS, _DENSE = "__upstream_period", "__upstream_rows", "__upstream_dense"


@dataclasses.dataclass(frozen=True)
class Properties:
    """The stream's inputs to Cond. 6.9, besides each group's volume.

    Times are in panes, because a dense group keeps a partial aggregate for each pane: `wed` is the thesis's wed/SLIDE.
    A pane without rows has none, so a group never has more partial aggregates than rows.
    """

    aggr: float  # bytes of a partial aggregate; 0 while none is measured
    tup: float  # bytes of a kept row; 0 while none is measured
    wed: float  # window extent duration: panes kept when a window closes; above RANGE with disorder or lateness
    # last pane of each input partition's latest batch, so that stray future times do not count for long
    highs: Mapping[str, int] = dataclasses.field(default_factory=dict)
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)  # rows in each input partition's latest batch

    @property
    def offset(self) -> float:
        """The mean distance of a row's input partition behind the farthest one (thesis §6.3.1), at most `wed`."""
        total = sum(self.shares.values())
        if len(self.highs) < 2 or total == 0:
            return 0.0
        earliest = max(self.highs.values())
        behind = sum(share * min(float(earliest - self.highs[feed]), self.wed) for feed, share in self.shares.items())
        return behind / total

    def heard(self, feeds: pa.Array | pa.ChunkedArray, panes: Int64s, over: frozenset[str] = frozenset()) -> Properties:
        """Return the properties updated with a batch's rows. Input partitions in `over` have ended."""
        highs = {feed: high for feed, high in self.highs.items() if feed not in over}
        shares = {feed: share for feed, share in self.shares.items() if feed not in over}
        codes, first, size = grouped([feeds])
        high = np.full(size, LOWEST, dtype=np.int64)
        np.maximum.at(high, codes, panes)
        names = feeds.take(pa.array(first)).to_pylist()
        for name, last, rows in zip(names, high.tolist(), np.bincount(codes, minlength=size).tolist(), strict=True):
            if name not in over:
                highs[name], shares[name] = last, float(rows)
        return dataclasses.replace(self, highs=highs, shares=shares)

    def sized(self, aggr: float, tup: float) -> Properties:
        return dataclasses.replace(self, aggr=_smoothed(self.aggr, aggr), tup=_smoothed(self.tup, tup))

    def closed(self, first: int, least: int) -> Properties:
        """Return the properties after a window has closed.

        Until then panes from `first` on were kept, LOWEST if no window was open; a window has `least` panes.
        """
        if first == LOWEST or not self.highs:
            return self
        return dataclasses.replace(self, wed=float(max(max(self.highs.values()) - first + 1, least)))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def eager_memory(vol: Floats, stream: Properties) -> Floats:
    """Return the memory that groups take as partial aggregates (Eq. 6.5); `vol` is rows per pane."""
    return stream.aggr * np.minimum(vol * stream.wed, stream.wed)


def lazy_memory(vol: Floats, stream: Properties) -> Floats:
    """Return the memory that groups take as rows (Eq. 6.8); `vol` is rows per pane.

    Rows of an input partition that is behind come later, and wait less for the window's end. Each group's rows are
    assumed to come from the partitions in the same shares, so ``Σ vol_K · offset_K`` is its volume times the mean
    offset.
    """
    return stream.tup * vol * max(stream.wed - stream.offset, 0.0)


def dense_groups(was: Mask, vol: Floats, stream: Properties) -> Mask:
    """Return which groups keep partial aggregates (Cond. 6.9); `was` marks those that do now."""
    lazy, eager = lazy_memory(vol, stream), eager_memory(vol, stream)
    return np.where(was, lazy >= BACK * eager, lazy > eager)


def much_larger(aggr: float, tup: float) -> bool:
    """Return whether keeping rows of sparse groups saves enough memory to outweigh shuffling rows unreduced."""
    return aggr > MUCH * tup


class GroupModes:
    """The rows that each group has had lately, and which groups are dense. Immutable.

    `period` is the panes of a window, over which rows are counted together. `table` has the key's columns, a period,
    the group's rows in it, and whether the group is dense.

    Rows are counted by their own time, so neither order nor batches affect the volume. A group's volume is that of its
    fullest kept period, because a new period has too few rows. Groups without rows are forgotten, which makes them
    sparse. So are single rows of sparse groups. A group that never has two rows in a batch has a partial aggregate in
    each batch, so rows suit it.
    """

    def __init__(self, period: int, table: pa.Table) -> None:
        self._period = period
        self.table = table

    @classmethod
    def none(cls, period: int, key: pa.Schema) -> GroupModes:
        own = [pa.field(_PERIOD, pa.int64()), pa.field(_ROWS, pa.int64()), pa.field(_DENSE, pa.bool_())]
        return cls(period, pa.schema([*key, *own]).empty_table())

    @property
    def keys(self) -> pa.Table:
        """The key's columns, for each row of the table."""
        return self.table.drop_columns([_PERIOD, _ROWS, _DENSE])

    def observed(self, keys: pa.Table, panes: Int64s, first: int, stream: Properties) -> GroupModes:
        """Count rows, and decide again which groups are dense; panes below `first` are no longer needed."""
        known = Keys([self.keys, keys])
        code = np.concatenate(known.codes)
        period = np.concatenate([self._column(_PERIOD), panes // self._period])
        rows = np.concatenate([self._column(_ROWS), np.ones(len(panes), dtype=np.int64)])
        was = np.zeros(known.size, dtype=np.bool_)
        was[known.codes[0]] = self._column(_DENSE)
        if first > LOWEST:
            # One period more than what is kept, so that a group is not judged by a beginning.
            lately = period >= first // self._period - 1
            code, period, rows = code[lately], period[lately], rows[lately]
        both, places, size = grouped([pa.array(code), pa.array(period)])
        count = np.zeros(size, dtype=np.int64)
        np.add.at(count, both, rows)
        group = code[places]
        most = np.zeros(known.size, dtype=np.int64)
        np.maximum.at(most, group, count)
        dense = dense_groups(was, most / self._period, stream)
        remembered = (count > 1) | dense[group]
        group, places, count = group[remembered], places[remembered], count[remembered]
        table = known.take(group)
        for name, column in ((_PERIOD, period[places]), (_ROWS, count), (_DENSE, dense[group])):
            table = table.append_column(name, pa.array(column))
        return GroupModes(self._period, table)

    def is_dense(self, keys: pa.Table) -> Mask:
        """Return whether the group of each row is dense; an unknown group is not."""
        together = pa.concat_tables([self.keys, keys])
        codes, size = key_codes(together.columns)
        dense = np.zeros(size, dtype=np.bool_)
        dense[codes[: self.table.num_rows]] = self._column(_DENSE)
        return dense[codes[self.table.num_rows :]]

    def _column(self, name: str) -> npt.NDArray[Any]:
        return self.table.column(name).to_numpy()


def _smoothed(was: float, now: float) -> float:
    return now if was == 0 else was + _WEIGHT * (now - was)


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
