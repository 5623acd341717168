"""The statistics of a data file that let readers skip it, in the JSON of Delta's log."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_INDEXED_COLUMNS = 32  # Delta's own default
_PREFIX = 32
_LAST_CHARACTER = "\U0010ffff"
_YEARS = (
    np.datetime64("0001-01-01", "us").astype(np.int64),
    np.datetime64("9999-12-31T23:59:59", "us").astype(np.int64),
)

Tree = dict[str, "str | Tree"]


def file_stats(table: pa.Table) -> str:
    """Return numRecords, minValues, maxValues and nullCount of the rows of one file, as JSON.

    A bound that is not exact or safe is left out, which readers take as unknown: NaN, infinity, years after 9999, text
    that is not UTF-8. Rounded bounds are rounded outwards.
    """
    minimum: Tree = {}
    maximum: Tree = {}
    nulls: Tree = {}
    for place, array in _leaves(table):
        _put(nulls, place, str(array.null_count))
        low, high = _bounds(array)
        if low is not None:
            _put(minimum, place, low)
        if high is not None:
            _put(maximum, place, high)
    parts = {"numRecords": str(table.num_rows), "minValues": minimum, "maxValues": maximum, "nullCount": nulls}
    return _render(parts)


class _Digits(str):
    """A number as the JSON has it."""

    __slots__ = ()


def loosened(stats: str | None, rows: int) -> str:
    """Return a file's statistics for the log once more of its rows are dead: a bound may be a dead row's.

    Each bound keeps its digits: as a float, a long decimal would change, and readers would skip rows. `rows` is
    the file's number of rows, which the format requires beside a deletion vector.
    """
    try:
        found = json.loads(stats or "{}", parse_float=_Digits)
    except ValueError:
        found = {}
    return _as_written({**found, "numRecords": rows, "tightBounds": False})


def _as_written(value: Any) -> str:
    if isinstance(value, dict):
        fields = [f"{_json(name)}:{_as_written(each)}" for name, each in value.items()]
        return "{" + ",".join(fields) + "}"
    return str(value) if isinstance(value, _Digits) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _leaves(table: pa.Table) -> Iterator[tuple[tuple[str, ...], pa.ChunkedArray]]:
    found = 0
    for name, column in zip(table.column_names, table.columns, strict=True):
        for leaf in _leaves_of((name,), column):
            if found == _INDEXED_COLUMNS:
                return
            found += 1
            yield leaf


def _leaves_of(place: tuple[str, ...], column: pa.ChunkedArray) -> Iterator[tuple[tuple[str, ...], pa.ChunkedArray]]:
    if pa.types.is_struct(column.type):
        for field, child in zip(column.type, column.flatten(), strict=True):
            yield from _leaves_of((*place, field.name), child)
    else:
        yield place, column


def _put(tree: Tree, place: tuple[str, ...], value: str) -> None:
    for name in place[:-1]:
        below = tree.setdefault(name, {})
        assert isinstance(below, dict)
        tree = below
    tree[place[-1]] = value


def _render(tree: Tree) -> str:
    parts = (f"{_quoted(name)}:{_render(value) if isinstance(value, dict) else value}" for name, value in tree.items())
    return "{" + ",".join(parts) + "}"


@functools.lru_cache(4096)
def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _bounds(array: pa.ChunkedArray) -> tuple[str | None, str | None]:
    """Return the least and the greatest value as JSON text; None for one that has no safe form."""
    kind = array.type
    if array.null_count == len(array):
        return None, None
    if pa.types.is_string(kind):
        # As bytes, in whose order readers compare text: Spark's may be no text at all.
        low, high = (_text(value) for value in _min_max(array.cast(pa.binary())))
        return None if low is None else _text_low(low), None if high is None else _text_high(high)
    if pa.types.is_integer(kind):
        low, high = _least_and_greatest(array)
        return str(low), str(high)
    if pa.types.is_decimal(kind):
        low, high = _min_max(array)
        return format(low, "f"), format(high, "f")
    if pa.types.is_floating(kind):
        # Spark sorts NaN above all numbers, Parquet leaves it out: with one present there is no bound both agree on.
        low, high = _least_and_greatest(array)
        if math.isnan(low):
            return None, None
        # Some readers sort -0.0 below 0.0, and Arrow gives either: the bounds hold both.
        low, high = -0.0 if low == 0 else low, 0.0 if high == 0 else high
        return repr(low) if math.isfinite(low) else None, repr(high) if math.isfinite(high) else None
    if pa.types.is_date32(kind):
        low, high = _least_and_greatest(array.cast(pa.int32()))
        return _instant(low * 86_400_000_000, "D", ""), _instant(high * 86_400_000_000, "D", "")
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        low, high = _least_and_greatest(array.cast(pa.int64()))
        zone = "Z" if kind.tz else ""
        return _instant(low // 1000 * 1000, "ms", zone), _instant(-(-high // 1000) * 1000, "ms", zone)
    return None, None


def _min_max(array: pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(array)
    return found["min"].as_py(), found["max"].as_py()


def _least_and_greatest(array: pa.ChunkedArray) -> tuple[Any, Any]:
    """Return the bounds of numbers, not all of them null; NaN if one of them is."""
    if array.null_count and not pa.types.is_floating(array.type):
        return _min_max(array)
    values = (array.drop_null() if array.null_count else array).to_numpy()
    return values.min().item(), values.max().item()


def _instant(micros: int, unit: Literal["D", "ms"], zone: str) -> str | None:
    if not _YEARS[0] <= micros <= _YEARS[1]:
        return None
    return f'"{np.datetime_as_string(np.datetime64(micros, "us"), unit=unit)}{zone}"'


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _text_low(value: str) -> str:
    return json.dumps(value[:_PREFIX], ensure_ascii=False)


def _text_high(value: str) -> str | None:
    if len(value) <= _PREFIX:
        return json.dumps(value, ensure_ascii=False)
    if value[_PREFIX] == _LAST_CHARACTER:
        return None
    return json.dumps(value[:_PREFIX] + _LAST_CHARACTER, ensure_ascii=False)
