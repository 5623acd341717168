"""AdaptWID (thesis §6.3): a sparse group keeps its rows, a dense one its partial aggregates, whichever takes less
memory. Pure.

Times are counted in panes, since what a dense group keeps is a partial aggregate for each pane: where the thesis has
wed/SLIDE of them, here it is wed in panes. A pane without rows has none, so there are never more of them than rows.
"""

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
"""A dense group goes back to rows when they take less than this part of its partial aggregates (thesis §6.3.4.2: two
thresholds, against thrashing).
"""

MUCH = 5
"""From how many times a row's size on a partial aggregate is so large that ``auto`` adapts."""

_WEIGHT = 0.2  # of the newest measurement of a size
_PERIOD, _ROWS, _DENSE = "__upstream_period", "__upstream_rows", "__upstream_dense"


@dataclasses.dataclass(frozen=True)
class Properties:
    """The inputs of Cond. 6.9 about the stream, besides each group's volume.

    Attributes
    ----------
    aggr, tup : float
        Size of a partial aggregate, and of a row that is kept, in bytes. 0 while none was measured.
    wed : float
        Window extent duration: how many panes are kept when a window closes. RANGE if the stream is in order; more with
        disorder and with allowed lateness.
    highs : mapping of str to int
        High-watermark of each feed: the last pane of its newest rows. That of the latest batch, so that a stray time in
        the far future does not count for long.
    shares : mapping of str to float
        Of each feed, how many rows the latest batch had.
    """

    aggr: float
    tup: float
    wed: float
    highs: Mapping[str, int] = dataclasses.field(default_factory=dict)
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def offset(self) -> float:
        """How far behind the earliest feed a row's feed is, on average over rows (thesis §6.3.1), and at most `wed`."""
        total = sum(self.shares.values())
        if len(self.highs) < 2 or total == 0:
            return 0.0
        earliest = max(self.highs.values())
        behind = sum(share * min(float(earliest - self.highs[feed]), self.wed) for feed, share in self.shares.items())
        return behind / total

    def heard(self, feeds: pa.Array | pa.ChunkedArray, panes: Int64s, over: frozenset[str] = frozenset()) -> Properties:
        """Return the properties updated with a batch's rows.

        Parameters
        ----------
        feeds : string array of length rows
        panes : int64 array of length rows
        over : set of str
            Feeds that have ended: windows no longer wait for them.
        """
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
        """Return the properties updated with the mean sizes of a batch's partial aggregates and rows."""
        return dataclasses.replace(self, aggr=_smoothed(self.aggr, aggr), tup=_smoothed(self.tup, tup))

    def closed(self, first: int, least: int) -> Properties:
        """Return the properties updated after a window has closed.

        Parameters
        ----------
        first : int
            The first pane that was kept until then; LOWEST if no window was open before.
        least : int
            The panes of a window.
        """
        if first == LOWEST or not self.highs:
            return self
        return dataclasses.replace(self, wed=float(max(max(self.highs.values()) - first + 1, least)))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value; the constructor takes its members."""
        return dataclasses.asdict(self)


def eager_memory(vol: Floats, stream: Properties) -> Floats:
    """Return the memory that groups take as partial aggregates (Eq. 6.5).

    Parameters
    ----------
    vol : float array of length groups
        Rows per pane.
    stream : Properties
    """
    return stream.aggr * np.minimum(vol * stream.wed, stream.wed)


def lazy_memory(vol: Floats, stream: Properties) -> Floats:
    """Return the memory that groups take as rows (Eq. 6.8).

    Rows of a feed that is behind come later, and wait so much less for the window's end.

    Notes
    -----
    A group's rows are assumed to come from the feeds in the same shares as all rows do, so ``Σ vol_K · offset_K`` is
    its volume times the mean offset.
    """
    return stream.tup * vol * max(stream.wed - stream.offset, 0.0)


def dense_groups(was: Mask, vol: Floats, stream: Properties) -> Mask:
    """Return which groups are to keep partial aggregates (Cond. 6.9).

    Parameters
    ----------
    was : bool array of length groups
        The groups that do so now.
    vol : float array of length groups
        Rows per pane.
    stream : Properties
    """
    lazy, eager = lazy_memory(vol, stream), eager_memory(vol, stream)
    return np.where(was, lazy >= BACK * eager, lazy > eager)


def much_larger(aggr: float, tup: float) -> bool:
    """Return whether keeping rows of sparse groups saves enough memory to outweigh its cost.

    The cost is that rows are not reduced before they are shuffled.

    Parameters
    ----------
    aggr, tup : float
        The sizes of the least partial aggregate and of a row.
    """
    return aggr > MUCH * tup


class GroupModes:
    """How many rows each group has had lately, and which groups are dense. Immutable.

    Parameters
    ----------
    period : int
        Panes over which rows are counted together: those of a window.
    table : pyarrow.Table
        What :attr:`table` was; :meth:`none` to begin with.

    Attributes
    ----------
    table : pyarrow.Table
        The key's columns, a period, the group's rows in it, and whether the group is dense: a few rows for each group
        that has had several rows lately.

    Notes
    -----
    Rows are counted by their own time, so neither order nor batches matter to the volume. A group's is that of its
    fullest period among those that are kept: the period that has just begun has too few rows. Groups without rows are
    forgotten, which makes them sparse. A sparse group's single row is not remembered either: most groups may have no
    more than that, and one that never has two rows in a batch has a partial aggregate in each, since those of several
    batches are kept apart; so rows are what suits it.
    """

    def __init__(self, period: int, table: pa.Table) -> None:
        self._period = period
        self.table = table

    @classmethod
    def none(cls, period: int, key: pa.Schema) -> GroupModes:
        """Return modes without a group."""
        own = [pa.field(_PERIOD, pa.int64()), pa.field(_ROWS, pa.int64()), pa.field(_DENSE, pa.bool_())]
        return cls(period, pa.schema([*key, *own]).empty_table())

    @property
    def keys(self) -> pa.Table:
        """The key's columns, for each row of the table."""
        return self.table.drop_columns([_PERIOD, _ROWS, _DENSE])

    def observed(self, keys: pa.Table, panes: Int64s, first: int, stream: Properties) -> GroupModes:
        """Count rows, and decide again.

        Parameters
        ----------
        keys : pyarrow.Table
            The key's columns of each row.
        panes : int64 array of length rows
        first : int
            The first pane that is needed from now on; LOWEST if all are, more than any if none is.
        stream : Properties
        """
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
