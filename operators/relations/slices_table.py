"""Partial aggregates by group and slice, ordered so that each window of a group is a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.exact_integers import LOWEST, Int64s
from ...core.rows.frames import from_frame, to_frame
from ..aggregates.algebra import Aggregates, Ranges
from ..aggregates.parts import State
from ..state.store import Store
from .zsets import expanded, numbered

SLICE = "__slice"
"""The column with a slice's number: its end, in widths since the epoch."""

_AT_ONCE = 64


class SliceLog:
    """Tables with a column :data:`SLICE`, one on each page.

    A page is replaced only by one at least as large, so rewrites of a row are logarithmic in the size of the state.
    """

    def __init__(self, store: Store, kind: str, saved: Any) -> None:
        self._store = store
        self._kind = kind
        self._pages: list[list[int]] = [list(page) for page in saved.get("pages", [])]
        self._next = int(saved.get("next", 0))

    def to_json(self) -> dict[str, Any]:
        return {"pages": self._pages, "next": self._next}

    @property
    def rows(self) -> int:
        """The number of rows; a slice of a group counts once on each page that has it."""
        return sum(page[2] for page in self._pages)

    @property
    def bytes(self) -> int:
        return sum(page[3] for page in self._pages)

    @property
    def greatest(self) -> int | None:
        return max((page[1] for page in self._pages), default=None)

    def add(self, table: pa.Table, merge: Callable[[Sequence[pa.Table]], pa.Table]) -> None:
        """Write a nonempty table, merged with the last pages that are not larger."""
        together = [table]
        rows = table.num_rows
        while self._pages and self._pages[-1][2] <= max(rows, _AT_ONCE):
            page = self._pages[-1]
            together.append(self._load(page))
            rows += page[2]
            self._remove(page)
        table = merge(together[::-1]) if len(together) > 1 else table
        if table.num_rows == 0:
            return
        greatest = pc.max(table.column(SLICE)).as_py()
        frame = to_frame(table.combine_chunks())
        self._store.put(self._kind, self._next, frame)
        self._pages.append([self._next, greatest, table.num_rows, len(frame)])
        self._next += 1

    def can_drop(self, through: int) -> bool:
        return any(page[1] <= through for page in self._pages)

    def drop(self, through: int) -> None:
        for page in [page for page in self._pages if page[1] <= through]:
            self._remove(page)

    def tables(self) -> list[pa.Table]:
        return [self._load(page) for page in self._pages]

    def _load(self, page: list[int]) -> pa.Table:
        frame = self._store.get(self._kind, page[0])
        assert frame is not None, f"page {page[0]} of {self._kind} is not in the state store"
        return from_frame(frame)

    def _remove(self, page: list[int]) -> None:
        self._store.remove(self._kind, page[0])
        self._pages.remove(page)


class Partials(NamedTuple):
    """Aggregate states of some groups in some slices."""

    keys: pl.DataFrame  # Each state's group; without columns, all are of one group.
    slices: Int64s  # Each state's slice number.
    state: pa.Table


def with_slices(keys: pl.DataFrame, slices: Int64s) -> pl.DataFrame:
    """Append the slice numbers to the columns of groups."""
    return pl.DataFrame([*keys.get_columns(), pl.Series(SLICE, slices)])


def combined(aggregates: Aggregates, some: Sequence[Partials]) -> Partials:
    """Combine the states of each group and slice into one."""
    slices = np.concatenate([each.slices for each in some])
    keys = pl.concat([each.keys for each in some])
    ids, first = numbered(with_slices(keys, slices), [*keys.columns, SLICE])
    state = aggregates.combine(pa.concat_tables([each.state for each in some]), ids, len(first))
    return Partials(keys[first] if keys.columns else keys, slices[first], state)


class SliceTable:
    """Partial aggregates by group and slice, one state for each, in this order.

    ``of`` is each state's group, a row of ``keys``; without columns there is one group. Groups are in the order of
    their first state (``born``): a table read from the state then equals one kept in memory.
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
        none = np.empty(0, dtype=np.int64)
        return cls(aggregates, keys, none, none, none, aggregates.empty(0))

    def __len__(self) -> int:
        return len(self.of)

    def with_more(self, some: Sequence[Partials]) -> SliceTable:
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
        order, numbers = self._by_slice
        return order[np.searchsorted(numbers, above, "right") : np.searchsorted(numbers, through, "right")]

    def runs(self, groups: Int64s, through: Int64s, count: int, above: int = LOWEST) -> tuple[Int64s, Int64s]:
        """Return begin and end of the last ``count`` slices of each group up to ``through``, above number ``above``."""
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
