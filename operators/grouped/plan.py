"""The settings of aggregates over the newest row of each key, and the schema of their results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import pyarrow as pa

from ...core.rows.key import Key
from ...core.rows.system_column import SYSTEM
from ..aggregates.algebra import Aggregates
from ..aggregates.functions import count
from ..aggregates.parts import Aggregate
from ..joins.latest_plan import LatestSide
from ..windows.shards.plan import WindowPlan

ROWS = "__upstream_rows"
"""The aggregate that every plan adds: the number of keys in a group."""


@dataclasses.dataclass(frozen=True)
class GroupPlan:
    """Aggregates by group; without any, the distinct groups. A checkpoint rejects another plan."""

    side: LatestSide  # the input, whose `on` is the group
    aggregates: Mapping[str, Aggregate]
    shards: int

    @cached_property
    def algebra(self) -> Aggregates:
        return Aggregates.of(self.aggregates, self.side.schema) if self.aggregates else Aggregates({})

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


WINDOW = "__upstream_window"
"""The column of a row's window."""

Newest = Literal["window", "table"]
"""The row of a key that counts in a window: the newest in that window, or only the newest of all."""


@dataclasses.dataclass(frozen=True)
class GroupWindowPlan:
    """Windows by group. A checkpoint rejects another plan."""

    window: WindowPlan  # the windows; its key is the group, and its time assigns rows to windows
    key: Key  # the update key: of several rows with one key, only the newest counts
    newest_by: str | None  # the column that orders rows of a key; None for the order of arrival
    newest: Newest = "window"
    early: bool = False  # whether windows also emit results before they are final

    @property
    def shards(self) -> int:
        return self.window.shards

    @property
    def group(self) -> Key:
        return self.window.key

    @property
    def stays(self) -> bool:
        """Whether a key never changes its group, because the group is part of it."""
        return set(self.group) <= set(self.key)

    @property
    def ends(self) -> bool:
        """Whether windows become final."""
        return self.newest == "window"

    @cached_property
    def placed(self) -> pa.Schema:
        """The columns of rows with their window."""
        return pa.schema([*self.window.schema, pa.field(WINDOW, pa.int64())])

    @cached_property
    def side(self) -> LatestSide:
        """The input of the newest rows; once for each of a row's windows if the newest of each window counts."""
        inputs = self.window.algebra.inputs
        if self.ends:
            on, key = Key((*self.group, WINDOW)), Key((*self.key, WINDOW))
            return LatestSide(on, "", self.placed, key, self.newest_by, inputs)
        assert self.window.time is not None
        values = tuple(dict.fromkeys([*inputs, self.window.time]))
        return LatestSide(self.group, "", self.window.schema, self.key, self.newest_by, values)

    @property
    def taken(self) -> pa.Schema:
        """The columns of the input of the groups' shards."""
        return self.window.schema if self.stays else self.side.versioned

    @cached_property
    def groups(self) -> GroupPlan:
        side = LatestSide(Key((*self.group, WINDOW)), "", self.placed, Key((*self.key, WINDOW)), self.newest_by)
        return GroupPlan(side, self.window.aggregates, self.shards)

    @property
    def segment(self) -> int:
        """The number of windows that share pages of state, which are removed when all are final."""
        return self.window.paned.most_windows or 1

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, as text."""
        own = {"group by": ", ".join(self.group), "key": ", ".join(self.key), "newest": self.newest}
        window = {
            name: value
            for name, value in self.window.identity().items()
            if name in ("time", "window", "allowed lateness")
        }
        return {
            **own,
            **window,
            "early": str(self.early).lower(),
            "aggregates": self.window.aggregates_text,
            "shards": str(self.shards),
        }

    def changeable(self) -> dict[str, str]:
        """Return the settings that may change between runs, as text."""
        return {}
