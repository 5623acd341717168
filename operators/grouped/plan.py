"""The settings of aggregates over the newest row of each key, and the columns of their results."""

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
"""The aggregate that every plan has: how many keys a group has."""


@dataclasses.dataclass(frozen=True)
class GroupPlan:
    """Aggregates by group. A checkpoint is refused with another plan.

    Attributes
    ----------
    side : LatestSide
        The input; its `on` is the group.
    aggregates : mapping of str to Aggregate
    shards : int
    """

    side: LatestSide
    aggregates: Mapping[str, Aggregate]
    shards: int

    @cached_property
    def algebra(self) -> Aggregates:
        """The aggregates of these rows.

        Raises
        ------
        OptionError, SchemaError
            See :meth:`~upstream.operators.aggregates.algebra.Aggregates.of`.
        """
        return Aggregates.of(self.aggregates, self.side.schema)

    @cached_property
    def added(self) -> Aggregates:
        """The aggregates from which rows can be taken out, and besides them the number of rows."""
        return Aggregates.of({**self._which(differential=True), ROWS: count()}, self.side.schema)

    @cached_property
    def held(self) -> Aggregates | None:
        """The aggregates for which the values of each group are kept; None if there are none."""
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
        """The columns of results, the system column included."""
        side = self.side
        return pa.schema(
            [
                *(side.schema.field(name) for name in side.on),
                *(field.with_nullable(True) for field in self.algebra.result_schema),
                side.schema.field(SYSTEM),
            ]
        )

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, in words."""
        return {
            "group by": ", ".join(self.side.on),
            "key": ", ".join(self.side.key),
            "aggregates": ", ".join(f"{name}={each}" for name, each in self.aggregates.items()),
            "shards": str(self.shards),
        }

    def changeable(self) -> dict[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        return self.side.changeable()
