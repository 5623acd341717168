"""A job's state between batches, as bytes and plain values."""

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
    """The state and the last reports of all shards, each by the operator's place and the shard's number."""

    batch: int = 0  # the number of batches so far
    clock_us: int = _BEGIN_US - 1_000_000  # when the last batch began
    # the content of Spark's state store
    states: dict[tuple[str, int], dict[tuple[str, int], bytes]] = dataclasses.field(default_factory=dict)
    reports: dict[str, dict[int, Any]] = dataclasses.field(default_factory=dict)
    ticks: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # the offset of the last tick, by place
    tables: dict[str, pa.Table] = dataclasses.field(default_factory=dict)  # the present tables that the steps join
    operators: Fingerprint | None = None  # of the plan that ran last; None before the first batch

    def store(self, place: str, shard: int) -> DictStore:
        """Return a shard's state; values put into it are stored here."""
        store = DictStore()
        store.values = self.states.setdefault((place, shard), {})
        return store

    def said(self, place: str) -> list[Any]:
        """Return the last reports of the shards of a place."""
        return list(self.reports.get(place, {}).values())

    def copy(self) -> Checkpoint:
        """Return a copy, so that a failed batch leaves this checkpoint unchanged."""
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
