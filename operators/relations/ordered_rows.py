"""Operators on the rows of each partition in an order: the first n, and window functions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s, Mask
from ..aggregates.parts import ranks
from .arrangement import OperatorState
from .operator import Evaluable, Operator, with_columns
from .ordered_values import ROWS_OF_ONE, OrderedBuckets, groups_of, rows_around
from .zsets import (
    OLD,
    TIME,
    WEIGHT,
    Live,
    Span,
    Steps,
    consolidated,
    cumulated,
    delta_frame,
    int64s,
    key_numbers,
    live,
    numbered,
)

Ordered = tuple[Evaluable, bool, bool]
"""A key of an order: the expression, descending, and nulls first."""

ROW = "__row"


def row_ranks(rows: pl.DataFrame, by: list[str], descending: list[bool], nulls_last: list[bool]) -> Int64s:
    """Return each row's place in an order."""
    rank = np.empty(rows.height, dtype=np.int64)
    rows = rows.with_columns(_order_of(rows.get_column(name)) for name in by if rows.schema[name].is_nested())
    placed = rows.with_row_index(ROW).sort(by, descending=descending, nulls_last=nulls_last)
    rank[placed.get_column(ROW).to_numpy()] = np.arange(rows.height)
    return rank


def _order_of(column: pl.Series) -> pl.Series:
    """Return numbers in the order of arrays or structs, which Polars orders in another way than Spark."""
    codes = pl.Series(column.name, ranks(column.to_arrow(compat_level=pl.CompatLevel.oldest())))
    return codes.set(codes == 0, None)


class RowOrder(NamedTuple):
    """The distinct rows of some partitions, and their counts at each change point of the step."""

    rows: pl.DataFrame  # With the columns of the order.
    rank: Int64s  # By row: its place in the order of all.
    steps: Steps  # By row: its count.
    points: Steps  # The change points of each partition.
    partition: Int64s  # By row.

    def there(self) -> Iterator[Live]:
        """Yield the rows at each change point, in order."""
        for part in live(self.steps, self.partition, self.points):
            order = np.lexsort((self.rank[part.ids], part.positions))
            yield part._replace(ids=part.ids[order], positions=part.positions[order], weights=part.weights[order])

    def moved(self, there: pl.DataFrame, positions: Int64s, weights: Int64s) -> pl.DataFrame:
        """Return the changes of rows that are there at some change points alone; :data:`ROW` is their number."""
        # Each leaves at the partition's next change point, and comes again there if it still is as it was.
        leaves = np.flatnonzero(~self.points.lasts[positions])
        came = there.with_columns(pl.Series(TIME, self.points.times[positions]), pl.Series(WEIGHT, weights))
        left = there[leaves].with_columns(
            pl.Series(TIME, self.points.times[positions[leaves] + 1]), pl.Series(WEIGHT, -weights[leaves])
        )
        return consolidated(pl.concat([came, left]).filter(pl.col(TIME) != OLD))


