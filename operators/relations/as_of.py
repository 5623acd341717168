"""ASOF joins: each row of the left with the nearest row of the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s, Mask
from ..aggregates.parts import sort_keys
from .arrangement import OperatorState
from .operator import Evaluable, Operator, check_keys, with_columns
from .ordered_rows import row_ranks
from .ordered_values import ROWS_OF_ONE, Buckets, BucketsAround, OrderedBuckets, groups_of
from .zsets import OLD, WEIGHT, Span, Steps, columns_of, delta_frame, expanded, numbered

_MOST = 1 << 22
_RIGHT, _VALUE = "__right", "__value"


class AsOfJoin(Operator):
    """A join that keeps the nearest partner of each left row (see :class:`~.plan.nodes.AsOf`).

    The rows of both sides are in one order, by key and value: a left row's match is the last right row before it. A
    step reads the rows that change, and the right rows before them. If a right row changes, it also reads the left rows
    up to the next one. It looks for matches at the times of a changed left row, and of a right row nearer than all that
    stay.
    State: the rows of both inputs in this order, in buckets; nothing of the left if the right never changes. Rows with
    a null in their key or value have no partner and are not kept. Only whether a left one has come is kept.
    """

    def __init__(
        self,
        schema: pa.Schema,
        left: pa.Schema,
        right: pa.Schema,
        outer: bool,  # left rows without a partner stay
        on: Sequence[tuple[Evaluable, Evaluable]],
        by: tuple[str, Evaluable, Evaluable],  # a comparison, and a value of each side
        state: OperatorState,
        static: tuple[bool, bool] = (False, False),  # a side changes in the first step only
    ) -> None:
        super().__init__(schema)
        check_keys(on)
        self._outer, self._values = outer, state.values
        self._function, *compared = by
        self._sides = [
            [*((f"__by{number}", pair[at]) for number, pair in enumerate(on)), (_VALUE, compared[at])] for at in (0, 1)
        ]
        self._columns = left.names, right.names
        self._by = [name for name, _ in self._sides[0][:-1]]
        keys = pa.schema([pa.field(name, each.type) for name, each in self._sides[0][:-1]])
        columns = pa.schema([pa.field(_RIGHT, pa.bool_()), pa.field(_VALUE, compared[0].type), *left, *right])
        self._lacks_left = static[1]
        self._rows = OrderedBuckets(
            keys, columns, "rows", self._codes, state, counted=_RIGHT, kept=_RIGHT if static[1] else None
        )

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (left, alone), (right, _) = (self._split(each, at) for at, each in enumerate(inputs))
        found: list[pl.DataFrame] = []
        if self._outer and alone.height:
            self._values["nulls"] = True
            found.append(self._padded(alone))
        rows = pl.concat([left, right], how="diagonal")
        if rows.height:
            found += self._matched(rows, span)
        return pl.concat(found) if found else self.nothing

    def kept(self) -> Sequence[pl.DataFrame | None]:
        rows = self._rows.all()
        left, right = (
            rows.filter(pl.col(_RIGHT) == bool(at)).select(*names, WEIGHT) for at, names in enumerate(self._columns)
        )
        return [None if self._lacks_left or self._values.get("nulls") else left, right]

    def _split(self, changes: pl.DataFrame, side: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the changes with key, value and side, and those that have no partner, as they lack one of them."""
        computed = with_columns(changes, self._sides[side]).with_columns(pl.lit(bool(side)).alias(_RIGHT))
        names = [name for name, _ in self._sides[side]]
        there = computed.select(pl.all_horizontal(pl.col(name).is_not_null() for name in names)).to_series()
        return computed.filter(there), changes.filter(~there)

    def _codes(self, rows: pl.DataFrame) -> Int64s:
        """Return numbers in the order of rows, equal for equal ones."""
        distinct = numbered(rows, rows.columns)
        first = rows[distinct.first]
        values = sort_keys(first.get_column(_VALUE).to_arrow(compat_level=pl.CompatLevel.oldest()))
        right = first.get_column(_RIGHT).to_numpy()
        ties = np.empty(len(right), dtype=np.int64)
        for side, names in enumerate(self._columns):
            mine = np.flatnonzero(right == bool(side))
            ranks = row_ranks(first[mine].select(names), names, [False] * len(names), [False] * len(names))
            ties[mine] = -ranks if side else ranks  # of equal right rows, the first one is the nearest
        values = ~values if self._function in {"le", "lt"} else values
        last = right != (self._function in {"ge", "le"})
        codes = np.empty(len(ties), dtype=np.int64)
        codes[np.lexsort((ties, last, values))] = np.arange(len(ties))
        return codes[distinct.ids]

    def _matched(self, rows: pl.DataFrame, span: Span) -> list[pl.DataFrame]:
        points, group = groups_of(rows, self._by)
        before = np.full(points.groups, ROWS_OF_ONE)
        around = _around(rows.get_column(_RIGHT).to_numpy())
        buckets, values = self._rows.advance(points, rows, group, before, around)
        right = values.values.get_column(_RIGHT).to_numpy()
        # Matches are in one part of the order: no right row is between the buckets that were read.
        apart = np.cumsum(~buckets.read & (buckets.copies > 0))
        part = np.cumsum((np.diff(buckets.group, prepend=-1) != 0) | (np.diff(apart, prepend=0) != 0))[values.bucket]
        one, two = (
            _Side.of(values.values.select(names), values.steps, mask)
            for names, mask in zip(self._columns, (~right, right), strict=True)
        )
        first = np.searchsorted(part[right], part[~right])
        places = _RightPlaces(first, np.cumsum(right)[~right] - 1)
        return self._moved(one, two, _net(one, two, places, span) if span.net else _at_each_time(one, two, places))

    def _moved(self, left: _Side, right: _Side, matches: _LeftMatches) -> list[pl.DataFrame]:
        """Return the changes of the matches, which are in the order of the left rows and times."""
        again = np.diff(matches.left, prepend=-1) == 0
        before = np.where(again, np.roll(matches.right, 1), -1)
        weights = np.where(again, np.roll(matches.weights, 1), 0)
        same = before == matches.right
        counts = np.append(matches.weights - np.where(same, weights, 0), np.where(same, 0, -weights))
        some = np.flatnonzero((np.tile(matches.times, 2) != OLD) & (counts != 0))
        rows, times = np.tile(matches.left, 2)[some], np.tile(matches.times, 2)[some]
        others, counts = np.append(matches.right, before)[some], counts[some]
        met = others >= 0
        one = left.rows[rows[met]].hstack(right.rows[others[met]].get_columns())
        found = [delta_frame(one, times[met], counts[met])]
        if self._outer:
            found.append(self._padded(delta_frame(left.rows[rows[~met]], times[~met], counts[~met])))
        return found

    def _padded(self, left: pl.DataFrame) -> pl.DataFrame:
        """Return left rows with nulls for a partner."""
        missing = [name for name in self.dtypes if name not in columns_of(left)]
        left = left.with_columns(pl.lit(None, self.dtypes[name]).alias(name) for name in missing)
        return left[self.nothing.columns]


