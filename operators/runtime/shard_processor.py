"""Shards on Spark: `transformWithState` with one group for each, and Spark's state store as their store."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ...core.pushdown.source_steps import ArrowStep
from .store import Store

__all__ = ["MapStore", "ShardProcessor", "batch_id"]


class ShardProcessor(StatefulProcessor, abc.ABC):
    """Runs each shard's batch against Spark's state store.

    Parameters
    ----------
    state : str
        The state's name, which tells its layouts apart.
    slots : sequence of int
        What each shard is grouped by.
    folder : str
        Where the shards leave their reports.
    leaving : callable
        What becomes of a shard's rows before Spark takes them. It makes few large values of them: Spark takes them one by one.
    """

    def __init__(self, state: str, slots: Sequence[int], folder: str, leaving: ArrowStep) -> None:
        self._name = state
        self._leaving = leaving
        self._shard_of = {slot: number for number, slot in enumerate(slots)}
        self._folder = folder
        self._state: Any = None

    @abc.abstractmethod
    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        """One batch of one shard: frames and controls in, the rows that leave it out."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state: one map of binary values by kind and page."""
        self._state = handle.getMapState(self._name, "kind STRING, page INT", "value BINARY")

    def handleInputRows(  # pyright: ignore[reportIncompatibleMethodOverride] Spark names pandas frames, and gives rows
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803 Spark's name
    ) -> Iterator[Row]:
        """One batch of one shard."""
        del timerValues
        result = self.batch(self._shard_of[int(key[0])], MapStore(self._state), rows)
        if result is not None:
            for batch in self._leaving(iter(result.combine_chunks().to_batches())):
                yield from (Row(**values) for values in batch.to_pylist())

    def close(self) -> None:
        """Nothing is held open."""


def batch_id() -> int:
    """Spark's number of the batch that this task belongs to; -1 if it does not say."""
    context = TaskContext.get()
    told = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    return -1 if told is None else int(told)


class MapStore:
    """A shard's state as a store.

    Parameters
    ----------
    state
        Spark's map of binary values by kind and page.
    """

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, kind: str, page: int) -> bytes | None:
        """See :class:`~upstream.operators.runtime.store.Store`."""
        found = self._state.getValue((kind, page))
        return None if found is None else bytes(found[0])

    def put(self, kind: str, page: int, value: bytes) -> None:
        """See :class:`~upstream.operators.runtime.store.Store`."""
        self._state.updateValue((kind, page), (bytearray(value),))

    def remove(self, kind: str, page: int) -> None:
        """See :class:`~upstream.operators.runtime.store.Store`."""
        self._state.removeKey((kind, page))
