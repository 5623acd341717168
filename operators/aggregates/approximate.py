"""Approximate aggregates, each with a known error. Exact versions would have to keep every value."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...conf.errors import OptionError, SchemaError
from ...core.rows.buckets import mix_bits
from ...core.rows.exact_integers import Int64s
from . import sketches
from .groups import GroupedRows, Groups
from .parts import Aggregate, Plan, State, StatePart, from_keys, has_keys, sort_keys, type_of

_LEVELS = 64
_LEAST_ROOM = 8
_SHRINK = 2 / 3


class QuantileSketch(StatePart):
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

    def lift(self, rows: GroupedRows) -> State:
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
        """Compact one level of each group without room, until all groups have room. Groups with room drop out."""
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
    """Return coins: the highest bit of a hash of the values' sum and their level."""
    bits = values + levels.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mix_bits(bits) >> np.uint64(63)).astype(np.int64)


def approx_count_distinct(column: str, *, error: float = 0.02) -> Aggregate:
    """Count the different values approximately, by HyperLogLog.

    The result is a BIGINT; it is 0 for a group without values.

    Parameters
    ----------
    column : str
        Integers, decimals, floats, strings, booleans, dates, times or timestamps.
    error : float
        The relative standard deviation: two of three results are within it, 95 % within twice as much. A group takes up
        to (1.04 / error)^2 bytes, rounded up to a power of two: 4 kB for 0.02; and is exact while it has less than a
        tenth as many values.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(different=us.aggregates.approx_count_distinct("speed"))
    """
    text = f"approx_count_distinct({column})"
    lg_k = _power(1.04**2 / error**2 if error > 0 else math.inf, text, error, 7, 21, "0.001 to 0.09")

    def plan(schema: pa.Schema) -> Plan:
        _sketchable(schema, column, text)
        part = sketches.DistinctSketch(column, lg_k)
        return Plan((part,), pa.int64(), lambda state: sketches.distinct_counts(state[part.key], lg_k))

    return Aggregate(text, plan)


def heavy_hitters(column: str, *, limit: int = 10, error: float = 0.01) -> Aggregate:
    """Find the most frequent values, by a Misra-Gries sketch.

    The result is ``ARRAY<STRUCT<item, count BIGINT, error BIGINT>>``, most frequent first. An item's true count is
    between ``count - error`` and ``count``. No error is more than `error` times the group's rows, and the sketch holds
    each value that is more frequent than that. With fewer different values than 2.6 / `error`, counts are exact.

    Parameters
    ----------
    column : str
        Integers, decimals, floats, strings, booleans, dates, times or timestamps.
    limit : int
        The most items that a result has.
    error : float
        As above. The library guarantees this bound; it is not a standard deviation.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(busiest=us.aggregates.heavy_hitters("timestamp", limit=3))
    """
    text = f"heavy_hitters({column})"
    lg_size = _power(3.5 / error if error > 0 else math.inf, text, error, 3, 26, "1e-7 to 0.4")
    if limit < 1:
        raise OptionError(f"limit of {text} is {limit}", expected="a whole number from 1 on")

    def plan(schema: pa.Schema) -> Plan:
        kind = _sketchable(schema, column, text)
        part = sketches.FrequentItems(column, lg_size)
        return Plan((part,), sketches.heavy_type(kind), lambda state: sketches.heavy(state[part.key], limit, kind))

    return Aggregate(text, plan)


def quantile(column: str, probability: float, *, error: float = 0.01) -> Aggregate:
    """Find an approximate quantile: the least value that at least this share of the values do not exceed.

    The result has the column's type and is one of its values.

    Parameters
    ----------
    column : str
        Integers, decimals of up to 18 digits, floats (NaN is the greatest), dates, times or timestamps.
    probability : float
        From 0 to 1.
    error : float
        The error of the rank: with 99 % probability, the result is the quantile of a probability no further than this
        away. A group takes up to about 8 / `error` values of 9 bytes, 7 kB for 0.01. It is exact while it has no more
        than 2.6 / `error` values. All quantiles of a column with one `error` share their state.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(p99=us.aggregates.quantile("speed", 0.99))
    """
    text = f"quantile({column}, {probability:g})"
    if not 0 <= probability <= 1:
        raise OptionError(f"{probability} is not a probability", expected="a number from 0 to 1")
    if not 1e-5 <= error <= 0.1:
        raise OptionError(f"error of {text} is {error}", expected="1e-5 to 0.1")
    k = math.ceil((2.296 / error) ** (1 / 0.9723))  # the library's fit of the single-sided error at 99 %

    def plan(schema: pa.Schema) -> Plan:
        kind = type_of(schema, column, text)
        if not has_keys(kind):
            raise SchemaError(
                f"{text}: {column} is {kind}",
                expected="a column of integers, floats, dates, times, timestamps or decimals of up to 18 digits",
                hint="cast it, for example to DOUBLE",
            )
        part = QuantileSketch(column, k)
        return Plan((part,), kind, lambda state: quantiles_of(state[part.key], probability, kind))

    return Aggregate(text, plan)


def median(column: str, *, error: float = 0.01) -> Aggregate:
    """Find the approximate median, ``quantile(column, 0.5)``: one of the values, the lower one of two in the middle.

    Parameters
    ----------
    column, error
        As for :func:`quantile`.

    Returns
    -------
    Aggregate

    Examples
    --------
    >>> results = stream.window("1 minute").agg(middle=us.aggregates.median("speed"))
    """
    return quantile(column, 0.5, error=error)


def _sketchable(schema: pa.Schema, column: str, text: str) -> pa.DataType:
    kind = type_of(schema, column, text)
    if not sketches.sketchable(kind):
        raise SchemaError(
            f"{text}: {column} is {kind}",
            expected="a column of numbers, strings, booleans, dates, times or timestamps",
            hint="cast it to STRING, for example with hex() or to_json()",
        )
    sketches.library()  # here rather than in the first batch
    return kind


def _power(size: float, text: str, error: float, least: int, most: int, allowed: str) -> int:
    """Return the power of two that suffices for an error."""
    power = math.ceil(math.log2(size)) if 0 < size < math.inf else most + 1
    if power > most:
        raise OptionError(f"error of {text} is {error}", expected=allowed)
    return max(power, least)
