"""Percentiles, modes and lists by group: the values of each group in their order, in buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import LOWEST, Int64s, Mask
from ..aggregates.parts import ranks as ranks_of
from ..aggregates.parts import sort_keys, taken
from ..state import key_runs
from ..state.key_runs import BITS, INNER_BITS, PlaceRanges, UInt64s, buckets_at, key_places, pairs
from .arrangement import OperatorState
from .group_sums import Points
from .zsets import (
    OLD,
    TIME,
    WEIGHT,
    Steps,
    check_copies,
    cumulated,
    differences,
    expanded,
    int64s,
    key_numbers,
    live,
    numbered,
    places_among,
)

_BUCKET, _SIZE = "__bucket", "__size"
_BITS = np.array([BITS])

ROWS_OF_ONE = 2 * key_runs.ROWS_OF_BUCKET
"""How many rows a group without buckets has at most."""


class Percentile(NamedTuple):
    """A percentile of a column's values."""

    name: str
    share: float
    continuous: bool  # A rank between two values is interpolated.
    descending: bool

    def ranks(self, counts: Int64s) -> npt.NDArray[np.float64]:
        """Return the rank, from 0 on, among so many values in the percentile's order."""
        ranks = (counts - 1) * self.share if self.continuous else np.maximum(np.ceil(counts * self.share) - 1, 0)
        return ranks.astype(np.float64)

    def places(self, counts: Int64s, ranks: npt.NDArray[np.float64]) -> list[Int64s]:
        """Return the positions, in ascending order, of the values below and above each rank."""
        both = [each.astype(np.int64) for each in (np.floor(ranks), np.ceil(ranks))]
        return [counts - 1 - each for each in both] if self.descending else both

    def between(self, rank: npt.NDArray[np.float64], low: pl.Series, high: pl.Series) -> pl.Series:
        if not self.continuous:
            return low
        one, two = (each.cast(pl.Float64).to_numpy() for each in (low, high))
        # Spark's formula, so results are equal to the last bit.
        with np.errstate(invalid="ignore"):
            between = (np.ceil(rank) - rank) * one + (rank - np.floor(rank)) * two
        return pl.Series(np.where(one == two, one, between))


class List(NamedTuple):
    """The values in their order."""

    name: str
    distinct: bool


class Mode(NamedTuple):
    """The most frequent value; of several, the least one, or the greatest one."""

    name: str
    greatest: bool


Result = Percentile | List | Mode


class ValueOrder(NamedTuple):
    """The columns that order values; the last one is the values themselves."""

    names: tuple[str, ...]
    directions: tuple[tuple[bool, bool], ...]  # Descending, and nulls first.
    results: list[Result]


BucketsAround = Callable[["Buckets", Int64s], Mask]
"""Chooses buckets to read, given those before a step, and the bucket of each row that changes."""


