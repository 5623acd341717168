"""Window functions: ranks, other rows of the partition, and aggregates of the rows around each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Mask
from ..aggregates.algebra import Aggregates, combined_ranges, prefixes
from .arrangement import OperatorState
from .functions import AggregateCall, Columns
from .operator import Evaluable
from .ordered_rows import ROW, Ordered, OrderedRows, RowOrder
from .plan.aggregates import OTHER_ROWS
from .plan.nodes import Frame
from .zsets import (
    OLD,
    TIME,
    WEIGHT,
    Live,
    check_copies,
    consolidated,
    delta_frame,
    expanded,
    int64s,
    places_among,
    same_at,
    to_table,
)

_KEY = "__key"
_MOST_ROWS = 1 << 22


@dataclass(frozen=True)
class WindowCall:
    """A window function of a query."""

    call: AggregateCall  # An aggregate, a rank, or the value of another row.
    frame: Frame
    number: int


@dataclass(frozen=True)
class _Rows:
    """The copies of rows at each change point, in order: the rows of one point are adjacent."""

    ids: Int64s  # The row.
    positions: Int64s  # The change point.
    peer: Int64s  # By distinct row: equal for rows that are equal in the order.
    key: pl.Series | None  # By distinct row: its place on the line of a frame's distances, if the order has one key.
    descending: bool

    @cached_property
    def at(self) -> Int64s:
        return np.arange(len(self.ids))

    @cached_property
    def begins(self) -> Int64s:
        """The position of each row's partition."""
        return _since(self.positions)

    @cached_property
    def ends(self) -> Int64s:
        return _until(self.positions)

    @cached_property
    def peers(self) -> Int64s:
        """A number of each row's peers, in order."""
        peer = self.peer[self.ids]
        return np.cumsum((np.diff(self.positions, prepend=-1) != 0) | (np.diff(peer, prepend=-1) != 0))

    @cached_property
    def first_peers(self) -> Int64s:
        return _since(self.peers)

    @cached_property
    def last_peers(self) -> Int64s:
        """The position after each row's last peer."""
        return _until(self.peers)

    @property
    def sizes(self) -> Int64s:
        return self.ends - self.begins

    def range_of(self, frame: Frame) -> tuple[Int64s, Int64s]:
        """Return the half-open range of each row's frame."""
        if frame.kind == "rows":
            low = self.begins if frame.start is None else np.maximum(self.at + frame.start, self.begins)
            high = self.ends if frame.end is None else np.minimum(self.at + frame.end + 1, self.ends)
        else:
            low = self.begins if frame.start is None else self._reach(frame.start, after=False)
            high = self.ends if frame.end is None else self._reach(frame.end, after=True)
        low = np.minimum(low, self.ends)
        return low, np.maximum(high, low)

    def _reach(self, distance: int, *, after: bool) -> Int64s:
        """Return the position of the first row at the distance from each row, or the position after the last one."""
        found = (self.last_peers if after else self.first_peers).copy()
        if distance == 0 or self.key is None:
            return found
        key = self.key[self.ids]
        # Rows whose key is null are at no distance from others: their frame is that of their peers.
        known = np.flatnonzero(key.is_not_null().to_numpy())
        values, of = key[known].to_numpy().astype(np.int64), self.positions[known]
        values = -np.maximum(values, LOWEST + 1) if self.descending else values
        limit = (
            np.where(values > HIGHEST - distance, HIGHEST, values + distance)
            if distance > 0
            else (np.where(values < LOWEST - distance, LOWEST, values + distance))
        )
        places = places_among(of, limit, of, values, after=after)
        # Those of one point are adjacent among the known rows, as they are among all.
        found[known] = places - _since(of) + known[_since(of)]
        return found


def _since(numbers: Int64s) -> Int64s:
    """Return the position of the first of the equal adjacent numbers around each."""
    firsts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1) != 0)
    return np.repeat(firsts, np.diff(np.append(firsts, len(numbers))))


def _until(numbers: Int64s) -> Int64s:
    """Return the position after the last of the equal adjacent numbers around each."""
    firsts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 1) != 0)
    ends = np.append(firsts[1:], len(numbers))[: len(firsts)]
    return np.repeat(ends, ends - firsts)


def _row_number(rows: _Rows, _: int) -> np.typing.NDArray[np.generic]:
    return rows.at - rows.begins + 1


def _rank(rows: _Rows, _: int) -> np.typing.NDArray[np.generic]:
    return rows.first_peers - rows.begins + 1


def _dense_rank(rows: _Rows, _: int) -> np.typing.NDArray[np.generic]:
    return rows.peers - rows.peers[rows.begins] + 1


def _percent_rank(rows: _Rows, _: int) -> np.typing.NDArray[np.generic]:
    return (rows.first_peers - rows.begins) / np.maximum(rows.sizes - 1, 1)


def _cume_dist(rows: _Rows, _: int) -> np.typing.NDArray[np.generic]:
    return (rows.last_peers - rows.begins) / rows.sizes


