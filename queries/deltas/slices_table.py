"""The partial aggregates of all groups and slices, in an order in which a window of a group is a run of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import LOWEST, Int64s
from ...operators.aggregates.algebra import Aggregates
from ...operators.aggregates.parts import State
from ...operators.aggregates.ranges import Ranges
from .slices_log import SLICE
from .zsets import expanded, numbered

__all__ = ["Partials", "SliceTable", "combined", "with_slices"]


class Partials(NamedTuple):
    """States of some groups in some slices.

    Attributes
    ----------
    keys : polars.DataFrame
        The columns of each one's group; without any, all are of one group.
    slices : int64 array
        The numbers of their slices.
    state : pyarrow.Table
    """

    keys: pl.DataFrame
    slices: Int64s
    state: pa.Table


def with_slices(keys: pl.DataFrame, slices: Int64s) -> pl.DataFrame:
    """Return the columns of groups and one with the numbers of slices."""
    return pl.DataFrame([*keys.get_columns(), pl.Series(SLICE, slices)])


def combined(aggregates: Aggregates, some: Sequence[Partials]) -> Partials:
    """Return one state for each group and slice."""
    slices = np.concatenate([each.slices for each in some])
    keys = pl.concat([each.keys for each in some])
    ids, first = numbered(with_slices(keys, slices), [*keys.columns, SLICE])
    state = aggregates.combine(pa.concat_tables([each.state for each in some]), ids, len(first))
    return Partials(keys[first] if keys.columns else keys, slices[first], state)


class SliceTable:
    """Partial aggregates by group and slice.

    Parameters
    ----------
    aggregates : Aggregates
    keys : polars.DataFrame
        The columns of each group; without any there is one group.
    of : int64 array
        The group of each state.
    slices : int64 array
        The number of its slice; states are in the order of group and slice, one for each.
    born : int64 array
        Numbers in the order in which states came. Groups are in the order in which the first of their states came, so
        that what was read from the state is in the same order as what was kept in memory.
    state : pyarrow.Table
    """

    def __init__(
        self,
        aggregates: Aggregates,
        keys: pl.DataFrame,
        of: Int64s,
        slices: Int64s,
        born: Int64s,
        state: pa.Table,
    ) -> None:
        self._aggregates = aggregates
        self.keys = keys
        self.groups = keys.height if keys.columns else 1
        self.of = of
        self.slices = slices
        self._born = born
        self.state = state
        self._states: dict[str, State] = {part.key: columns for part, columns in aggregates.split(state)}
        self._parts = {part.key: part for part in aggregates.parts}
        self._ranges: dict[str, Ranges] = {}

    @classmethod
    def empty(cls, aggregates: Aggregates, keys: pl.DataFrame) -> SliceTable:
        """Return a table without states; ``keys`` has the columns of groups, and no rows."""
        none = np.empty(0, dtype=np.int64)
        return cls(aggregates, keys, none, none, none, aggregates.empty(0))

    def __len__(self) -> int:
        return len(self.of)

    def with_more(self, some: Sequence[Partials]) -> SliceTable:
        """Return a table that has some partial aggregates more."""
        if not some:
            return self
        keys = pl.concat([self.keys, *(each.keys for each in some)])
        ids, first = numbered(keys, keys.columns)
        if not keys.columns:
            ids, first = np.zeros(sum(len(each.slices) for each in some), dtype=np.int64), np.zeros(1, dtype=np.int64)
        else:
            ids = ids[self.keys.height :]
        of = np.concatenate([self.of, ids])
        slices = np.concatenate([self.slices, *(each.slices for each in some)])
        following = int(self._born.max()) + 1 if len(self) else 0
        born = np.concatenate([self._born, following + np.arange(len(slices) - len(self))])
        order = np.lexsort((slices, of))  # stable: of equal ones the older is the first
        of, slices, born = of[order], slices[order], born[order]
        begins = (np.diff(of, prepend=-1) != 0) | (np.diff(slices, prepend=0) != 0)
        codes = np.empty(len(order), dtype=np.int64)
        codes[order] = np.cumsum(begins) - 1
        state = pa.concat_tables([self.state, *(each.state for each in some)])
        state = self._aggregates.combine(state, codes, int(begins.sum()))
        keys = keys[first] if keys.columns else keys
        return SliceTable(self._aggregates, keys, of[begins], slices[begins], born[begins], state)

    def after(self, last: int) -> SliceTable:
        """Return a table of the slices with a greater number."""
        stays = self.slices > last
        if stays.all():
            return self
        at = np.flatnonzero(stays)
        of, keys = self.of[at], self.keys
        if keys.columns and len(at):
            firsts = np.flatnonzero(np.diff(of, prepend=-1) != 0)
            ranks = np.argsort(np.minimum.reduceat(self._born[at], firsts))
            keys = keys[of[firsts[ranks]]]
            of, places = expanded(firsts[ranks], np.append(firsts[1:], len(at))[ranks])
            at = at[places]
        elif keys.columns:
            keys = keys.clear()
        state = self.state.take(pa.array(at))
        return SliceTable(self._aggregates, keys, of, self.slices[at], self._born[at], state)

    def between(self, above: int, through: int) -> Int64s:
        """Return the positions of the states with ``above < slice <= through``."""
        order, numbers = self._by_slice
        return order[np.searchsorted(numbers, above, "right") : np.searchsorted(numbers, through, "right")]

    def runs(self, groups: Int64s, through: Int64s, count: int, above: int = LOWEST) -> tuple[Int64s, Int64s]:
        """Return where the last ``count`` slices of some groups begin and end, up to and including some numbers.

        Slices up to and including number ``above`` are left out.
        """
        if len(self) == 0:
            none = np.zeros(len(groups), dtype=np.int64)
            return none, none
        least, size, places = self._places
        high = np.clip(through, least - 1, least + size + count)
        low = np.clip(np.clip(high - count, above, high) - least + 1, 0, size)
        high = np.clip(high - least + 1, 0, size)
        base = groups * size
        return np.searchsorted(places, base + low), np.searchsorted(places, base + high)

    def of_runs(self, part: str, low: Int64s, high: Int64s) -> State:
        """Return the columns of a part's state for runs of states."""
        if part not in self._ranges:
            self._ranges[part] = Ranges(self._parts[part], self._states[part])
        return self._ranges[part].of(low, high)

    @cached_property
    def _by_slice(self) -> tuple[Int64s, Int64s]:
        order = np.argsort(self.slices, kind="stable")
        return order, self.slices[order]

    @cached_property
    def _places(self) -> tuple[int, int, Int64s]:
        least = int(self.slices.min())
        size = int(self.slices.max()) - least + 2
        return least, size, self.of * size + (self.slices - least)