class OrderedBuckets:
    """The distinct rows of each group, in an order.

    Those of a large group are divided into about as many buckets as a bucket has rows. A step reads the buckets in
    which a row changes, and the sizes of the others. ``in_order`` returns numbers in the order of rows. One column may
    choose the rows that count as copies, and one those that are kept. State: the distinct rows of each group with their
    counts, and the buckets of large groups.
    """

    def __init__(
        self,
        by: pa.Schema,
        columns: pa.Schema,
        name: str,
        in_order: Callable[[pl.DataFrame], Int64s],
        state: OperatorState,
        counted: str | None = None,
        kept: str | None = None,
    ) -> None:
        self._names, self._in_order, self._counted, self._kept = columns.names, in_order, counted, kept
        fields = [*by, *columns, pa.field(WEIGHT, pa.int64())]
        self._values = state.arrangement(f"{name} in order", pa.schema(fields), self._names)
        fields += [pa.field(each, pa.int64()) for each in (_BUCKET, _SIZE)]
        self._buckets = state.arrangement(f"buckets of {name}", pa.schema(fields), [_BUCKET])

    def advance(
        self, points: Points, rows: pl.DataFrame, group: Int64s, before: Int64s, around: BucketsAround | None
    ) -> tuple[Buckets, _Values]:
        """Change rows; return the buckets, and the values of those that were read. ``group`` is that of each row.

        ``before`` are each group's rows before the step, at most, if it has no buckets. Beside each bucket that
        changes, those ``around`` it are read, or None for all.
        """
        stored = self._buckets.read(points.numbers if self._buckets.rows else points.numbers[:0])
        old, row, bucket = self._old_buckets(points, stored, rows, group, before)
        old, into = _joined(old, bucket, points.groups, around)
        heads = old.at(np.diff(into, prepend=-1) != 0)
        # All rows at places that change are read first, so new buckets get their numbers before the values are known.
        most = _sums(into, old.size, len(heads.group)) + np.bincount(into[bucket], minlength=len(heads.group))
        more = _unused(old, heads, most, points.groups)
        values, kept = self._changed(points, old, more, into, rows, bucket)
        marks = [self._marks(values, each) for each in (self._counted, self._kept)]
        buckets, values = _divided(heads, more, values, points.groups, *marks)
        replaced = np.isin(np.arange(stored.height), row[old.read])
        self._write(points, buckets, values, kept, replaced)
        return buckets, values

    def all(self) -> pl.DataFrame:
        """Return all rows with their counts."""
        return self._values.read_all().select(*self._names, WEIGHT)

    def _marks(self, values: _Values, column: str | None) -> Mask:
        if column is None:
            return np.ones(values.values.height, dtype=np.bool_)
        return values.values.get_column(column).to_numpy()

    def _old_buckets(
        self, points: Points, stored: pl.DataFrame, rows: pl.DataFrame, group: Int64s, before: Int64s
    ) -> tuple[Buckets, Int64s, Int64s]:
        """Return the buckets before the step, their positions in the state or -1, and the bucket of each value."""
        of = points.find(stored)
        at = np.flatnonzero(of < points.groups)
        # A group that has no stored buckets has one, of at most its rows.
        one = np.setdiff1d(np.arange(points.groups), of[at])
        of_stored = np.isin(group, of[at])
        codes = self._in_order(pl.concat([stored[self._names][at], rows[self._names].filter(pl.Series(of_stored))]))
        groups = np.append(of[at], one)
        bounds = np.append(codes[: len(at)], np.full(len(one), LOWEST))
        zeros = np.zeros(len(one), dtype=np.int64)
        order = np.lexsort((bounds, groups))
        buckets = Buckets(
            groups[order],
            np.append(int64s(stored, _BUCKET)[at], zeros)[order],
            np.append(int64s(stored, _SIZE)[at], before[one])[order],
            np.append(int64s(stored, WEIGHT)[at], zeros)[order],
            np.append(np.zeros(len(at), dtype=np.bool_), np.ones(len(one), dtype=np.bool_))[order],
        )
        bucket = np.searchsorted(buckets.group, group)  # also of a value less than all of its group
        among = places_among(group[of_stored], codes[len(at) :], buckets.group, bounds[order], after=True)
        bucket[of_stored] = np.maximum(among - 1, bucket[of_stored])
        return buckets, np.append(at, np.full(len(one), -1))[order], bucket

    def _changed(
        self, points: Points, old: Buckets, more: Buckets, into: Int64s, rows: pl.DataFrame, bucket: Int64s
    ) -> tuple[_Values, _Kept]:
        """Return the distinct values of the buckets that are read, with their changes, and the rows in the state."""
        kept = self._values.read_between(_ranges(points, old.at(old.read), more))
        places = self._values.places
        of = old.find(points.find(kept), places)
        mine = (of >= 0) & old.read[of]
        was = kept.filter(pl.Series(mine))
        together = pl.concat([was[self._names], rows[self._names]])
        codes = self._in_order(together)
        of = into[np.append(of[mine], bucket)]
        order = np.lexsort((codes, of))
        starts = (np.diff(of[order], prepend=-1) != 0) | (np.diff(codes[order], prepend=0) != 0)
        ids = np.empty(len(order), dtype=np.int64)
        ids[order] = np.cumsum(starts) - 1
        first = order[starts]
        times = np.append(np.full(was.height, OLD), int64s(rows, TIME))
        steps = cumulated(ids, times, np.append(int64s(was, WEIGHT), int64s(rows, WEIGHT)))
        return _Values(together[first], of[first], steps), _Kept(mine, ids[: was.height], places[mine])

    def _write(
        self, points: Points, buckets: Buckets, values: _Values, kept: _Kept, replaced: npt.NDArray[np.bool_]
    ) -> None:
        """Write the values and buckets that change; ``replaced`` are the stored buckets that were read."""
        weights = values.steps.values[0][values.steps.lasts] * self._marks(values, self._kept)
        group = buckets.group[values.bucket]
        inner = key_places(key_numbers(values.values, self._names)) >> np.uint64(INNER_BITS + BITS)
        places = _ranges(points, buckets.at(values.bucket)).first | inner
        before = np.where(values.steps.times == OLD, values.steps.values[0], 0)[values.steps.firsts]
        changed = weights != before
        changed[kept.ids] |= kept.places != places[kept.ids]
        over = kept.mine.copy()
        over[over] = changed[kept.ids]
        new = np.flatnonzero((weights != 0) & changed)
        columns = [*values.values[new], pl.Series(WEIGHT, weights[new])]
        self._values.write_at(points.with_keys(group[new], columns), places[new], over)
        several = np.bincount(buckets.group[buckets.size > 0], minlength=points.groups) > 1
        some = np.flatnonzero(buckets.read & (buckets.size > 0) & (several[buckets.group] | (buckets.number != 0)))
        group = buckets.group[some]
        columns = [
            *values.values[np.searchsorted(values.bucket, some)],
            pl.Series(WEIGHT, buckets.copies[some]),
            pl.Series(_BUCKET, buckets.number[some]),
            pl.Series(_SIZE, buckets.size[some]),
        ]
        self._buckets.write(points.with_keys(group, columns), points.numbers[group], replaced)


