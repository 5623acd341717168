"""The settings of a query's queue, and the planner's instructions to its shards for a batch."""

from __future__ import annotations

import dataclasses
import json

from ...conf.units import parse_duration_us
from .queue import Policy


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """The settings of a queue. A checkpoint is bound to `key`, `time` and `shards`; the others may change."""

    key: tuple[str, ...]  # columns of the update key
    time: str | None  # column that decides which of two rows of a key is newer; None for arrival
    shards: int
    policy: Policy
    budget: int | None = None  # rows per batch of all shards, unless a control has another; None for all
    auto: bool = False  # the planner finds the budget, and `budget` is the first one
    page_slots: int = 4096  # locations in a page of state
    half_life_s: float = 60.0  # of the update rates
    cost_s: float | None = None  # seconds per row, pinned; None to measure them
    seed: int = 0  # of the random shedding
    most_stale: int = 0  # number of longest-waiting keys that each shard reports

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, as text."""
        return {"key": ", ".join(self.key), "time": self.time or "none", "shards": str(self.shards)}

    def changeable(self) -> dict[str, str]:
        """Return the other settings, as text, which may change from run to run."""
        budget = "auto" if self.auto else "none" if self.budget is None else f"{self.budget} rows"
        return {"policy": self.policy, "budget": budget}


@dataclasses.dataclass(frozen=True)
class Control:
    """The planner's instructions to a shard for a batch."""

    now_us: int  # the clock when the batch was planned
    budget: int | None = None  # rows that this shard may release; None for all
    cost_s: float | None = None  # seconds to process one row
    drop: float = 0.0  # share of the arriving rows to shed

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Control:
        return cls(**json.loads(text))


def is_duration(text: str) -> bool:
    """Return whether a text is a duration and not an expression."""
    try:
        parse_duration_us(text)
    except ValueError:
        return False
    return True
