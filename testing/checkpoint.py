"""What a job keeps from one batch to the next, as bytes and plain values."""

from __future__ import annotations

import dataclasses
import pickle
from typing import TYPE_CHECKING, Any

from ..operators.runtime.store import DictStore
from ..plan.fingerprint import Fingerprint

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Checkpoint"]

_BEGIN_US = 946_684_800_000_000
"""The clock of the first batch: 2000-01-01 00:00 in UTC."""


@dataclasses.dataclass
class Checkpoint:
    """State, and the last reports of the shards.

    Attributes
    ----------
    batch : int
        How many batches there have been.
    clock_us : int
        When the last one began.
    states : dict
        By place and shard what Spark's state store would hold.
    reports : dict
        The last report of each shard, by place and shard.
    ticks : dict
        By place the offset of the last tick.
    tables : dict
        The tables that the steps join, as they are now.
    operators : tuple or None
        The fingerprint of the plan that ran last; None before the first batch.
    """

    batch: int = 0
    clock_us: int = _BEGIN_US - 1_000_000
    states: dict[tuple[str, int], dict[tuple[str, int], bytes]] = dataclasses.field(default_factory=dict)
    reports: dict[str, dict[int, Any]] = dataclasses.field(default_factory=dict)
    ticks: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    tables: dict[str, pa.Table] = dataclasses.field(default_factory=dict)
    operators: Fingerprint | None = None

    def store(self, place: str, shard: int) -> DictStore:
        """Return a shard's state: values put into it are kept here."""
        store = DictStore()
        store.values = self.states.setdefault((place, shard), {})
        return store

    def said(self, place: str) -> list[Any]:
        """Return the last reports of the shards of a place, of those that have reported."""
        return list(self.reports.get(place, {}).values())

    def copy(self) -> Checkpoint:
        """Return a copy: a batch that fails leaves this checkpoint as it is."""
        return Checkpoint(
            self.batch,
            self.clock_us,
            {name: dict(values) for name, values in self.states.items()},
            {place: dict(each) for place, each in self.reports.items()},
            dict(self.ticks),
            dict(self.tables),
            self.operators,
        )

    def as_another_process(self) -> Checkpoint:
        """Return the checkpoint as another process reads it."""
        return pickle.loads(pickle.dumps(self))  # noqa: S301 written on this very line