class OrderedValues(OrderedBuckets):
    """Percentiles, modes and lists of the values of each group.

    A step reads the buckets in which a value changes or a percentile is; for lists and modes, it reads all buckets.
    """

    def __init__(self, by: pa.Schema, order: ValueOrder, schema: pa.Schema, state: OperatorState) -> None:
        self._directions = order.directions
        self._name = name = order.names[-1]
        self._percentiles = [each for each in order.results if isinstance(each, Percentile)]
        self._lists = [each for each in order.results if isinstance(each, List)]
        self._modes = [each for each in order.results if isinstance(each, Mode)]
        super().__init__(by, pa.schema([schema.field(each) for each in order.names]), name, self._codes, state)

    def step(self, points: Points, rows: pl.DataFrame, group: Int64s, before: Int64s) -> pl.DataFrame:
        """Return the results at each change point. ``before`` are each group's rows before the step."""
        known = rows.get_column(self._name).is_not_null()
        rows, group = rows.filter(known), group[known.to_numpy()]
        if points.net:
            rows = rows.with_columns(pl.Series(TIME, points.steps.times[points.ends[group]]))
        around = None if self._lists or self._modes else rows_around(0)
        buckets, values = self.advance(points, rows, group, before, around)
        results = [self._list(each, points, buckets, values) for each in self._lists]
        results += [self._mode(each, points, buckets, values) for each in self._modes]
        return pl.DataFrame(results + (self._ranked(points, buckets, values) if self._percentiles else []))

    def _codes(self, rows: pl.DataFrame) -> Int64s:
        """Return numbers in the order of the values."""
        columns = [rows.get_column(name).to_arrow(compat_level=pl.CompatLevel.oldest()) for name in self._names]
        if len(columns) == 1:
            codes = sort_keys(columns[0])
            return ~codes if self._directions[0][0] else codes
        pairs = zip(columns, self._directions, strict=True)
        each_one = [ranks_of(each, descending=down, nulls_first=first) for each, (down, first) in pairs]
        order = np.lexsort(each_one[::-1])
        starts = np.any([np.diff(each[order], prepend=-1) != 0 for each in each_one], axis=0)
        codes = np.empty(len(order), dtype=np.int64)
        codes[order] = np.cumsum(starts)
        return codes

    def _list(self, result: List, points: Points, buckets: Buckets, values: _Values) -> pl.Series:
        """Return the values at each change point."""
        found: list[pl.Series] = []
        for part in live(values.steps, buckets.group[values.bucket], points.steps):
            by = np.argsort(part.positions, kind="stable")
            copies = np.ones(len(by), dtype=np.int64) if result.distinct else part.weights[by]
            check_copies(copies)
            ends = np.cumsum(_sums(part.positions[by] - part.begin, copies, part.end - part.begin))
            items = values.values.get_column(self._name)[np.repeat(part.ids[by], copies)]
            array = items.to_arrow(compat_level=pl.CompatLevel.oldest())
            found.append(pl.Series(result.name, pa.LargeListArray.from_arrays(np.append(0, ends), array)))
        return pl.concat(found)

    def _mode(self, result: Mode, points: Points, buckets: Buckets, values: _Values) -> pl.Series:
        """Return the most frequent value at each change point."""
        found = np.full(points.size, -1)
        for part in live(values.steps, buckets.group[values.bucket], points.steps):
            order = np.lexsort((part.ids if result.greatest else -part.ids, part.weights, part.positions))
            found[part.positions[order]] = part.ids[order]  # The last one stays.
        return self._at(result.name, values.values, found)

    def _at(self, name: str, values: pl.DataFrame, at: Int64s) -> pl.Series:
        """Return the values at some positions; null at -1."""
        return pl.Series(name, taken(values.get_column(self._name).to_arrow(compat_level=pl.CompatLevel.oldest()), at))

    def _ranked(self, points: Points, buckets: Buckets, values: _Values) -> list[pl.Series]:
        """Return the percentiles at each change point."""
        apart = np.flatnonzero(~buckets.read)
        steps = values.steps
        of = np.append(values.bucket[steps.ids], apart)
        times = np.append(steps.times, np.full(len(apart), OLD))
        moves = np.append(differences(steps.ids, steps.values[0]), buckets.copies[apart])
        groups, moments = np.append(buckets.group[of], points.steps.ids), np.append(times, points.steps.times)
        counts = cumulated(groups, moments, np.append(moves, np.zeros_like(points.steps.ids))).values[0]
        at = np.flatnonzero(counts > 0)
        ranks = [each.ranks(counts[at]) for each in self._percentiles]
        places = zip(self._percentiles, ranks, strict=True)
        every = np.concatenate([place for each, some in places for place in each.places(counts[at], some)])
        asked = np.tile(at, 2 * len(ranks))
        group = points.steps.ids[asked]
        bucket, rest = np.searchsorted(buckets.group, group), every
        several = np.bincount(buckets.group, minlength=points.groups) > 1
        if several.any():
            mine, among = several[buckets.group[of]], several[group]
            rows = cumulated(of[mine], times[mine], moves[mine])
            bucket[among], rest[among] = _at_ranks(rows, buckets.group, points.steps, asked[among], every[among])
        values = self._with_unread(points, buckets, values, np.unique(bucket[~buckets.read[bucket]]))
        # The points of a bucket are those of its group at which one of its values is a result.
        some, position = np.unique(bucket * points.size + asked, return_inverse=True)
        inner = Steps(some // points.size, points.steps.times[some % points.size], [])
        needed = np.bincount(inner.ids, minlength=len(buckets.group)) > 0
        mine = needed[values.bucket[values.steps.ids]]
        rows = Steps(values.steps.ids[mine], values.steps.times[mine], [values.steps.values[0][mine]])
        ids, _ = _at_ranks(rows, values.bucket, inner, position, rest)
        position = np.full(points.size, -1)
        position[at] = np.arange(len(at))
        found: list[pl.Series] = []
        column = values.values.get_column(self._name)
        for each, rank, mine in zip(self._percentiles, ranks, np.split(ids, len(ranks)), strict=True):
            one = each.between(rank, *(column[some] for some in np.split(mine, 2)))
            found.append(self._at(each.name, one.alias(self._name).to_frame(), position))
        return found

    def _with_unread(self, points: Points, buckets: Buckets, values: _Values, some: Int64s) -> _Values:
        """Add the values of some buckets without changes."""
        if not len(some):
            return values
        rows = self._values.read_between(_ranges(points, buckets.at(some)))
        of = buckets.find(points.find(rows), self._values.places)
        mine = np.flatnonzero(np.isin(of, some))
        order = mine[np.lexsort((self._in_order(rows[self._names][mine]), of[mine]))]
        size = len(values.bucket)
        steps = Steps(
            np.append(values.steps.ids, np.arange(size, size + len(order))),
            np.append(values.steps.times, np.full(len(order), OLD)),
            [np.append(values.steps.values[0], int64s(rows, WEIGHT)[order])],
        )
        return _Values(pl.concat([values.values, rows[self._names][order]]), np.append(values.bucket, of[order]), steps)


class Buckets(NamedTuple):
    """Buckets, in the order of their groups and values."""

    group: Int64s
    number: Int64s  # A part of the values' places.
    size: Int64s  # The number of distinct values, at most.
    copies: Int64s  # The number of values.
    read: Mask  # The values are read from the state.

    def at(self, which: Mask | Int64s) -> Buckets:
        return Buckets(self.group[which], self.number[which], self.size[which], self.copies[which], self.read[which])

    def find(self, group: Int64s, places: UInt64s) -> Int64s:
        """Return the positions of the buckets of rows; -1 for others' rows."""
        known = pairs(self.group, self.number)
        order = np.argsort(known)
        wanted = pairs(group, buckets_at(places, _BITS))
        at = order[np.minimum(np.searchsorted(known[order], wanted), len(order) - 1)]
        return np.where(known[at] == wanted, at, -1)

    @property
    def stretches(self) -> Int64s:
        """A number of each bucket's stretch: buckets of a group that were read, without others between them."""
        begins = np.diff(self.group, prepend=-1) != 0
        begins[1:] |= ~self.read[:-1]
        return np.cumsum(begins) - 1


class _Values(NamedTuple):
    """Distinct values, in the order of their buckets and their own."""

    values: pl.DataFrame
    bucket: Int64s  # By value: the position of its bucket.
    steps: Steps  # By value: its count.


class _Kept(NamedTuple):
    """The rows that were read."""

    mine: Mask  # Of all rows, those of the values.
    ids: Int64s  # Of these: the value's position.
    places: UInt64s


def _sums(of: Int64s, values: Int64s, size: int) -> Int64s:
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, of, values)
    return total


