"""The kernel of joins: pairs of rows that meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.buckets import spark_hash
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ...core.rows.sort_keys import ordered

_PAIRS_AT_ONCE = 4_000_000


class SortedRows(NamedTuple):
    """Rows sorted by the numbers of their keys, then by time."""

    numbers: Int64s
    times: Int64s
    table: pa.Table


def is_exact(kinds: list[pa.DataType]) -> bool:
    """Return whether :func:`key_numbers` of keys of these types are equal only if the keys are."""
    (kind, *others) = kinds
    whole = pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return not others and whole


def key_numbers(columns: list[pa.ChunkedArray]) -> Int64s:
    """Return each key's number: a single integer, date or timestamp itself, else a hash. No key may have a null."""
    if is_exact([column.type for column in columns]):
        return ordered(columns[0]).astype(np.int64, copy=False)
    return spark_hash(columns).astype(np.int64)


def sorted_rows(numbers: Int64s, times: Int64s, table: pa.Table) -> SortedRows:
    """Sort rows. Those of one key and time keep their order."""
    order = _order(numbers, times)
    if order is None:
        return SortedRows(numbers, times, table)
    return SortedRows(numbers[order], times[order], table.take(pa.array(order)).combine_chunks())


def _order(numbers: Int64s, times: Int64s) -> Int64s | None:
    """Return the positions of rows by number, time and position; None if they are in that order."""
    rows = len(numbers)
    later = numbers[1:] > numbers[:-1]
    if bool(np.all(later | ((numbers[1:] == numbers[:-1]) & (times[1:] >= times[:-1])))):
        return None
    least, first = int(numbers.min()), int(times.min())
    span = int(times.max()) - first + 1
    if (int(numbers.max()) - least + 1) * span * rows < 1 << 62:
        # All three as one number: to sort numbers is several times as fast as to sort positions by their values.
        whole = ((numbers - least) * span + (times - first)) * rows + np.arange(rows)
        whole.sort()
        return whole % rows
    return np.lexsort((times, numbers))


def newest_matches(probes: Int64s, least: Int64s, greatest: Int64s, numbers: Int64s, times: Int64s) -> Int64s:
    """Return the position of the last row with each probe's number and a time in its range; -1 for none.

    The rows must be sorted by number, then time. Both ends of a range are inclusive.
    """
    found = np.full(len(probes), -1, dtype=np.int64)
    if len(probes) and len(numbers):
        asks, first, last = _found(probes, least, greatest, numbers, times)
        found[asks] = np.where(last > first, last - 1, -1)
    return found


def matches(
    probes: Int64s, least: Int64s, greatest: Int64s, rows: SortedRows, at_once: int = _PAIRS_AT_ONCE
) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the positions of probes and rows that have one key number, and a time in the probe's range.

    Both ends of a range are inclusive. Two binary searches find the rows of each probe, faster if probes are sorted.
    About `at_once` pairs are made together.
    """
    if not len(probes) or not len(rows.numbers):
        return
    asks, first, last = _found(probes, least, greatest, rows.numbers, rows.times)
    counts = np.maximum(last - first, 0)
    ends = np.cumsum(counts)
    done = 0
    while done < len(asks):
        until = int(np.searchsorted(ends, (ends[done - 1] if done else 0) + at_once, "right"))
        until = max(until, done + 1)
        some = counts[done:until]
        total = int(some.sum())
        if total:
            before = np.cumsum(some) - some
            offset = np.repeat(first[done:until] - before, some)
            yield np.repeat(asks[done:until], some), np.arange(total) + offset
        done = until


def _found(
    probes: Int64s, least: Int64s, greatest: Int64s, numbers: Int64s, times: Int64s
) -> tuple[Int64s, Int64s, Int64s]:
    """Return the probes that may have partners, the first position of each one's partners, and that behind the last."""
    inside = least <= greatest
    low, span = int(times.min()), int(times.max()) - int(times.min()) + 1
    if (int(numbers[-1]) - int(numbers[0]) + 1) * span < 1 << 62 and LOWEST < low < low + span <= HIGHEST:
        # Key and time as one number. A key that no row has finds nothing, so no key is looked up first.
        asks = np.flatnonzero(inside & (probes >= numbers[0]) & (probes <= numbers[-1]))
        both = (numbers - numbers[0]) * span + (times - low)
        base = (probes[asks] - numbers[0]) * span
        start = np.clip(least[asks], low, low + span) - low
        end = np.clip(greatest[asks], low - 1, low + span - 1) - low
        return asks, np.searchsorted(both, base + start), np.searchsorted(both, base + end, "right")
    begins = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
    known = numbers[begins]
    code = np.minimum(np.searchsorted(known, probes), len(known) - 1)
    asks = np.flatnonzero((known[code] == probes) & inside)
    if not len(asks):
        return asks, asks, asks
    codes = np.repeat(np.arange(len(known)), np.diff(np.append(begins, len(numbers))))
    return asks, *_ranges(codes, times, code[asks], least[asks], greatest[asks])


def _ranges(codes: Int64s, times: Int64s, wanted: Int64s, least: Int64s, greatest: Int64s) -> tuple[Int64s, Int64s]:
    """Return the first position of each probe's partners, and the position behind the last."""
    low, high = int(times.min()), int(times.max())
    span = high - low + 1
    if span * (int(codes[-1]) + 1) < 1 << 62:
        # Key and time as one number: one search of sorted whole numbers in place of two.
        both = codes * span + (times - low)
        start = np.clip(least, low, high + 1) - low if high < np.iinfo(np.int64).max else None
        if start is not None:
            end = np.clip(greatest, low - 1, high) - low if low > np.iinfo(np.int64).min else None
            if end is not None:
                base = wanted * span
                return np.searchsorted(both, base + start), np.searchsorted(both, base + end, "right")
    ranks = np.unique(times)
    both = codes * (len(ranks) + 1) + np.searchsorted(ranks, times)
    base = wanted * (len(ranks) + 1)
    start, end = np.searchsorted(ranks, least), np.searchsorted(ranks, greatest, "right") - 1
    return np.searchsorted(both, base + start), np.searchsorted(both, base + end, "right")


def equal_keys(
    left: pa.Table,
    left_names: tuple[str, ...],
    at: Int64s,
    right: pa.Table,
    right_names: tuple[str, ...],
    other: Int64s,
) -> pa.Array:
    """Return which pairs of rows have equal keys."""
    found: pa.Array | None = None
    for one, two in zip(left_names, right_names, strict=True):
        same = pc.equal(left.column(one).take(pa.array(at)), right.column(two).take(pa.array(other)))
        same = same.combine_chunks() if isinstance(same, pa.ChunkedArray) else same
        found = same if found is None else pc.and_(found, same)
    assert found is not None
    return pc.fill_null(found, False)
