"""AdaptWID (thesis §6.3): sparse groups keep rows, dense ones partial aggregates, whichever takes less memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.exact_integers import LOWEST, Int64s
from ...core.rows.newest import key_codes
from ..runtime.entries import Keys, grouped

__all__ = ["BACK", "MUCH", "GroupModes", "Properties", "dense_groups", "eager_memory", "lazy_memory", "much_larger"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

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
    """Return which groups are to keep partial aggregates (Cond. 6.9); `was` marks those that do now."""
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
