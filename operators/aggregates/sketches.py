"""Parts that are serialised sketches of Apache DataSketches: approximate distinct counts and heavy hitters.

The library takes one value at a time. So array operations first reduce a batch to each group's distinct values and
their counts. The library then needs some 0.1 µs for each value and 5 µs for each group.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import starmap
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import needs_extra
from ...core.rows.exact_integers import Int64s
from ...core.rows.newest import key_codes
from .groups import GroupedRows, Groups, valid_mask
from .parts import State, StatePart, from_keys, has_keys, outermost, sort_keys

# The library ignores empty strings; this placeholder, of no language, replaces them.
_EMPTY = "\ue000\uf8ff\ue000"


def library() -> Any:
    """Import Apache DataSketches. Raise EnvironmentMissingError if it is not installed."""
    with needs_extra("sketches", "an approximate aggregate"):
        import datasketches
    return datasketches


def sketchable(kind: pa.DataType) -> bool:
    """Return whether the library can take values of this type, as int64 or as text."""
    return has_keys(kind) or pa.types.is_decimal128(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


class DistinctSketch(StatePart):
    """The HyperLogLog sketch of a column's values, with up to 2^lg_k registers of a byte; null for a group without
    values.

    Sketches of integers and strings are those of Spark's ``hll_sketch_agg``, except that Spark ignores empty strings:
    Spark can read and unite them.
    """

    def __init__(self, column: str, lg_k: int) -> None:
        self.key = f"hll@1({column}; lg_k {lg_k})"
        self.inputs = (column,)
        self.fields = (pa.field("sketch", pa.binary()),)
        self._lg_k = lg_k

    def lift(self, rows: GroupedRows) -> State:
        sketches, out = library(), _nothing(rows.groups)
        for group, values, _ in _distinct(rows, self.inputs[0]):
            sketch = sketches.hll_sketch(self._lg_k, sketches.HLL_8)
            deque(map(sketch.update, values), 0)
            out[group] = sketch.serialize_compact()
        return [pa.array(out, pa.binary())]

    def combine(self, state: State, groups: Groups) -> State:
        sketches, out = library(), _nothing(groups)
        for group, parts in _by_group(state, groups):
            union = sketches.hll_union(self._lg_k)
            deque(map(union.update, map(sketches.hll_sketch.deserialize, parts)), 0)
            out[group] = union.get_result(sketches.HLL_8).serialize_compact()
        return [pa.array(out, pa.binary())]

    def prefixes(self, state: State, begins: Int64s) -> State | None:
        sketches, runs = library(), set(begins.tolist())
        union, before, out = sketches.hll_union(self._lg_k), None, list[bytes | None]()
        for at, part in enumerate(state[0].to_pylist()):
            if at in runs:
                union, before = sketches.hll_union(self._lg_k), None
            if part is not None:
                union.update(sketches.hll_sketch.deserialize(part))
                before = union.get_result(sketches.HLL_8).serialize_compact()
            out.append(before)
        return [pa.array(out, pa.binary())]


def distinct_counts(state: State, lg_k: int) -> pa.Array:
    """Return each sketch's estimate of its number of distinct values."""
    sketches = library()
    out = np.zeros(len(state[0]), dtype=np.int64)
    for group, (part,) in _by_group(state, Groups(np.arange(len(out)), len(out))):
        # A sketch that saw all values itself estimates by the order in which they came, a united one by its registers
        # alone. Only the latter gives the same number whichever way the rows were divided, so each is united with
        # itself.
        sketch, union = sketches.hll_sketch.deserialize(part), sketches.hll_union(lg_k)
        union.update(sketch)
        union.update(sketch)
        out[group] = round(union.get_estimate())
    return pa.array(out)