def _around(right: Mask) -> BucketsAround:
    """Return the choice of buckets to read, given which of the rows that change are right rows."""

    def chosen(old: Buckets, changed: Int64s) -> Mask:
        size, at = len(old.group), np.arange(len(old.group))
        touched, of_right = (np.bincount(each, minlength=size) > 0 for each in (changed, changed[right]))
        has = (old.copies > 0) & ~touched  # right rows that stay
        last = np.maximum.accumulate(np.where(has, at, -1))
        read = np.zeros(size, dtype=np.bool_)
        some = last[touched & (last >= np.searchsorted(old.group, old.group))]
        read[some] = True
        following = np.minimum.accumulate(np.where(has, at, size)[::-1])[::-1]
        end = np.minimum(following, np.searchsorted(old.group, old.group, side="right") - 1)
        _, until = expanded(at[of_right], end[of_right] + 1)
        read[until] = True
        return read

    return chosen


class _Side(NamedTuple):
    """The rows of one side, in their order."""

    rows: pl.DataFrame
    steps: Steps  # By row: its count.
    before: Int64s  # By row: its count before the step.
    after: Int64s

    @classmethod
    def of(cls, rows: pl.DataFrame, steps: Steps, mask: Mask) -> _Side:
        mine = mask[steps.ids]
        ids = (np.cumsum(mask) - 1)[steps.ids[mine]]
        own = Steps(ids, steps.times[mine], [steps.values[0][mine]])
        before = np.where(own.times == OLD, own.values[0], 0)[own.firsts]
        return cls(rows.filter(pl.Series(mask)), own, before, own.values[0][own.lasts])

    @property
    def changed(self) -> tuple[Int64s, Int64s]:
        """The rows that change, and the times at which they do."""
        some = self.steps.times != OLD
        return self.steps.ids[some], self.steps.times[some]


class _RightPlaces(NamedTuple):
    """The right rows among which the match of each left row is: from the farthest to the nearest."""

    first: Int64s
    last: Int64s  # Before the first if there is none.

    def nearest(self, there: Mask) -> Int64s:
        """Return the nearest of some right rows to each left row; -1 if there is none."""
        last = np.maximum.accumulate(np.where(there, np.arange(len(there)), -1))
        found = np.append(last, -1)[self.last]
        return np.where(found >= self.first, found, -1)


class _LeftMatches(NamedTuple):
    """Left rows with their matches, from a time until the row's next one."""

    left: Int64s
    times: Int64s
    weights: Int64s  # The left row's.
    right: Int64s  # -1 for none


def _net(left: _Side, right: _Side, places: _RightPlaces, span: Span) -> _LeftMatches:
    """Return the matches before the step, and after it."""
    size = left.rows.height
    found = [places.nearest(each > 0) for each in (right.before, right.after)]
    return _LeftMatches(
        np.repeat(np.arange(size), 2),
        np.tile([OLD, span.until - 1], size),
        np.stack([left.before, left.after], axis=1).ravel(),
        np.stack(found, axis=1).ravel(),
    )


def _at_each_time(left: _Side, right: _Side, places: _RightPlaces) -> _LeftMatches:
    moments = np.unique(np.concatenate([[OLD], left.steps.times, right.steps.times]))
    size = 1 << len(moments).bit_length()  # so that a row that is there at all times has one node
    own, count = left.steps, right.rows.height
    own_at = own.ids * size + np.searchsorted(moments, own.times)
    begins, ends = own_at[own.firsts] % size, np.where(left.after > 0, size, own_at[own.lasts] % size)
    asked = np.unique(np.concatenate([own_at, *_nearer(right, places, begins, ends, moments, size)]))
    row, moment = asked // size, asked % size
    weights = own.values[0][np.searchsorted(own_at, asked, side="right") - 1]
    found = np.full(len(asked), -1)
    for level, nodes in enumerate(_nodes(right, moments, size)):
        if len(nodes):
            node = moment >> level
            at = nodes[np.searchsorted(nodes, node * count + places.last[row], side="right") - 1]
            mine = (at // count == node) & (at % count <= places.last[row])
            found = np.maximum(found, np.where(mine, at % count, -1))
    found = np.where(found >= places.first[row], found, -1)
    return _LeftMatches(row, moments[moment], weights, found)


def _nearer(
    right: _Side, places: _RightPlaces, begins: Int64s, ends: Int64s, moments: Int64s, size: int
) -> Iterator[Int64s]:
    """Yield when right rows change that may become or be the match of a left row that is there."""
    changed, times = right.changed
    at, count = np.searchsorted(moments, times), right.rows.height
    stays = right.before > 0
    stays[changed] = False
    low = np.maximum(places.nearest(stays) + 1, places.first)
    for level, (rows, nodes) in enumerate(_intervals(begins + 1, ends)):
        keys = (at >> level) * count + changed
        order = np.argsort(keys)
        begin = np.searchsorted(keys[order], nodes * count + low[rows])
        end = np.maximum(np.searchsorted(keys[order], nodes * count + places.last[rows], side="right"), begin)
        total = np.cumsum(end - begin)
        cuts = np.searchsorted(total, np.arange(_MOST, total[-1] if len(total) else 0, _MOST))
        for part in np.split(np.arange(len(rows)), cuts):
            which, event = expanded(begin[part], end[part])
            yield np.unique(rows[part[which]] * size + at[order[event]])


def _intervals(begin: Int64s, end: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """Divide ranges into intervals of 1, 2, 4, … numbers: yield, for each length, ranges and the intervals' numbers."""
    ranges = np.arange(len(begin))
    while len(ranges):
        first = (begin % 2 > 0) & (begin < end)
        begin = begin + first
        last = (end % 2 > 0) & (begin < end)
        end = end - last
        yield np.append(ranges[first], ranges[last]), np.append(begin[first] - 1, end[last])
        more = begin < end
        ranges, begin, end = ranges[more], begin[more] >> 1, end[more] >> 1


def _nodes(right: _Side, moments: Int64s, size: int) -> Iterator[Int64s]:
    """Yield, for intervals of 1, 2, 4, … moments, the places of the rows that are there for the whole interval.

    Each row is there at a moment in just one of the intervals that contain it.
    """
    steps = right.steps
    begin = np.searchsorted(moments, steps.times)
    end = np.where(steps.lasts, size, np.append(begin[1:], 0))
    there = steps.values[0] > 0
    for ranges, nodes in _intervals(begin[there], end[there]):
        yield np.sort(nodes * right.rows.height + steps.ids[there][ranges])
