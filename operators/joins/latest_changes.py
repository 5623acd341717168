"""The changes of the results of a join of newest rows, when rows of either side change."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from .band import LEFT, RIGHT
from .key_runs import ranges
from .latest_plan import VERSION, LatestJoinPlan
from .latest_results import LatestResults, Rows
from .latest_side import ARRIVAL, NewestSide
from .matching import equal_keys
from .side import NUMBER

__all__ = ["LatestChanges"]

Mask = npt.NDArray[np.bool_]

_OF_ONE = 32
"""The low bits of a result's number, below the version of the side's row that decides first."""


class LatestChanges:
    """The changes of one batch of a shard; `turn` numbers the shard's batches from 1 on."""

    def __init__(
        self, plan: LatestJoinPlan, results: LatestResults, left: NewestSide, right: NewestSide, turn: int
    ) -> None:
        self._plan = plan
        self._results = results
        self._sides = (left, right)
        self._turn = turn

    def tables(self) -> Iterator[pa.Table]:
        """Yield results that are new or have changed, and tombstones of those that are gone."""
        plan = self._plan
        if plan.of is not None:
            yield from self._to_one(plan.of)
        elif plan.whole:
            yield from self._by_on()
        else:
            yield from self._pairs()
            for side in (LEFT, RIGHT):
                if plan.gives_alone(side):
                    yield from self._alone(side)

    def _pairs(self) -> Iterator[pa.Table]:
        """Yield the changes of pairs where a row of either side may have many partners.

        A pair's number is the sum of both versions, so any change of the pair, in any shard, increases it.
        """
        left, right = self._sides
        for one, two in ((left.new, right.now), (left.same, right.new)):
            at, other = self._matched(LEFT, one, two)
            if len(at):
                number = _versions(one, at) + _versions(two, other)
                yield self._results.given((one.take(pa.array(at)), two.take(pa.array(other))), number)
        # If both sides leave a pair, one more change follows, at the place where both have gone.
        for one, two, less in (
            (left.removed, right.now, 0),
            (left.now, right.removed, 0),
            (left.removed, right.removed, 1),
        ):
            at, other = self._matched(LEFT, one, two)
            if len(at):
                number = _versions(one, at) + _versions(two, other) - less
                # A row that is new was in no pair that could be left: its tombstone deletes nothing.
                yield self._results.tombstones((one.take(pa.array(at)), two.take(pa.array(other))), number)

    def _alone(self, side: int) -> Iterator[pa.Table]:
        """Yield the changes of a side's rows without a partner, beside those of pairs.

        The row's version orders these results, then the batch. When a row moves, the tombstone at its former place has
        the least number of the row's new version.
        """
        one, two = self._sides[side], self._sides[1 - side]
        before = pa.concat_tables([two.same, two.removed, two.new.filter(pa.array(~two.fresh))])
        met, had = self._meets(side, one.new, two.now), self._meets(side, one.new, before)
        for rows in (one.new.filter(pa.array(~met)), one.keyless):
            yield from self._one_alone(side, rows, self._turn)
        yield from self._one_alone(side, one.new.filter(pa.array(met & ~had & ~one.fresh)), self._turn, deleted=True)
        at, cause = self._causes(side, one.same, two.removed)
        lost = ~self._meets(side, one.same, two.now)[at]
        yield from self._one_alone(side, one.same.take(pa.array(at[lost])), self._turn, cause.filter(pa.array(lost)))
        at, cause = self._causes(side, one.same, two.new)
        found = ~self._meets(side, one.same, before)[at]
        rows, cause = one.same.take(pa.array(at[found])), cause.filter(pa.array(found))
        yield from self._one_alone(side, rows, self._turn, cause, deleted=True)
        left = one.removed.filter(pa.array(~self._meets(side, one.removed, before)))
        for rows in (left, one.keyless_left):
            yield from self._one_alone(side, rows, 0, deleted=True)

    def _one_alone(
        self, side: int, rows: pa.Table, turn: int, cause: pa.Table | None = None, *, deleted: bool = False
    ) -> Iterator[pa.Table]:
        if rows.num_rows:
            number = (_numbers(rows, VERSION) << _OF_ONE) + turn
            make = self._results.tombstones if deleted else self._results.given
            yield make(_both(side, rows, None), number, cause)

    def _by_on(self) -> Iterator[pa.Table]:
        """Yield the changes where each side has at most one row for each value of `on`, which stays in its shard.

        Each value then has one result, and the number of the batch orders its changes.
        """
        left, right = self._sides
        for one, two in ((left.new, right.now), (left.same, right.new)):
            at, other = self._matched(LEFT, one, two)
            yield from self._in_turn((one.take(pa.array(at)), two.take(pa.array(other))))
        for side in (LEFT, RIGHT):
            one, two = self._sides[side], self._sides[1 - side]
            alone = one.new.filter(pa.array(~self._meets(side, one.new, two.now)))
            yield from self._in_turn(_both(side, alone, None))
            at, cause = self._causes(side, one.same, two.removed)
            yield from self._in_turn(_both(side, one.same.take(pa.array(at)), None), cause)
            over = ~self._meets(side, one.removed, two.now)
            if side == RIGHT:
                over &= ~self._meets(side, one.removed, two.removed)
            yield from self._in_turn(_both(side, one.removed.filter(pa.array(over)), None), deleted=True)

    def _in_turn(self, rows: Rows, cause: pa.Table | None = None, *, deleted: bool = False) -> Iterator[pa.Table]:
        n = next(table.num_rows for table in rows if table is not None)
        if n:
            make = self._results.tombstones if deleted else self._results.given
            yield make(rows, np.full(n, self._turn, dtype=np.int64), cause)

    def _to_one(self, side: int) -> Iterator[pa.Table]:
        """Yield the changes where a row of one side has one partner at most.

        Results have this side's key, so its version orders them, then the other side's. A move needs no tombstone at
        the former place, since the result at the new place has a greater number.
        """
        one, two = self._sides[side], self._sides[1 - side]
        met = np.zeros(one.same.num_rows, dtype=np.bool_)
        at, other = self._matched(side, one.same, two.new)
        met[at] = True
        yield from self._with_partner(side, one.same, at, two.new, other)
        at, other = self._matched(side, one.same, two.removed)
        lost = ~met[at]
        gone = two.removed.take(pa.array(other[lost]))
        yield from self._without(side, one.same.take(pa.array(at[lost])), _numbers(gone, VERSION), gone)
        at, other = self._matched(side, one.new, two.now)
        yield from self._with_partner(side, one.new, at, two.now, other)
        alone = np.ones(one.new.num_rows, dtype=np.bool_)
        alone[at] = False
        for rows in (one.new.filter(pa.array(alone)), one.keyless):
            yield from self._without(side, rows, np.zeros(rows.num_rows, dtype=np.int64))
        if one.gone.num_rows:
            number = _numbers(one.gone, VERSION) << _OF_ONE
            yield self._results.tombstones(_both(side, one.gone, None), number)

    def _with_partner(self, side: int, one: pa.Table, at: Int64s, two: pa.Table, other: Int64s) -> Iterator[pa.Table]:
        if len(at):
            number = (_versions(one, at) << _OF_ONE) + _versions(two, other)
            yield self._results.given(_both(side, one.take(pa.array(at)), two.take(pa.array(other))), number)

    def _without(self, side: int, rows: pa.Table, version: Int64s, cause: pa.Table | None = None) -> Iterator[pa.Table]:
        """Yield a side's rows without a partner, with nulls or as tombstones; `cause` has the partners that left."""
        if rows.num_rows:
            number = (_numbers(rows, VERSION) << _OF_ONE) + version
            make = self._results.given if self._plan.gives_alone(side) else self._results.tombstones
            yield make(_both(side, rows, None), number, cause)

    def _meets(self, side: int, one: pa.Table, two: pa.Table) -> Mask:
        """Return which rows of a side have the values of `on` of a row of the other side."""
        found = np.zeros(one.num_rows, dtype=np.bool_)
        found[self._matched(side, one, two)[0]] = True
        return found

    def _causes(self, side: int, one: pa.Table, two: pa.Table) -> tuple[Int64s, pa.Table]:
        """Return the positions of a side's rows that meet others, each once, and their latest partners."""
        at, other = self._matched(side, one, two)
        order = np.lexsort((_numbers(two, ARRIVAL)[other], at))
        at, other = at[order], other[order]
        last = np.ones(len(at), dtype=np.bool_)
        last[:-1] = at[1:] != at[:-1]
        return at[last], two.take(pa.array(other[last]))

    def _matched(self, side: int, one: pa.Table, two: pa.Table) -> tuple[Int64s, Int64s]:
        """Return the positions of rows of a side, and of others, with equal values of `on`."""
        if not one.num_rows or not two.num_rows:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        probes, numbers = one.column(NUMBER).to_numpy(), two.column(NUMBER).to_numpy()
        order = np.argsort(numbers, kind="stable")
        other, counts = ranges(numbers[order], probes, probes)
        at, other = np.repeat(np.arange(len(probes)), counts), order[other]
        if not self._plan.exact:
            sides = self._plan.sides
            same = equal_keys(one, sides[side].on, at, two, sides[1 - side].on, other)
            mask = same.to_numpy(zero_copy_only=False)
            at, other = at[mask], other[mask]
        return at, other


def _both(side: int, one: pa.Table, two: pa.Table | None) -> Rows:
    """Return rows of a side and of the other one in the order left, right."""
    return (one, two) if side == LEFT else (two, one)


def _versions(rows: pa.Table, at: Int64s) -> Int64s:
    return _numbers(rows, VERSION)[at]


def _numbers(rows: pa.Table, name: str) -> Int64s:
    return rows.column(name).to_numpy()
