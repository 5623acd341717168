"""Shards on Spark: one group of `transformWithState` each, with Spark's state store."""

from __future__ import annotations

import abc
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ...core.feedback.reports import BATCH_PROPERTY, task_property

if TYPE_CHECKING:
    import pyarrow as pa

    from ...core.pushdown.source_steps import ArrowStep
    from ..state.store import Store


class ShardProcessor(abc.ABC):
    """An operator's work for one batch of a shard."""

    state: ClassVar[str]
    """The state's name, which includes the number of its layout."""

    @abc.abstractmethod
    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        """Run one batch of one shard on frames and controls; return its output rows, None for none."""


class Next(NamedTuple):
    """An operator in the stage of the one before it, with the same keys and number of shards."""

    pack: Callable[[int], ArrowStep]  # from a slot to a step that packs the rows before into frames for that shard
    processor: ShardProcessor


class SparkShards(StatefulProcessor):
    """An adapter that runs each shard's batch against Spark's state store.

    `others` are further operators of the same stage, each with its own state and the output of the one before.
    `leaving` packs a shard's rows into few large values, because Spark takes them one by one.

    Before a query's first batch, Spark starts a Python process for each stage that only calls :meth:`init`. The
    operators are pickled separately, so that this process does not import them.
    """

    def __init__(self, slots: Sequence[int], first: ShardProcessor, others: Sequence[Next], leaving: ArrowStep) -> None:
        processors = [first, *(each.processor for each in others)]
        self._names = [f"{each.state}_{number}" if number else each.state for number, each in enumerate(processors)]
        self._work: _Work | bytes = _Work({slot: number for number, slot in enumerate(slots)}, first, others, leaving)
        self._states: list[Any] = []

    def __getstate__(self) -> tuple[list[str], bytes]:
        from pyspark.cloudpickle import dumps

        return self._names, self._work if isinstance(self._work, bytes) else dumps(self._work)

    def __setstate__(self, state: tuple[list[str], bytes]) -> None:
        self._names, self._work = state
        self._states = []

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open one map of binary values by kind and page for each operator."""
        self._states = [handle.getMapState(name, "kind STRING, page INT", "value BINARY") for name in self._names]

    def handleInputRows(  # pyright: ignore[reportIncompatibleMethodOverride] Spark names pandas frames, and gives rows
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803 Spark's name
    ) -> Iterator[Row]:
        del timerValues
        if isinstance(self._work, bytes):
            self._work = pickle.loads(self._work)  # noqa: S301 the driver of the same job wrote it
            assert isinstance(self._work, _Work)
        work = self._work
        slot = int(key[0])
        stores = [MapStore(state) for state in self._states]
        result = run_shard(slot, work.shard_of[slot], work.first, work.others, stores, rows)
        if result is not None:
            for batch in work.leaving(iter(result.combine_chunks().to_batches())):
                yield from (Row(**values) for values in batch.to_pylist())

    def close(self) -> None:
        """Do nothing: no resource is open."""


class _Work(NamedTuple):
    shard_of: dict[int, int]
    first: ShardProcessor
    others: Sequence[Next]
    leaving: ArrowStep


def run_shard(
    slot: int,
    shard: int,
    first: ShardProcessor,
    others: Sequence[Next],
    stores: Sequence[Store],
    rows: Iterator[Row],
) -> pa.Table | None:
    """Run one batch of one shard through all operators of a stage. An operator without input is not called."""
    result = first.batch(shard, stores[0], rows)
    for (pack, processor), store in zip(others, stores[1:], strict=True):
        if result is None:
            return None
        packed = [
            Row(**row) for batch in pack(slot)(iter(result.combine_chunks().to_batches())) for row in batch.to_pylist()
        ]
        result = processor.batch(shard, store, iter(packed)) if packed else None
    return result


def batch_id() -> int:
    """Return Spark's batch ID of this task; -1 if Spark does not set it."""
    batch = task_property(BATCH_PROPERTY)
    return -1 if batch is None else int(batch)


class MapStore:
    """A store in Spark's map of binary values by kind and page."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def get(self, kind: str, page: int) -> bytes | None:
        found = self._state.getValue((kind, page))
        return None if found is None else bytes(found[0])

    def put(self, kind: str, page: int, value: bytes) -> None:
        self._state.updateValue((kind, page), (bytearray(value),))

    def remove(self, kind: str, page: int) -> None:
        self._state.removeKey((kind, page))