def _ranges(points: Points, *buckets: Buckets) -> PlaceRanges:
    """Return the places of buckets."""
    group = np.concatenate([each.group for each in buckets])
    number = np.concatenate([each.number for each in buckets])
    return PlaceRanges.of_buckets(points.numbers[group], number, _BITS)


def _wanted(sizes: Int64s, group: Int64s, groups: int) -> npt.NDArray[np.float64]:
    """Return how many values each bucket should have."""
    return np.maximum(key_runs.ROWS_OF_BUCKET, np.sqrt(_sums(group, sizes, groups)))[group]


def _parts(sizes: Int64s, wanted: npt.NDArray[np.float64]) -> Int64s:
    """Return into how many buckets each is divided."""
    return np.where(sizes > 2 * wanted, np.ceil(sizes / wanted), 1).astype(np.int64)


def _joined(old: Buckets, changed: Int64s, groups: int, around: BucketsAround | None) -> tuple[Buckets, Int64s]:
    """Return the buckets with those to read, and for each the position of the one that it becomes part of.

    One that changes and has few values becomes part of the one before. Those without a stored size are always read.
    """
    touched = np.bincount(changed, minlength=len(old.group)) > 0
    first = np.diff(old.group, prepend=-1) != 0
    joins = touched & ~first & (4 * old.size < _wanted(old.size, old.group, groups))
    read = old.read | touched | joins | (True if around is None else around(old, changed))
    read[:-1] |= joins[1:]
    return old._replace(read=read), np.cumsum(~joins) - 1