class OrderedRows(Operator):
    """An operator on the rows of each partition in an order. Ties are in the order of all columns, nulls first.

    With a ``margin``, a result depends on at most that many rows before and after its row. A step reads the rows near
    those that change. Without it, a step reads all rows of the partitions that change. State: all rows of each
    partition.
    """

    def __init__(
        self,
        schema: pa.Schema,
        source: pa.Schema,
        order: Sequence[Ordered],
        by: Sequence[Evaluable],
        state: OperatorState,
        margin: int | None = None,
    ) -> None:
        super().__init__(schema)
        self._columns = source.names
        self._by = [(f"__by{number}", each) for number, each in enumerate(by)]
        self._order = [(f"__order{number}", each) for number, (each, _, _) in enumerate(order)]
        self._sort = [*(name for name, _ in self._order), *source.names]
        self._descending = [*(descending for _, descending, _ in order), *(False for _ in source.names)]
        self._nulls_last = [*(not first for _, _, first in order), *(False for _ in source.names)]
        self._margin, self._near = margin, None
        if margin is not None:
            keys = pa.schema([pa.field(name, each.type) for name, each in self._by])
            self._near = OrderedBuckets(keys, source, "rows", self._codes, state)
        else:
            self._kept = state.arrangement("rows", source.append(pa.field(WEIGHT, pa.int64())), source.names)

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (changes,) = inputs
        if changes.height == 0:
            return self.nothing
        if self._near is not None:
            return self._step_near(self._near, changes)
        by, columns = [name for name, _ in self._by], self._columns
        numbers = key_numbers(with_columns(changes, self._by), by)
        old = self._kept.read(numbers).with_columns(pl.lit(OLD).alias(TIME))
        together = pl.concat([changes, old.select(changes.columns)])
        rows = numbered(together, columns)
        distinct = together.select(columns)[rows.first]
        keyed = with_columns(distinct, self._by)
        steps = cumulated(rows.ids, int64s(together, TIME), int64s(together, WEIGHT))
        partition = numbered(keyed, by).ids
        points = cumulated(partition[steps.ids], steps.times, np.zeros(len(steps.ids), dtype=np.int64))
        ordered = with_columns(distinct, self._order)
        rank = row_ranks(ordered, self._sort, self._descending, self._nulls_last)
        found, needed = self._changes(RowOrder(ordered, rank, steps, points, partition))
        changed = ~needed
        changed[rows.ids[: changes.height]] = True
        last = steps.lasts & (steps.values[0] != 0) & (changed & needed)[steps.ids]
        kept = keyed[steps.ids[last]].with_columns(pl.Series(WEIGHT, steps.values[0][last]))
        replaced = changed[rows.ids[changes.height :]]
        self._kept.write(kept.select(*columns, WEIGHT), key_numbers(kept, by), replaced)
        return found

    def _step_near(self, kept: OrderedBuckets, changes: pl.DataFrame) -> pl.DataFrame:
        """Read the rows near those that change alone."""
        keyed = with_columns(changes, self._by)
        points, group = groups_of(keyed, [name for name, _ in self._by])
        before = np.full(points.groups, ROWS_OF_ONE)
        buckets, values = kept.advance(points, keyed, group, before, rows_around(self._margin or 0))
        # Rows at the ends of a stretch lack others around them, before the step as after it.
        partition = buckets.stretches[values.bucket]
        times = cumulated(partition[values.steps.ids], values.steps.times, np.zeros_like(values.steps.ids))
        rows = with_columns(values.values, self._order)
        found, _ = self._changes(RowOrder(rows, np.arange(rows.height), values.steps, times, partition))
        return found

    def _codes(self, rows: pl.DataFrame) -> Int64s:
        """Return numbers in the order of rows, equal for equal ones."""
        distinct = numbered(rows, self._columns)
        first = with_columns(rows[self._columns][distinct.first], self._order)
        return row_ranks(first, self._sort, self._descending, self._nulls_last)[distinct.ids]

    @abstractmethod
    def _changes(self, rows: RowOrder) -> tuple[pl.DataFrame, Mask]:
        """Return the changes of the result, and the rows that later steps need."""

    def kept(self) -> Sequence[pl.DataFrame | None]:
        return [self._kept.read_all() if self._near is None else self._near.all()]


class TopRows(OrderedRows):
    """The first n rows of each group. If no row ever leaves (``stays``), the state is those alone."""

    def __init__(
        self,
        schema: pa.Schema,
        order: Sequence[Ordered],
        n: int,
        by: Sequence[Evaluable],
        state: OperatorState,
        *,
        stays: bool = False,
    ) -> None:
        super().__init__(schema, schema, order, by, state)
        self._n, self._stays = n, stays

    def _changes(self, rows: RowOrder) -> tuple[pl.DataFrame, Mask]:
        first = [self._first(each) for each in rows.there()]
        ids, positions, taken = (np.concatenate([part[at] for part in first]) for at in range(3))
        moved = rows.moved(pl.DataFrame({ROW: ids}), positions, taken)
        distinct = rows.rows.select(self._columns)
        needed = np.full(distinct.height, not self._stays)
        needed[ids[rows.points.lasts[positions]]] = True
        return delta_frame(distinct[int64s(moved, ROW)], int64s(moved, TIME), int64s(moved, WEIGHT)), needed

    def _first(self, part: Live) -> tuple[Int64s, Int64s, Int64s]:
        """Return the first rows at each change point: row, position and count."""
        ids, positions, weights = part.ids, part.positions, part.weights
        before = np.cumsum(weights) - weights
        begins = np.flatnonzero(np.diff(positions, prepend=-1) != 0)
        before -= np.repeat(before[begins], np.diff(np.append(begins, len(positions))))
        taken = np.clip(self._n - before, 0, weights)
        chosen = np.flatnonzero(taken)
        return ids[chosen], positions[chosen], taken[chosen]
