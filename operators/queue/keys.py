"""Indexes from a queue's keys to the locations of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.buckets import mix_bits, spark_hash
from ...core.rows.exact_integers import Int64s
from ...core.rows.newest import key_codes
from ...core.rows.sort_keys import ordered

NOWHERE = -1


class LocatedKeys:
    """A batch's keys, numbered within the batch, with their locations.

    `codes` is the number of each row's key, from 0. By code, `number` is a number that outlives the batch, for
    statistics, and `location` is the location of the key's row, or -1.
    """

    def __init__(self, codes: Int64s, number: Int64s, location: Int64s) -> None:
        self.codes = codes
        self.number = number
        self.location = location


class LocationIndex(Protocol):
    """An index from keys to locations."""

    def find(self, keys: Any) -> LocatedKeys:
        """Assign numbers to the rows' keys and find their locations."""
        ...

    def among(self, number: Int64s, locations: Int64s) -> LocatedKeys:
        """Assign numbers to the keys of rows that have locations already, each given with its key's number."""
        ...

    def put(self, number: Int64s, locations: Int64s) -> None: ...

    def drop(self, number: Int64s, locations: Int64s) -> None: ...


class NumberedKeys:
    """An index of keys that are whole numbers from 0 to `keys` - 1, as in simulations."""

    def __init__(self, keys: int) -> None:
        self._location = np.full(keys, NOWHERE, dtype=np.int64)

    def find(self, keys: Int64s) -> LocatedKeys:
        number, codes = np.unique(keys, return_inverse=True)
        return LocatedKeys(codes.astype(np.int64, copy=False), number, self._location[number])

    def among(self, number: Int64s, locations: Int64s) -> LocatedKeys:
        del locations
        return self.find(number)

    def put(self, number: Int64s, locations: Int64s) -> None:
        self._location[number] = locations

    def drop(self, number: Int64s, locations: Int64s) -> None:
        del locations
        self._location[number] = NOWHERE


class HashedKeys:
    """An index of keys of any type that Arrow can compare, by a number of each key.

    `fetch` returns the key columns of the rows at some locations, to distinguish keys with the same number. It is
    called only for numbers that occur in a batch, and is None if all keys have different numbers (see
    :func:`key_numbers`). The held numbers are in no order, so adding keys moves none. A batch probes a small table once
    for each held number.
    """

    def __init__(self, fetch: Callable[[Int64s], Sequence[pa.ChunkedArray]] | None) -> None:
        self._fetch = fetch
        self._number: Int64s = np.empty(0, dtype=np.int64)
        self._location: Int64s = np.empty(0, dtype=np.int64)

    def find(self, keys: tuple[Sequence[pa.ChunkedArray], Int64s]) -> LocatedKeys:
        """Find keys, given as their columns and a number of each row's key."""
        columns, numbers = keys
        rows = len(numbers)
        held, row = self._held(numbers)
        candidates = self._location[held]
        if self._fetch is not None and len(candidates):
            columns = [_together(one, more) for one, more in zip(columns, self._fetch(candidates), strict=True)]
        codes, size = key_codes(columns)
        codes, code_of = _compact(codes[:rows], size, codes[rows:])
        number = np.zeros(int(codes.max()) + 1 if rows else 0, dtype=np.int64)
        number[codes] = numbers
        if self._fetch is None:
            code_of = codes[row]
        location = np.full(len(number), NOWHERE, dtype=np.int64)
        mine = code_of >= 0
        location[code_of[mine]] = candidates[mine]
        return LocatedKeys(codes, number, location)

    def among(self, number: Int64s, locations: Int64s) -> LocatedKeys:
        if len(locations) == 0:
            return LocatedKeys(locations, locations, locations)
        codes, size = key_codes([pa.array(number)] if self._fetch is None else self._fetch(locations))
        codes, _ = _compact(codes, size, codes[:0])
        numbers = np.zeros(int(codes.max()) + 1, dtype=np.int64)
        numbers[codes] = number
        return LocatedKeys(codes, numbers, np.full(len(numbers), NOWHERE, dtype=np.int64))

    def put(self, number: Int64s, locations: Int64s) -> None:
        self._number = np.concatenate([self._number, number])
        self._location = np.concatenate([self._location, locations])

    def drop(self, number: Int64s, locations: Int64s) -> None:
        del number
        if len(locations) == 0:
            return
        leaving = np.zeros(int(max(self._location.max(initial=0), locations.max())) + 1, dtype=np.bool_)
        leaving[locations] = True
        stays = ~leaving[self._location]
        self._number, self._location = self._number[stays], self._location[stays]

    def _held(self, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Return the indices of the held keys with one of `numbers`, and for each the row in `numbers`."""
        size = 1 << max(10, (8 * len(numbers) - 1).bit_length())
        seen = np.zeros(size, dtype=np.bool_)
        seen[numbers & (size - 1)] = True
        maybe = np.flatnonzero(seen[self._number & (size - 1)])
        row = pc.index_in(pa.array(self._number[maybe]), value_set=pa.array(numbers))
        found = pc.is_valid(row).to_numpy(zero_copy_only=False)
        return maybe[found], row.drop_null().to_numpy().astype(np.int64)


def key_numbers(columns: Sequence[pa.ChunkedArray]) -> Int64s:
    """Return an evenly spread number for each row's key: the mixed key if :func:`numbers_tell`, else Spark's hash."""
    if not numbers_tell([column.type for column in columns]):
        return spark_hash(columns).astype(np.int64)
    return mix_bits(ordered(columns[0]).view(np.uint64)).view(np.int64)


def numbers_tell(types: Sequence[pa.DataType]) -> bool:
    """Return whether keys of these types have unique :func:`key_numbers`: one column of integers or dates or times."""
    kind = types[0]
    whole = pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
    return len(types) == 1 and whole


def _together(one: pa.ChunkedArray | pa.Array, more: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    chunks = [chunk for part in (one, more) for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    return pa.chunked_array(chunks, type=one.type)


def _compact(codes: Int64s, size: int, others: Int64s) -> tuple[Int64s, Int64s]:
    """Renumber the codes that occur from 0, and translate the other codes; -1 if a code does not occur."""
    table = np.full(size, NOWHERE, dtype=np.int64)
    table[codes] = 0
    present = np.flatnonzero(table == 0)
    table[present] = np.arange(len(present))
    return table[codes], table[others]