def rows_around(margin: int) -> BucketsAround:
    """Return the choice of the buckets with a row that has fewer rows than the margin between it and a change."""

    def near(old: Buckets, changed: Int64s) -> Mask:
        size, at = len(old.group), np.arange(len(old.group))
        touched = np.bincount(changed, minlength=size) > 0
        copies = np.where(touched, 0, old.copies)
        before = np.cumsum(copies) - copies
        left = np.maximum.accumulate(np.where(touched, at, -1))
        right = np.minimum.accumulate(np.where(touched, at, size)[::-1])[::-1]
        has_left = left >= np.searchsorted(old.group, old.group)
        has_right = right < np.searchsorted(old.group, old.group, side="right")
        since = before - before[np.maximum(left, 0)]
        until = before[np.minimum(right, size - 1)] - before - copies
        return (has_left & (since < margin)) | (has_right & (until < margin))

    return near


def groups_of(rows: pl.DataFrame, by: list[str]) -> tuple[Points, Int64s]:
    """Return the groups of rows, each at one time, and the group of each row."""
    groups = numbered(rows, by)
    count = len(groups.first)
    keys = rows[by][groups.first] if by else pl.DataFrame({_SIZE: [0]}).select([])
    numbers = key_numbers(keys, by) if by else np.zeros(count, dtype=np.int64)
    return Points(Steps(np.arange(count), np.zeros(count, dtype=np.int64), []), keys, numbers), groups.ids


