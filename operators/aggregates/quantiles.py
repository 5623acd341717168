"""Quantiles of many groups at once: the KLL sketch (Karnin, Lang and Liberty 2016) as columns, with reproducible coins.

A sketch is a set of values, each with a level: a value at level h represents 2^h rows. If there is no room, a level is
sorted and every other value moves up, starting with the first or second by a coin; the others are dropped. A coin is a
hash of the values it decides on. Libraries seed theirs by the clock, so a replayed batch would find other quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .groups import Groups, Rows
from .keys import from_keys, sort_keys
from .parts import Part, State

__all__ = ["QuantileSketch", "quantiles_of"]

Int64s = npt.NDArray[np.int64]

_LEVELS = 64
_LEAST_ROOM = 8
_SHRINK = 2 / 3


class QuantileSketch(Part):
    """A KLL sketch of a column whose values have int64 keys.

    `k` is the room of the highest level; each level below has two thirds of the next one's.
    """

    def __init__(self, column: str, k: int) -> None:
        self.key = f"kll@1({column}; k {k})"
        self.inputs = (column,)
        self.fields = (pa.field("values", pa.list_(pa.int64())), pa.field("levels", pa.list_(pa.int8())))
        # Room of all levels if the highest is h, and of each of them counted from the highest.
        room = np.maximum(_LEAST_ROOM, np.ceil(k * _SHRINK ** np.arange(_LEVELS))).astype(np.int64)
        self._room, self._room_below = room, np.cumsum(room)

    def lift(self, rows: Rows) -> State:
        array, groups = rows.valid(self.inputs[0])
        items = _Items(groups.codes, sort_keys(array), np.zeros(len(array), dtype=np.int8))
        return self._state(items, groups.size)

    def combine(self, state: State, groups: Groups) -> State:
        items = _items(state, groups.codes)
        return self._state(items, groups.size)

    def _state(self, items: _Items, groups: int) -> State:
        kept = self._compacted(items, groups)
        order = np.lexsort((kept.values, kept.levels, kept.codes))
        kept = kept.at(order)
        sizes = np.bincount(kept.codes, minlength=groups)
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
        return [
            pa.ListArray.from_arrays(offsets, pa.array(values), type=field.type)
            for values, field in zip((kept.values, kept.levels), self.fields, strict=True)
        ]

    def _compacted(self, items: _Items, groups: int) -> _Items:
        """Compact one level of each group without room, until all groups have room. Groups with room are set aside."""
        done = list[_Items]()
        while len(items.codes):
            highest = np.zeros(groups, dtype=np.int64)
            np.maximum.at(highest, items.codes, items.levels)
            full = np.bincount(items.codes, minlength=groups) > self._room_below[highest]
            if not full.any():
                break
            mine = full[items.codes]
            done.append(items.at(~mine))
            items = self._round(items.at(mine), highest)
        done.append(items)
        return _Items(
            np.concatenate([part.codes for part in done]),
            np.concatenate([part.values for part in done]),
            np.concatenate([part.levels for part in done]),
        )

    def _round(self, items: _Items, highest: Int64s) -> _Items:
        """Compact the lowest level without room of each group."""
        items = items.at(np.lexsort((items.values, items.levels, items.codes)))
        level = items.codes * _LEVELS + items.levels
        starts = np.flatnonzero(np.concatenate([[True], level[1:] != level[:-1]]))
        sizes = np.diff(np.append(starts, len(level)))
        codes, levels = items.codes[starts], items.levels[starts].astype(np.int64)
        over = np.flatnonzero(sizes > self._room[highest[codes] - levels])
        over = over[np.concatenate([[True], codes[over][1:] != codes[over][:-1]])]  # the lowest of each group
        # An odd value out stays where it is, the least one.
        odd = sizes[over] % 2
        coins = _coins(np.add.reduceat(items.values.view(np.uint64), starts)[over], levels[over])
        run = np.full(len(starts), -1, dtype=np.int64)
        run[over] = np.arange(len(over))
        run_of = np.repeat(run, sizes)
        place = np.arange(len(level)) - np.repeat(starts, sizes)
        compacted = run_of >= 0
        which = run_of[compacted]
        place = place[compacted] - odd[which]
        rises = (place >= 0) & (place % 2 == coins[which])
        stays = np.ones(len(level), dtype=np.bool_)
        stays[compacted] = rises | (place < 0)
        raised = items.levels.copy()
        raised[compacted] += rises
        return _Items(items.codes, items.values, raised).at(stays)


def quantiles_of(state: State, probability: float, kind: pa.DataType) -> pa.Array:
    """Return each group's least value that at least this share of its rows do not exceed; null without values."""
    groups = len(state[0])
    items = _items(state, np.arange(groups))
    items = items.at(np.lexsort((items.values, items.codes)))
    weights = np.int64(1) << items.levels.astype(np.int64)
    reached = np.cumsum(weights)
    sizes = np.bincount(items.codes, minlength=groups)
    ends = np.cumsum(sizes)
    total = np.concatenate([[0], reached])
    before = total[ends - sizes]
    rows = total[ends] - before
    rank = np.maximum(1, np.ceil(probability * rows).astype(np.int64))
    # `reached` grows from group to group, so one search serves all of them.
    place = np.minimum(np.searchsorted(reached, before + rank), max(len(reached) - 1, 0))
    keys = items.values[place] if len(reached) else np.zeros(groups, dtype=np.int64)
    values = from_keys(keys, kind)
    return values.take(pa.array(np.arange(groups), mask=sizes == 0))


@dataclass(frozen=True)
class _Items:
    codes: Int64s
    values: Int64s
    levels: npt.NDArray[np.int8]

    def at(self, which: npt.NDArray[np.bool_] | Int64s) -> _Items:
        return _Items(self.codes[which], self.values[which], self.levels[which])


def _items(state: State, codes: Int64s) -> _Items:
    lengths = state[0].value_lengths().to_numpy()
    return _Items(np.repeat(codes, lengths), state[0].flatten().to_numpy(), state[1].flatten().to_numpy())


def _coins(values: npt.NDArray[np.uint64], levels: Int64s) -> Int64s:
    """Return coins: the highest bit of a hash (splitmix64's last steps) of the values' sum and their level."""
    bits = values + levels.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((bits ^ (bits >> np.uint64(31))) >> np.uint64(63)).astype(np.int64)
