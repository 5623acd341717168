"""How rows of a DataFrame become rows of an update stream."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import pyarrow as pa

from ...core.feedback.on_demand_watermark import OnDemandWatermark
from ...core.rows.system_column import SYSTEM, SYSTEM_TYPE, TIMESTAMP
from ...core.watermark.policies import Policy

__all__ = ["ARRIVAL", "DELETED", "FEED", "ORDER", "IntakePlan"]

FEED, ORDER, ARRIVAL, DELETED = (
    "__upstream_feed",
    "__upstream_order",
    "__upstream_arrival",
    "__upstream_deleted",
)
"""Columns that are computed before rows are packed, and are no part of them."""


@dataclasses.dataclass(frozen=True)
class IntakePlan:
    """An input.

    Attributes
    ----------
    name : str
        Its own; quarantined rows and reports carry it.
    key : tuple of str
        The update key's columns.
    time : str or None
        The column of the event time.
    time_format, time_zone : str
        Its format, if its type does not determine it.
    policy : Policy
        How the progress of each feed is judged.
    fail : bool
        Whether a row without a key or a readable time ends the query; else it is quarantined.
    shards : int
        Into how many parts feeds are divided. With the time it is what a checkpoint is bound to.
    schema : pyarrow.Schema
        Of the rows as they come.
    on_demand : OnDemandWatermark or None
        How a silent feed's timestamps are computed when an operator waits for it; None if the others wait.
    """

    name: str
    key: tuple[str, ...]
    time: str | None
    time_format: str | None
    time_zone: str
    policy: Policy
    fail: bool
    shards: int
    schema: pa.Schema
    on_demand: OnDemandWatermark | None = None

    @property
    def stamped(self) -> bool:
        """Whether the time is the arrival, in a column of its own."""
        return self.policy.name == "heartbeat"

    @property
    def promises(self) -> bool:
        """Whether the low-watermark bounds the times of its rows."""
        return self.time is not None and self.policy.name != "latent"

    @cached_property
    def leaving(self) -> pa.Schema:
        """The schema of the rows as they leave: text and local times become timestamps, as in the source."""
        fields = [field.with_type(TIMESTAMP) if self._becomes_timestamp(field) else field for field in self.schema]
        if self.stamped:
            fields.append(pa.field(self.time, TIMESTAMP))
        # Punctuation has nothing in the columns of the rows.
        return pa.schema([*(field.with_nullable(True) for field in fields), pa.field(SYSTEM, SYSTEM_TYPE)])

    def _becomes_timestamp(self, field: pa.Field) -> bool:
        return field.name == self.time and (pa.types.is_string(field.type) or pa.types.is_timestamp(field.type))

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, in words."""
        time = "none" if self.time is None else f"{self.time} ({self.time_format or 'as typed'}, {self.time_zone})"
        silent = {} if self.on_demand is None else {"silent feeds": "on-demand timestamps"}
        return {"time": time, "shards": str(self.shards), **silent}

    def changeable(self) -> dict[str, str]:
        """Return the other settings, in words, which may change from run to run: none."""
        return {}
