"""The messages from the planner of a batch to the shards: the plan of a query, the control of a batch."""

from __future__ import annotations

import dataclasses
import json

from .queue import Policy

__all__ = ["Control", "ShardPlan"]


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """What does not change while a query runs.

    Attributes
    ----------
    key : tuple of str
        The update key's columns.
    time : str or None
        The column that decides which of two rows of a key is newer.
    shards : int
        How many there are. With the key it is what a checkpoint is bound to.
    policy : str
        May be changed from one start to the next, as may all that follows.
    budget : int or None
        Rows per batch, all shards together, unless a control row has another number; None for all.
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
    most_stale : int
        How many of the keys that wait longest each shard reports.
    """

    key: tuple[str, ...]
    time: str | None
    shards: int
    policy: Policy
    budget: int | None = None
    auto: bool = False
    page_slots: int = 4096
    half_life_s: float = 60.0
    cost_s: float | None = None
    seed: int = 0
    most_stale: int = 0

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, in words."""
        return {"key": ", ".join(self.key), "time": self.time or "none", "shards": str(self.shards)}

    def changeable(self) -> dict[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        budget = "auto" if self.auto else "none" if self.budget is None else f"{self.budget} rows"
        return {"policy": self.policy, "budget": budget}


@dataclasses.dataclass(frozen=True)
class Control:
    """The planner's instructions to a shard for a batch.

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
        """Return text, the inverse of :meth:`from_json`."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Control:
        """Return the control that :meth:`to_json` described."""
        return cls(**json.loads(text))
