"""ORDER BY ... LIMIT n: the first rows of each group at each of its change points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from .numbers import key_numbers
from .operator import Computed, Operator, with_columns
from .state import State
from .zsets import OLD, TIME, WEIGHT, Live, Span, consolidated, cumulated, delta_frame, int64s, live, numbered

__all__ = ["Ordered", "TopRows"]

Ordered = tuple[Computed, bool, bool]
"""A key of an order: the expression, descending, and nulls first."""


class TopRows(Operator):
    """The first n rows of each group. Ties are in the order of all columns, nulls first.

    State: all rows of each group, since any may move up when others leave.
    """

    def __init__(
        self, schema: pa.Schema, order: Sequence[Ordered], n: int, by: Sequence[Computed], state: State
    ) -> None:
        super().__init__(schema)
        self._n = n
        self._by = [(f"__by{number}", each) for number, each in enumerate(by)]
        self._order = [(f"__order{number}", each) for number, (each, _, _) in enumerate(order)]
        ties = [name for name in schema.names if not pa.types.is_nested(schema.field(name).type)]
        self._sort = [name for name, _ in self._order] + ties
        self._descending = [descending for _, descending, _ in order] + [False] * len(ties)
        self._nulls_last = [not first for _, _, first in order] + [False] * len(ties)
        self._kept = state.arrangement("rows", schema.append(pa.field(WEIGHT, pa.int64())))

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (changes,) = inputs
        if changes.height == 0:
            return self.nothing
        by = [name for name, _ in self._by]
        columns = list(self.dtypes)
        numbers = key_numbers(with_columns(changes, self._by), by)
        old = self._kept.read(numbers).with_columns(pl.lit(OLD).alias(TIME))
        together = pl.concat([changes, old.select(changes.columns)])
        rows = numbered(together, columns)
        distinct = together.select(columns)[rows.first]
        keyed = with_columns(distinct, self._by)
        group_of = numbered(keyed, by).ids
        steps = cumulated(rows.ids, int64s(together, TIME), int64s(together, WEIGHT))
        last = steps.lasts & (steps.values[0] != 0)
        kept = keyed[steps.ids[last]].with_columns(pl.Series(WEIGHT, steps.values[0][last]))
        self._kept.write(kept.select(*columns, WEIGHT), key_numbers(kept, by))

        zeros = np.zeros(len(steps.ids), dtype=np.int64)
        points = cumulated(group_of[steps.ids], steps.times, zeros)
        rank = _ranks(with_columns(distinct, self._order), self._sort, self._descending, self._nulls_last)
        first = [self._first(each, rank) for each in live(steps, group_of, points)]
        ids, positions, taken = (np.concatenate([part[at] for part in first]) for at in range(3))
        # Each row leaves at the group's next change point, and comes again there if it is still among the first.
        leaves = np.flatnonzero(~points.lasts[positions])
        moved = pl.DataFrame(
            {
                "row": np.concatenate([ids, ids[leaves]]),
                TIME: np.concatenate([points.times[positions], points.times[positions[leaves] + 1]]),
                WEIGHT: np.concatenate([taken, -taken[leaves]]),
            }
        )
        moved = consolidated(moved.filter(pl.col(TIME) != OLD))
        return delta_frame(distinct[int64s(moved, "row")], int64s(moved, TIME), int64s(moved, WEIGHT))

    def _first(self, part: Live, rank: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Return the first rows at each change point: row, position and count."""
        order = np.lexsort((rank[part.ids], part.positions))
        ids, positions, weights = part.ids[order], part.positions[order], part.weights[order]
        before = np.cumsum(weights) - weights
        begins = np.flatnonzero(np.diff(positions, prepend=-1) != 0)
        before -= np.repeat(before[begins], np.diff(np.append(begins, len(positions))))
        taken = np.clip(self._n - before, 0, weights)
        chosen = np.flatnonzero(taken)
        return ids[chosen], positions[chosen], taken[chosen]

    def kept(self) -> Sequence[pl.DataFrame | None]:
        return [self._kept.read_all()]


def _ranks(rows: pl.DataFrame, columns: list[str], descending: list[bool], nulls_last: list[bool]) -> Int64s:
    position = "__position"
    if columns:
        rows = rows.with_row_index(position).sort(columns, descending=descending, nulls_last=nulls_last)
        order = rows.get_column(position).to_numpy()
    else:
        order = np.arange(rows.height)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank
