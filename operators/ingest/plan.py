"""The settings of the ingest of a DataFrame."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import pyarrow as pa

from ...conf.errors import OptionError
from ...conf.options import count_argument, text_argument
from ...conf.units import parse_duration_us
from ...core.feedback.on_demand_watermark import OnDemandWatermark
from ...core.rows.key import Key
from ...core.rows.system_column import SYSTEM, SYSTEM_TYPE, TIMESTAMP
from ...core.watermark.choice import Watermark, check_watermark
from ...core.watermark.policies import Policy

FEED, ORDER, ARRIVAL, DELETED = (
    "__upstream_feed",
    "__upstream_order",
    "__upstream_arrival",
    "__upstream_deleted",
)
"""Columns that are computed before rows are packed, and that leave with no row."""


@dataclasses.dataclass(frozen=True)
class IntakePlan:
    """The settings of an ingested DataFrame."""

    name: str  # quarantined rows and reports carry it
    key: Key  # the update key's columns
    time: str | None  # the column of the event time
    time_format: str | None  # None if the column's type determines it
    time_zone: str
    policy: Policy
    fail: bool  # a row without a key or a readable time ends the query; otherwise it is quarantined
    shards: int  # parts into which feeds are divided
    schema: pa.Schema  # of the arriving rows
    on_demand: OnDemandWatermark | None = None  # None: operators wait for silent feeds

    def __post_init__(self) -> None:
        count_argument("shards", self.shards)
        text_argument("time_format", self.time_format)
        if text_argument("name", self.name) is None or "/" in self.name or self.name != self.name.strip():
            raise OptionError(
                f"name={self.name!r}",
                expected="the input's name, without a slash: it names reports and dead letters",
            )

    @property
    def stamped(self) -> bool:
        """True if the time is the arrival, in a column of its own."""
        return self.policy.name == "arrival"

    @property
    def promises(self) -> bool:
        """True if the low-watermark bounds the times of the rows."""
        return self.time is not None and self.policy.name != "none"

    @cached_property
    def leaving(self) -> pa.Schema:
        """The schema of the output: a time that is text or local becomes a timestamp, as in the source."""
        fields = [field.with_type(TIMESTAMP) if self._becomes_timestamp(field) else field for field in self.schema]
        if self.stamped:
            fields.append(pa.field(self.time, TIMESTAMP))
        # Punctuation has nulls in the columns of the rows.
        return pa.schema([*(field.with_nullable(True) for field in fields), pa.field(SYSTEM, SYSTEM_TYPE)])

    def _becomes_timestamp(self, field: pa.Field) -> bool:
        return field.name == self.time and (pa.types.is_string(field.type) or pa.types.is_timestamp(field.type))

    def identity(self) -> dict[str, str]:
        time = "none" if self.time is None else f"{self.time} ({self.time_format or 'as typed'}, {self.time_zone})"
        silent = {} if self.on_demand is None else {"silent feeds": "on-demand timestamps"}
        return {"time": time, "shards": str(self.shards), **silent}

    def changeable(self) -> dict[str, str]:
        return {}


def policy_of(watermark: Watermark | None, event_time: str | None) -> Policy:
    """Return a watermark's policy. The default is ``bounded`` by ten minutes, or ``none`` without an event time."""
    chosen = check_watermark(watermark) or Watermark("bounded" if event_time else "none")
    name = chosen.policy
    if name == "from_table":
        raise OptionError(
            "a watermark of policy 'from_table' for a DataFrame, which has rows alone",
            expected="the result of one of Watermark's methods",
        )
    if name != "none" and event_time is None:
        raise OptionError(
            f"a watermark of policy {name!r} without an event time",
            expected="the column of the event time",
            hint="name it: event_time=…; with Watermark.arrival(), the column to add, in which rows are stamped on "
            "entry",
        )
    return Policy(
        name,
        parse_duration_us(chosen.delay or "10 minutes"),
        1000 if chosen.rows is None else chosen.rows,
        parse_duration_us(chosen.max_jump or "1 hour"),
        5 if chosen.confirmations is None else chosen.confirmations,
        0.001 if chosen.late is None else chosen.late,
    )
