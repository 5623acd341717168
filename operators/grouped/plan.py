"""The settings of aggregates over the newest row of each key, and the schema of their results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property

import pyarrow as pa

from ...core.rows.system_column import SYSTEM
from ..aggregates.algebra import Aggregates
from ..aggregates.functions import count
from ..aggregates.parts import Aggregate
from ..joins.latest_plan import LatestSide

__all__ = ["ROWS", "GroupPlan"]

ROWS = "__upstream_rows"
"""The aggregate that every plan adds: the number of keys in a group."""


@dataclasses.dataclass(frozen=True)
class GroupPlan:
    """Aggregates by group. A checkpoint rejects another plan."""

    side: LatestSide  # the input, whose `on` is the group
    aggregates: Mapping[str, Aggregate]
    shards: int

    @cached_property
    def algebra(self) -> Aggregates:
        return Aggregates.of(self.aggregates, self.side.schema)

    @cached_property
    def added(self) -> Aggregates:
        """The aggregates that can retract rows, and the number of rows."""
        return Aggregates.of({**self._which(differential=True), ROWS: count()}, self.side.schema)

    @cached_property
    def held(self) -> Aggregates | None:
        """The aggregates that need the values of each group; None if there are none."""
        found = self._which(differential=False)
        return Aggregates.of(found, self.side.schema) if found else None

    def _which(self, *, differential: bool) -> dict[str, Aggregate]:
        schema = self.side.schema
        return {
            name: each
            for name, each in self.aggregates.items()
            if Aggregates.of({name: each}, schema).differential == differential
        }

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of results, including the system column."""
        side = self.side
        return pa.schema(
            [
                *(side.schema.field(name) for name in side.on),
                *(field.with_nullable(True) for field in self.algebra.result_schema),
                side.schema.field(SYSTEM),
            ]
        )

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, as text."""
        return {
            "group by": ", ".join(self.side.on),
            "key": ", ".join(self.side.key),
            "aggregates": ", ".join(f"{name}={each}" for name, each in self.aggregates.items()),
            "shards": str(self.shards),
        }

    def changeable(self) -> dict[str, str]:
        """Return the settings that may change between runs, as text."""
        return self.side.changeable()
