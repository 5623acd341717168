"""The settings of a join as of a time, and the columns of its results."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Literal

import pyarrow as pa

from ...core.rows.system_column import SYSTEM
from .band import LEFT
from .plan import ROW_NUMBERS, JoinSide, OnLimit, ResultColumn, distance_text, limit_text, on_text, result_columns

__all__ = ["AsOfHow", "AsOfPlan"]

AsOfHow = Literal["inner", "left"]


@dataclasses.dataclass(frozen=True)
class AsOfPlan:
    """A join of each row of the left with the row of the right that is newest at its time.

    A checkpoint refuses another plan.
    """

    left: JoinSide
    right: JoinSide
    how: AsOfHow = "inner"
    tolerance: int | None = None  # the greatest age of the right's row, in units of the times; None for any age
    suffix: str = "_right"  # of the right's columns whose name the left has too
    unit_us: int | None = 1  # microseconds of one unit of the times; None if unknown
    shards: int = 1
    early: bool = False  # emit each row in the batch of its arrival, and revise it until its partner is final
    state_limit: int | None = None  # the most bytes of all shards together, of which each may keep its part
    on_limit: OnLimit = "fail"

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        return self.left, self.right

    @property
    def keeps(self) -> str:
        """The state and its lifetime, in words."""
        return (
            "rows of the left, until the watermark of the right has passed them; of the right the newest row of each "
            "key, and later ones"
        )

    def takes_whole(self, side: int) -> bool:
        """Return True: rows of both sides keep their whole system column."""
        del side
        return True

    @cached_property
    def columns(self) -> tuple[ResultColumn, ...]:
        return result_columns(self.sides, self.suffix, self.own_key)

    @property
    def own_key(self) -> tuple[str, ...]:
        """The number of the left's row, which completes the key of results that are revised."""
        return ROW_NUMBERS[:1] if self.early else ()

    @cached_property
    def schema(self) -> pa.Schema:
        fields: list[pa.Field] = []
        for each in self.columns:
            field = self.sides[each.side].schema.field(each.source).with_name(each.name)
            fields.append(field if each.side == LEFT and not self.early else field.with_nullable(True))
        fields += [pa.field(name, pa.int64()) for name in self.own_key]
        return pa.schema([*fields, self.left.schema.field(SYSTEM)])

    def identity(self) -> dict[str, str]:
        return {
            "as of": f"{self.left.time} and {self.right.time}",
            "on": on_text(self.sides),
            "tolerance": "" if self.tolerance is None else distance_text(self.tolerance, self.unit_us),
            "how": self.how,
            "shards": str(self.shards),
            "early": "yes" if self.early else "",
        }

    def changeable(self) -> dict[str, str]:
        return {} if self.state_limit is None else {"state limit": limit_text(self.state_limit, self.on_limit)}
