"""ASOF joins: each row of the left with the nearest row of the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ..aggregates.parts import sort_keys
from .arrangement import OperatorState
from .join import JoinOperator, JoinRows
from .operator import Evaluable
from .ordered_rows import row_ranks
from .zsets import OLD, TIME, WEIGHT, Span, cumulated, delta_frame, expanded, int64s, numbered, places_among

_MOST = 1 << 22


class AsOfJoin(JoinOperator):
    """A join that keeps the nearest partner of each left row (see :class:`~.plan.nodes.AsOf`).

    The right rows of a key have places in the order of their values. A left row's match is the last row that is there
    at or before the place where its own value belongs. A step reads the rows of the keys that change, and looks for
    matches at the times at which a left row itself changes, or a right row nearer than all that stay does.
    State: the rows of both inputs by the key.
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
        static: tuple[bool, bool] = (False, False),
        within: tuple[Sequence[str] | None, Sequence[str] | None] = (None, None),
    ) -> None:
        super().__init__(schema, left, right, "inner", on, None, state, static, (None, None), within)
        self._outer = outer
        self._function, *self._compared = by

    def _joined(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        left_changes, null, left_touched = self._left.split(inputs[0])
        right_changes, _, right_touched = self._right.split(inputs[1])
        touched = np.concatenate([left_touched, right_touched])
        left = self._left.read(left_changes, left_touched, touched)
        right = self._right.read(right_changes, right_touched, touched)
        places = self._places(left, right)
        matches = _net(left, right, places, span) if span.net else _at_each_time(left, right, places)
        for kept, side in ((self._left, left), (self._right, right)):
            self._keep(kept, side, side.matches, span.until)
        return self._moved(left, right, matches, null)

    def _places(self, left: JoinRows, right: JoinRows) -> _RightPlaces:
        size = left.rows.height
        keys = pl.concat([left.keys, right.keys])
        groups = numbered(keys, keys.columns).ids if keys.width else np.zeros(size + right.rows.height, dtype=np.int64)
        one, two = self._compared
        values = pl.concat([one.series(left.rows, "value"), two.series(right.rows, "value")])
        known = values.is_not_null().to_numpy()
        codes = np.zeros(len(values), dtype=np.int64)
        codes[known] = sort_keys(values.drop_nulls().to_arrow(compat_level=pl.CompatLevel.oldest()))
        if self._function in {"le", "lt"}:
            codes = ~codes  # the reverse order
        rows = np.flatnonzero(known[size:])
        every = right.rows.columns
        ties = row_ranks(right.rows, every, [False] * len(every), [False] * len(every))
        rows = rows[np.lexsort((-ties[rows], codes[size + rows], groups[size + rows]))]
        group, code = groups[size + rows], codes[size + rows]
        among = places_among(groups[:size], codes[:size], group, code, after=self._function in {"ge", "le"})
        first = np.searchsorted(group, groups[:size])
        return _RightPlaces(rows, group, groups[:size], first, np.where(known[:size], among, first) - 1)

    def _moved(self, left: JoinRows, right: JoinRows, matches: _LeftMatches, null: pl.DataFrame) -> pl.DataFrame:
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
            alone = delta_frame(left.rows[rows[~met]], times[~met], counts[~met])
            found.append(self._with_nulls(self._left, alone, null))
        return pl.concat(found)


class _RightPlaces(NamedTuple):
    """The order of the right rows with a value: by key, then from the farthest to the nearest."""

    rows: Int64s  # By place: the right row.
    groups: Int64s  # By place: its key.
    group: Int64s  # By left row: its key.
    first: Int64s  # By left row: the first place of its key.
    last: Int64s  # By left row: the last place where a match can be; before the first if there is none.

    def nearest(self, there: Int64s) -> Int64s:
        """Return each left row's place of the nearest of some right rows, by place; -1 if there is none."""
        last = np.maximum.accumulate(np.where(there > 0, np.arange(len(there)), -1))
        found = np.append(last, -1)[self.last]
        return np.where(found >= self.first, found, -1)

    def rows_at(self, places: Int64s) -> Int64s:
        return np.append(self.rows, -1)[places]


class _LeftMatches(NamedTuple):
    """Left rows with their matches, from a time until the row's next one."""

    left: Int64s
    times: Int64s
    weights: Int64s  # The left row's.
    right: Int64s  # -1 for none


def _net(left: JoinRows, right: JoinRows, places: _RightPlaces, span: Span) -> _LeftMatches:
    """Return the matches before the step, and after it."""
    size = left.rows.height
    found = [places.rows_at(places.nearest(each[places.rows])) for each in (right.before, right.after)]
    return _LeftMatches(
        np.repeat(np.arange(size), 2),
        np.tile([OLD, span.until - 1], size),
        np.stack([left.before, left.after], axis=1).ravel(),
        np.stack(found, axis=1).ravel(),
    )


def _at_each_time(left: JoinRows, right: JoinRows, places: _RightPlaces) -> _LeftMatches:
    moments = np.unique(np.concatenate([[OLD], left.times, right.times]))
    size = 1 << len(moments).bit_length()  # so that a row that is there at all times has one node
    own = cumulated(*(int64s(left.events, name) for name in ("__row", TIME, WEIGHT)))
    own_at = own.ids * size + np.searchsorted(moments, own.times)
    begins, ends = own_at[own.firsts] % size, np.where(left.after > 0, size, own_at[own.lasts] % size)
    asked = np.unique(np.concatenate([own_at, *_nearer(right, places, begins, ends, moments, size)]))
    row, moment = asked // size, asked % size
    weights = own.values[0][np.searchsorted(own_at, asked, side="right") - 1]
    found = np.full(len(asked), -1)
    place_of = np.full(right.rows.height, -1)
    place_of[places.rows] = np.arange(len(places.rows))
    for level, nodes in enumerate(_nodes(right, place_of, moments, size)):
        if len(nodes):
            node = moment >> level
            at = nodes[np.searchsorted(nodes, node * len(place_of) + places.last[row], side="right") - 1]
            mine = (at // len(place_of) == node) & (at % len(place_of) <= places.last[row])
            found = np.maximum(found, np.where(mine, at % len(place_of), -1))
    found = np.where(found >= places.first[row], found, -1)
    return _LeftMatches(row, moments[moment], weights, places.rows_at(found))


def _nearer(
    right: JoinRows, places: _RightPlaces, begins: Int64s, ends: Int64s, moments: Int64s, size: int
) -> Iterator[Int64s]:
    """Yield when right rows change that may become or be the match of a left row that is there."""
    place_of = np.full(right.rows.height, -1)
    place_of[places.rows] = np.arange(len(places.rows))
    places_of, at = place_of[right.changed], np.searchsorted(moments, right.times)
    places_of, at = places_of[places_of >= 0], at[places_of >= 0]
    stays = (right.before > 0) & ~right.changes
    low = np.maximum(places.nearest(stays[places.rows].astype(np.int64)) + 1, places.first)
    count = len(place_of)
    for level, (rows, nodes) in enumerate(_intervals(begins + 1, ends)):
        keys = (at >> level) * count + places_of
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


def _nodes(right: JoinRows, place_of: Int64s, moments: Int64s, size: int) -> Iterator[Int64s]:
    """Yield, for intervals of 1, 2, 4, … moments, the places of the rows that are there for the whole interval.

    Each row is there at a moment in just one of the intervals that contain it.
    """
    steps = cumulated(*(int64s(right.events, name) for name in ("__row", TIME, WEIGHT)))
    begin = np.searchsorted(moments, steps.times)
    end = np.where(steps.lasts, size, np.append(begin[1:], 0))
    there = (steps.values[0] > 0) & (place_of[steps.ids] >= 0)
    place = place_of[steps.ids[there]]
    for ranges, nodes in _intervals(begin[there], end[there]):
        yield np.sort(nodes * len(place_of) + place[ranges])
