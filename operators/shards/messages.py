"""What passes between the planner of a batch and the shards: the plan of a query, the control of a batch, the report of a shard."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ..queue.queue import Policy

__all__ = ["Control", "Served", "ShardPlan", "ShardReport"]


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """What does not change while a query runs.

    Attributes
    ----------
    key : tuple of str
        The update key's columns.
    time : str or None
        The column that says which of two rows of a key is newer.
    shards : int
        How many there are. With the key it is what a checkpoint is bound to.
    policy : str
        May be changed from one start to the next, as may all that follows.
    budget : int or None
        Rows per batch, all shards together, where no control row says otherwise; None for all.
    auto : bool
        Whether the planner finds the budget; then `budget` is the first one.
    page_slots : int
        Locations in a page of state.
    half_life_s : float
        Of the update rates.
    cost_s : float or None
        Seconds per row, pinned.
    seed : int
        Of the random shedding.
    """

    key: tuple[str, ...]
    time: str | None
    shards: int
    policy: Policy
    budget: int | None = None
    auto: bool = False
    page_slots: int = 1024
    half_life_s: float = 60.0
    cost_s: float | None = None
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Control:
    """What the planner of the batch says to a shard.

    Attributes
    ----------
    now_us : int
        The clock when the batch was planned.
    budget : int or None
        Rows that this shard may give; None for all.
    cost_s : float or None
        Seconds to process one row, as measured.
    drop : float
        The part of the arriving rows to shed.
    """

    now_us: int
    budget: int | None = None
    cost_s: float | None = None
    drop: float = 0.0

    def to_json(self) -> str:
        """Text, the inverse of :meth:`from_json`."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Control:
        """The control that :meth:`to_json` described."""
        return cls(**json.loads(text))


@dataclasses.dataclass(frozen=True)
class ShardReport:
    """What a shard did in a batch, and what waits in it afterwards.

    Attributes
    ----------
    shard : int
    now_us : int
        The clock of the batch.
    arrived, delivered, superseded, older, conflicts, shed : int
        Updates and rows of this batch.
    waiting : int
        Rows that wait.
    ready_at_us : int or None
        When the first of them may be served.
    oldest_us : int or None
        The oldest first arrival among them.
    places : list of [place, count]
        How many wait up to a place, for some places; increasing.
    used, allocated : int
        Locations in use, and locations of all pages.
    pages_read, pages_written : int
        Pages of rows fetched and written in this batch.
    state_bytes : int
        Size of what was written.
    """

    shard: int
    now_us: int
    arrived: int
    delivered: int
    superseded: int
    older: int
    conflicts: int
    shed: int
    waiting: int
    ready_at_us: int | None
    oldest_us: int | None
    places: list[list[int]]
    used: int
    allocated: int
    pages_read: int
    pages_written: int
    state_bytes: int

    def to_json(self) -> dict[str, Any]:
        """A JSON value, the inverse of :meth:`from_json`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ShardReport:
        """The report that :meth:`to_json` described."""
        return cls(**{field.name: value[field.name] for field in dataclasses.fields(cls)})


@dataclasses.dataclass(frozen=True)
class Served:
    """How one task's rows flowed to what comes after the queue, in one batch.

    Attributes
    ----------
    rows : int
        Punctuation included.
    began_us, ended_us : int
        When the first row was handed on, and when whatever follows asked for more after the last.
    """

    rows: int
    began_us: int
    ended_us: int
