"""Spark's state store as a shard's store."""

from __future__ import annotations

from typing import Any

from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

__all__ = ["MapStore", "batch_id", "open_map"]


def open_map(handle: StatefulProcessorHandle, name: str) -> Any:
    """One map of binary values by kind and page."""
    return handle.getMapState(name, "kind STRING, page INT", "value BINARY")


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
        From :func:`open_map`.
    """

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, kind: str, page: int) -> bytes | None:
        """See :class:`~upstream.operators.shards.store.Store`."""
        found = self._state.getValue((kind, page))
        return None if found is None else bytes(found[0])

    def put(self, kind: str, page: int, value: bytes) -> None:
        """See :class:`~upstream.operators.shards.store.Store`."""
        self._state.updateValue((kind, page), (bytearray(value),))

    def remove(self, kind: str, page: int) -> None:
        """See :class:`~upstream.operators.shards.store.Store`."""
        self._state.removeKey((kind, page))