class FrequentItems(StatePart):
    """The Misra-Gries sketch of a column's values (as text); null for a group without values.

    It counts up to 0.75 · 2^lg_size values. No count is wrong by more than 3.5 / 2^lg_size of the rows.
    """

    def __init__(self, column: str, lg_size: int) -> None:
        self.key = f"frequent@1({column}; lg_size {lg_size})"
        self.inputs = (column,)
        self.fields = (pa.field("sketch", pa.binary()),)
        self._lg_size = lg_size

    def lift(self, rows: GroupedRows) -> State:
        sketches, out = library(), _nothing(rows.groups)
        for group, values, counts in _distinct(rows, self.inputs[0]):
            sketch = sketches.frequent_strings_sketch(self._lg_size)
            # The order of updates decides what is forgotten: it must not be that of the rows.
            deque(starmap(sketch.update, sorted(zip(map(str, values), counts, strict=True))), 0)
            out[group] = sketch.serialize()
        return [pa.array(out, pa.binary())]

    def combine(self, state: State, groups: Groups) -> State:
        sketches, out = library(), _nothing(groups)
        for group, parts in _by_group(state, groups):
            sketch = sketches.frequent_strings_sketch(self._lg_size)
            deque(map(sketch.merge, map(sketches.frequent_strings_sketch.deserialize, sorted(parts))), 0)
            out[group] = sketch.serialize()
        return [pa.array(out, pa.binary())]


def heavy_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the result of :func:`heavy` for values of this type."""
    return pa.list_(pa.struct([("item", kind), ("count", pa.int64()), ("error", pa.int64())]))


def heavy(state: State, limit: int, kind: pa.DataType) -> pa.Array:
    """Return the `limit` most frequent values of each sketch, the most frequent first."""
    sketches = library()
    groups = len(state[0])
    sizes, found = np.zeros(groups, dtype=np.int32), list[tuple[str, int, int]]()
    for group, (part,) in _by_group(state, Groups(np.arange(groups), groups)):
        sketch = sketches.frequent_strings_sketch.deserialize(part)
        items = sketch.get_frequent_items(sketches.frequent_items_error_type.NO_FALSE_NEGATIVES)
        items = sorted((-estimate, item, estimate - least) for item, estimate, least, _ in items)[:limit]
        sizes[group] = len(items)
        found += [(item, -count, error) for count, item, error in items]
    text = pa.array([item for item, _, _ in found], pa.string())
    values = from_keys(text.cast(pa.int64()).to_numpy(), kind) if has_keys(kind) else _emptied(text).cast(kind)
    counts = [pa.array([row[place] for row in found], pa.int64()) for place in (1, 2)]
    rows = pa.StructArray.from_arrays([values, *counts], names=["item", "count", "error"])
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)), rows)


def _distinct(rows: GroupedRows, column: str) -> Iterator[tuple[int, list[Any], list[int]]]:
    """Yield each group's distinct values, as the library takes them, and their counts."""
    array, groups = rows.valid(column)
    if len(array) == 0:
        return
    values = pa.array(sort_keys(array)) if has_keys(array.type) else array.cast(pa.string())
    codes, size = key_codes([pa.array(groups.codes), values])
    pairs = Groups(codes, size)
    place = outermost(pairs, [], last=False)
    place, counts = place[place >= 0], pairs.counts[pairs.counts > 0]
    order = np.argsort(groups.codes[place], kind="stable")
    place, counts = place[order], counts[order].tolist()
    values = values.take(pa.array(place))
    if pa.types.is_string(values.type):
        values = pc.if_else(pc.equal(values, ""), _EMPTY, values)
    listed, ends = values.to_pylist(), np.searchsorted(groups.codes[place], np.arange(groups.size + 1)).tolist()
    for group in np.flatnonzero(np.diff(ends)).tolist():
        mine = slice(ends[group], ends[group + 1])
        yield group, listed[mine], counts[mine]


def _by_group(state: State, groups: Groups) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the groups that have sketches, each with its sketches."""
    array = state[0]
    codes = groups.codes[valid_mask(array)]
    order = np.argsort(codes, kind="stable")
    parts = array.drop_null().take(pa.array(order)).to_pylist()
    ends = np.searchsorted(codes[order], np.arange(groups.size + 1)).tolist()
    for group in np.flatnonzero(np.diff(ends)).tolist():
        yield group, parts[ends[group] : ends[group + 1]]


def _nothing(groups: Groups) -> list[bytes | None]:
    return [None] * groups.size


def _emptied(text: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(text, _EMPTY), "", text)
