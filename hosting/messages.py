"""Rows between the scan, the stages and the tables: a slot, a frame, and a control in JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..conf.errors import CheckpointError
from ..conf.locations import checkpoint_location
from ..core.feedback.control import CONTROL, SAMPLES
from ..core.feedback.offsets import journaled_offsets
from ..core.rows.frames import frames_column
from ..operators.queue.queue import ALL, Control
from ..operators.queue.tick_planner import BatchCost
from ..operators.runtime.pack import PACKED
from ..storage.folder import folder_at

_CHECKPOINT = "upstream_queries"
QUEUES = "queues"
"""The member of a command's offset with those of the queues of queries, by incarnation."""
PAUSED = "paused"
"""The member of a queue's offset that is True while its view is paused with its state: no row is released."""

TICK = '{"kind":"tick"}'
"""The control that makes a shard of the first stage run without rows. Its instructions are in the batch's command."""


@dataclasses.dataclass(frozen=True)
class Command:
    """The instructions for one batch.

    Spark journals the command, as the command source's offset, before the batch runs. So all tasks, and each rerun of
    the batch, read the same command.
    """

    batch: int
    version: int  # of the registry: the last change in force
    tick: int = 0  # number of requests for waiting results so far
    served: frozenset[int] | None = None  # incarnations whose results this batch emits; None for all
    samples: tuple[tuple[str, int], ...] = ()  # parts whose rows are wanted, and the last request for each
    queues: Mapping[int, Mapping[str, Any]] = dataclasses.field(default_factory=dict[int, Mapping[str, Any]])
    """The offset of the last tick of each queue, by its query's incarnation."""

    def control_of_queue(self, query: int, shard: int, shards: int) -> Control | None:
        """Return the instructions to a shard of a query's queue; None if it has none."""
        tick = self.queues.get(query)
        if tick is None:
            return None
        budget, cost_s = tick["budget"], BatchCost(**tick["cost"]).per_row
        even = 0 if PAUSED in tick else ALL if budget is None else -(-budget // shards)
        share = tick["shares"][shard] if tick["shares"] else None
        # A row costs a shard more by the factor `shards`, since all shards share the machine.
        return Control(tick["now_us"], share, cost_s * shards or None, kept={"budget": even})


def offset_of(checkpoint: str, version: int, tick: int = 0, served: frozenset[int] | None = None) -> dict[str, Any]:
    """Return the offset that carries a command."""
    return {
        _CHECKPOINT: checkpoint,
        "version": version,
        "tick": tick,
        "served": None if served is None else sorted(served),
    }


def command_of_batch(checkpoint: str, batch: int) -> Command:
    """Return the command with which a batch was planned, even if the checkpoint has moved since.

    Raises CheckpointError if the batch is not in the checkpoint or has no command.
    """
    try:
        offsets = journaled_offsets(folder_at(checkpoint_location(checkpoint)), batch)
    except FileNotFoundError as error:
        raise _unknown(f"the checkpoint {checkpoint} has no offsets of batch {batch}") from error
    # Found by the option's name, not by the checkpoint's path, which may have changed since the batch was planned.
    found = [offset for offset in offsets if isinstance(offset, dict) and _CHECKPOINT in offset]
    if len(found) != 1:
        raise _unknown(f"batch {batch} of the checkpoint {checkpoint} was planned with {len(found)} commands")
    return _command(batch, found[0])


def _command(batch: int, offset: Mapping[str, Any]) -> Command:
    served = offset["served"]
    served = None if served is None else frozenset(served)
    samples = offset.get(CONTROL, {}).get(SAMPLES, {})
    queues = {int(query): tick for query, tick in offset.get(QUEUES, {}).items()}
    return Command(batch, int(offset["version"]), int(offset["tick"]), served, tuple(samples.items()), queues)


def _unknown(problem: str) -> CheckpointError:
    return CheckpointError(
        problem,
        expected="one command for the continuous queries in the offsets of each batch",
        hint="start the job with queries.start(…), with micro-batches and without asynchronous progress tracking",
    )


@dataclasses.dataclass(frozen=True)
class CommandOfTask:
    """Returns the command of the batch whose task calls it."""

    checkpoint: str

    def __call__(self) -> Command:
        from ..operators.runtime.shard_processor import batch_id  # only tasks have Spark's batch

        return command_of_batch(self.checkpoint, batch_id())


_MOST_BYTES = 1 << 30


class Message(NamedTuple):
    """A received row."""

    control: dict[str, Any]
    frame: bytes | None
    text: str  # the control as it came

    @property
    def kind(self) -> str:
        return str(self.control["kind"])


def control_of(kind: str, **values: Any) -> str:
    """Return a control as text; equal values give equal text."""
    return json.dumps({"kind": kind, **values}, sort_keys=True, separators=(",", ":"))


PackedRow = tuple[int | None, bytes | None, str]
"""A row between two steps: slot, frame and control."""


def read_messages(rows: Iterable[PackedRow]) -> list[Message]:
    """Return the messages, without ticks, in an order that does not depend on arrival."""
    found = [(control, frame) for _, frame, control in rows if control != TICK]
    found.sort(key=lambda each: (each[0], each[1] or b""))
    return [Message(json.loads(control), frame, control) for control, frame in found]


class Outbox:
    """Collects the rows that a task sends. `slots` has the number by which Spark groups each shard's rows."""

    def __init__(self, slots: Sequence[int]) -> None:
        self._slots = slots
        self._rows: list[tuple[int, bytes | None, str]] = []

    def put(self, shard: int, control: str, frame: bytes | None = None) -> None:
        self._rows.append((self._slots[shard], frame, control))

    def put_to_all(self, control: str) -> None:
        self._rows += [(slot, None, control) for slot in self._slots]

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self) -> pa.RecordBatch:
        return _packed(self._rows)

    def table(self) -> pa.Table:
        """Return the rows, in batches of about 1 GiB at most: a batch of 2 GiB would fail."""
        ends = np.cumsum([0 if frame is None else len(frame) for _, frame, _ in self._rows])
        cuts = [0, *(np.flatnonzero(np.diff(ends // _MOST_BYTES)) + 1).tolist(), len(self._rows)]
        return pa.Table.from_batches([_packed(self._rows[begin:end]) for begin, end in pairwise(cuts)])


def _packed(rows: Sequence[tuple[int, bytes | None, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([slot for slot, _, _ in rows], pa.int32()),
            frames_column([frame for _, frame, _ in rows]),
            pa.array([control for _, _, control in rows], pa.string()),
        ],
        schema=PACKED,
    )


def by_kind(messages: Sequence[Message]) -> Mapping[str, list[Message]]:
    """Group messages by their kind."""
    found: dict[str, list[Message]] = {}
    for each in messages:
        found.setdefault(each.kind, []).append(each)
    return found