def _ntile(rows: _Rows, buckets: int) -> np.typing.NDArray[np.generic]:
    at, least, larger = rows.at - rows.begins, rows.sizes // buckets, rows.sizes % buckets
    # The first buckets have a row more.
    within = at // (least + 1)
    return np.where(within < larger, within, larger + (at - larger * (least + 1)) // np.maximum(least, 1)) + 1


_RANKS = {
    "row_number": _row_number,
    "rank": _rank,
    "dense_rank": _dense_rank,
    "percent_rank": _percent_rank,
    "cume_dist": _cume_dist,
    "ntile": _ntile,
}


class WindowFunctionsOperator(OrderedRows):
    """The columns of a relation with those of window functions over one partition and order.

    If rows come in their order and stay, the state is as many of each partition as are read ``before`` a row.
    """

    def __init__(
        self,
        schema: pa.Schema,
        source: pa.Schema,
        order: Sequence[Ordered],
        by: Sequence[Evaluable],
        functions: Sequence[WindowCall],
        state: OperatorState,
        before: int | None = None,
    ) -> None:
        super().__init__(schema, source, order, by, state, _margin(functions) if before is None else None)
        self._functions, self._before = functions, before
        ranges = [each.frame for each in functions if each.frame.kind == "range"]
        self._line = order[0] if any(each.start or each.end for each in ranges) else None
        self._values = [
            (f"{each.call.name}_{place}", argument)
            for each in functions
            if each.call.function in OTHER_ROWS
            for place, argument in enumerate(each.call.arguments)
        ]
        calls: dict[Frame, list[AggregateCall]] = {}
        for each in functions:
            if each.call.function not in OTHER_ROWS and each.call.function not in _RANKS:
                calls.setdefault(each.frame, []).append(each.call)
        self._frames = [_FrameAggregates(frame, some, f"__frame{at}") for at, (frame, some) in enumerate(calls.items())]

    def _changes(self, rows: RowOrder) -> tuple[pl.DataFrame, Mask]:
        values = {name: each.series(rows.rows, name) for name, each in self._values}
        lifted = [each.lifted(rows.rows) for each in self._frames]
        peer = self._peers(rows)
        key, descending = None, False
        if self._line is not None:
            key = self._line[0].series(rows.rows, _KEY).to_physical().cast(pl.Int64)
            descending = self._line[1]
        if self._before is not None:
            return self._followed(rows, self._before, peer, values, lifted)
        found: list[pl.DataFrame] = []
        for part in rows.there():
            copied = _copied(part, peer, key, descending)
            results = self._results(copied, values, lifted)
            there = pl.DataFrame([pl.Series(ROW, copied.ids), *results])
            found.append(rows.moved(there, copied.positions, np.ones(len(copied.ids), dtype=np.int64)))
        moved = consolidated(pl.concat(found)) if len(found) > 1 else found[0]
        distinct = rows.rows.select(self._columns)[int64s(moved, ROW)]
        columns = [*distinct.get_columns(), *moved.drop(ROW, TIME, WEIGHT).get_columns()]
        needed = np.ones(rows.rows.height, dtype=np.bool_)
        return delta_frame(pl.DataFrame(columns), int64s(moved, TIME), int64s(moved, WEIGHT)), needed

    def kept(self) -> Sequence[pl.DataFrame | None]:
        return super().kept() if self._before is None else ()

    def _followed(
        self,
        rows: RowOrder,
        before: int,
        peer: Int64s,
        values: Mapping[str, pl.Series],
        lifted: Sequence[pa.Table],
    ) -> tuple[pl.DataFrame, Mask]:
        """Return the new rows, each at its time: no row comes before another, and none leaves."""
        steps, order = rows.steps, np.lexsort((rows.rank, rows.partition))
        times, counts = steps.times[steps.firsts], steps.values[0][steps.lasts]
        copied = _copied(Live(0, len(order), order, rows.partition[order], counts[order]), peer, None, False)
        results = pl.DataFrame(self._results(copied, values, lifted))
        new = np.flatnonzero(times[copied.ids] != OLD)
        distinct = rows.rows.select(self._columns)[copied.ids[new]]
        made = pl.DataFrame([*distinct.get_columns(), *results[new].get_columns()])
        needed = np.zeros(rows.rows.height, dtype=np.bool_)
        needed[copied.ids[copied.ends - copied.at <= before]] = True
        return consolidated(delta_frame(made, times[copied.ids[new]], 1)), needed

    def _peers(self, rows: RowOrder) -> Int64s:
        """Return a number of each row's peers."""
        order = np.argsort(rows.rank)
        differs = np.zeros(len(order), dtype=np.bool_)
        for name, _ in self._order:
            differs[1:] |= ~same_at(rows.rows.get_column(name), order[:-1], order[1:])
        peer = np.empty(len(order), dtype=np.int64)
        peer[order] = np.cumsum(differs)
        return peer

    def _results(self, rows: _Rows, values: Mapping[str, pl.Series], lifted: Sequence[pa.Table]) -> list[pl.Series]:
        found: dict[str, pl.Series] = {}
        for frame, state in zip(self._frames, lifted, strict=True):
            found |= frame.results(rows, state)
        for each in self._functions:
            name, function = each.call.name, each.call.function
            if function in _RANKS:
                found[name] = pl.Series(_RANKS[function](rows, each.number))
            elif function in OTHER_ROWS:
                given = [values[f"{name}_{place}"] for place in range(len(each.call.arguments))]
                found[name] = _value(each, rows, given)
        return [
            found[each.call.name].cast(self.dtypes[each.call.name]).alias(each.call.name) for each in self._functions
        ]


def _margin(functions: Sequence[WindowCall]) -> int | None:
    """Return how far a change is from a row that it changes, and that from the rows that it depends on, at most."""
    before, after = 0, 0
    for each in functions:
        start, end = each.frame.start, each.frame.end
        if each.call.function in {"lag", "lead"}:
            start, end = (-each.number, 0) if each.call.function == "lag" else (0, each.number)
        elif each.call.function in _RANKS or each.frame.kind == "range" or start is None or end is None:
            return None
        before, after = max(before, -start), max(after, end)
    return before + after


def _value(each: WindowCall, rows: _Rows, given: Sequence[pl.Series]) -> pl.Series:
    """Return the value of another row, such as the first of the frame."""
    function, number = each.call.function, each.number
    if function in {"lag", "lead"}:
        at = rows.at + (number if function == "lead" else -number)
        there = (at >= rows.begins) & (at < rows.ends)
    else:
        low, high = rows.range_of(each.frame)
        at = high - 1 if function == "last_value" else low + max(number - 1, 0)
        there = (at >= low) & (at < high)
    found = _gathered(given[0], rows.ids, at, there)
    return found if len(given) == 1 else found.zip_with(pl.Series(there), given[1][rows.ids])


def _gathered(values: pl.Series, ids: Int64s, at: Int64s, there: Mask) -> pl.Series:
    if not len(ids):
        return values[ids]
    which = pl.Series(ids[np.where(there, at, 0)]).set(pl.Series(~there), None)
    return values.gather(which)


class _FrameAggregates:
    """The aggregates over one frame."""

    def __init__(self, frame: Frame, calls: Sequence[AggregateCall], prefix: str) -> None:
        self._frame = frame
        self._columns = Columns(calls, [f"{prefix}_{number}" for number in range(len(calls))])
        found = {**self._columns.added, **self._columns.extremes}
        self._aggregates = Aggregates.of({each.name: found[each.name] for each in calls}, self._columns.schema)
        # A sum of doubles depends on the order in which they are added. To find it again in a later step, it is added
        # in an order that no row outside of the frame changes.
        sums = [each.arguments[0].type for each in calls if each.function in {"sum", "avg"}]
        self._rounds = any(map(pa.types.is_floating, sums))

    def lifted(self, rows: pl.DataFrame) -> pa.Table:
        """Return a state of each row."""
        table = to_table(self._columns.of(rows), self._columns.schema)
        return self._aggregates.lift(table, np.arange(rows.height), rows.height)

    def results(self, rows: _Rows, lifted: pa.Table) -> dict[str, pl.Series]:
        low, high = rows.range_of(self._frame)
        if not self._rounds:
            found = combined_ranges(self._aggregates, _taken(lifted, rows.ids), low, high)
        elif self._frame.start is None:
            found = self._reaching(_taken(lifted, rows.ids), rows.positions, np.where(low < high, high - 1, -1))
        elif self._frame.end is None:
            last = len(rows.ids) - 1
            state = _taken(lifted, rows.ids[::-1])
            found = self._reaching(state, rows.positions[::-1], np.where(low < high, last - low, -1))
        else:
            found = self._apart(lifted, rows.ids, low, high)
        lowered = pl.from_arrow(self._aggregates.lower(found))
        assert isinstance(lowered, pl.DataFrame)
        return {each.name: each for each in lowered.get_columns()}

    def _reaching(self, state: pa.Table, positions: Int64s, at: Int64s) -> pa.Table:
        """Return the state of the rows of a change point up to each position; that of no rows at -1."""
        reached = prefixes(self._aggregates, state, positions)
        both = pa.concat_tables([reached, self._aggregates.empty(1)])
        return _taken(both, np.where(at < 0, reached.num_rows, at))

    def _apart(self, lifted: pa.Table, ids: Int64s, low: Int64s, high: Int64s) -> pa.Table:
        """Return the state of each range, from its rows alone, in parts that limit memory."""
        sizes, begin, found = np.cumsum(high - low), 0, [self._aggregates.empty(0)]
        while begin < len(ids):
            before = sizes[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(sizes, before + _MOST_ROWS, side="right")))
            which, at = expanded(low[begin:end], high[begin:end])
            found.append(self._aggregates.combine(_taken(lifted, ids[at]), which, end - begin))
            begin = end
        return pa.concat_tables(found)


def _taken(state: pa.Table, at: Int64s) -> pa.Table:
    return state.take(pa.array(at)).combine_chunks()


def _copied(part: Live, peer: Int64s, key: pl.Series | None, descending: bool) -> _Rows:
    check_copies(part.weights)
    copies = np.repeat(np.arange(len(part.ids)), part.weights)
    return _Rows(part.ids[copies], part.positions[copies], peer, key, descending)