def _unused(old: Buckets, heads: Buckets, most: Int64s, groups: int) -> Buckets:
    """Return as many buckets with unused numbers as those with at most so many values may need, by group."""
    parts = np.where(heads.read, _parts(most, _wanted(np.zeros_like(most), heads.group, groups)), 1)
    needed = _sums(heads.group, parts - 1, groups)
    used = np.bincount(old.group, minlength=groups)
    group, number = expanded(np.zeros_like(needed), np.where(needed > 0, needed + used, 0))
    free = ~np.isin(pairs(group, number), pairs(old.group, old.number))
    group, number = group[free], number[free]
    some = np.arange(len(group)) - np.searchsorted(group, group) < needed[group]
    group, number = group[some], number[some]
    return Buckets(group, number, np.zeros_like(group), np.zeros_like(group), np.ones(len(group), dtype=np.bool_))


def _divided(
    heads: Buckets, more: Buckets, values: _Values, groups: int, counted: Mask, kept: Mask
) -> tuple[Buckets, _Values]:
    """Divide buckets that have too many values."""
    of = values.bucket
    sizes = np.where(heads.read, np.bincount(of, minlength=len(heads.group)), heads.size)
    parts = np.where(heads.read, _parts(sizes, _wanted(sizes, heads.group, groups)), 1)
    begins = np.cumsum(parts) - parts
    rank = np.arange(len(of)) - np.searchsorted(of, of)
    of = begins[of] + rank * parts[of] // sizes[of]
    found = heads.at(np.repeat(np.arange(len(parts)), parts))
    new = np.arange(len(found.group)) != np.repeat(begins, parts)
    group = found.group[new]
    nth = np.arange(len(group)) - np.searchsorted(group, group)
    found.number[new] = more.number[np.searchsorted(more.group, group) + nth]
    weights = values.steps.values[0][values.steps.lasts] * kept
    size = np.where(found.read, np.bincount(of[weights != 0], minlength=len(found.group)), found.size)
    copies = np.where(found.read, _sums(of, weights * counted, len(found.group)), found.copies)
    return found._replace(size=size, copies=copies), values._replace(bucket=of)


def _at_ranks(rows: Steps, group_of: Int64s, points: Steps, at: Int64s, ranks: Int64s) -> tuple[Int64s, Int64s]:
    """Return the row with a rank at each of some change points, and the rank among its copies."""
    found, rest = np.zeros_like(at), np.zeros_like(at)
    for part in live(rows, group_of, points):
        mine = np.flatnonzero((at >= part.begin) & (at < part.end))
        by = np.argsort(part.positions, kind="stable")
        ends = np.cumsum(part.weights[by])
        begins = np.searchsorted(part.positions[by], at[mine])
        rank = np.append(0, ends)[begins] + ranks[mine]
        which = np.searchsorted(ends, rank, side="right")
        found[mine] = part.ids[by][which]
        rest[mine] = rank - np.append(0, ends)[which]
    return found, rest
