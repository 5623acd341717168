"""Rows between the scan, the stages and the tables: a slot, a frame, and a control in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from ...core.rows.split import frames_column
from ...operators.runtime.pack import PACKED
from .commands import TICK

__all__ = ["Message", "Outbox", "by_kind", "control_of", "read_messages"]

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


def read_messages(rows: Iterable[Row]) -> list[Message]:
    """Return the messages, without ticks, in an order that does not depend on arrival."""
    found: list[tuple[str, bytes | None]] = []
    for row in rows:
        control, frame = row.control, row.frame
        if control is not None and control != TICK:
            found.append((control, None if frame is None else bytes(frame)))
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
    frames = frames_column([frame or b"" for _, frame, _ in rows])
    empty = pa.array([frame is None for _, frame, _ in rows], pa.bool_())
    return pa.RecordBatch.from_arrays(
        [
            pa.array([slot for slot, _, _ in rows], pa.int32()),
            _without(frames, empty),
            pa.array([control for _, _, control in rows], pa.string()),
        ],
        schema=PACKED,
    )


def _without(frames: pa.BinaryArray, empty: pa.BooleanArray) -> pa.Array:
    return pc.if_else(empty, pa.scalar(None, pa.binary()), frames)


def by_kind(messages: Sequence[Message]) -> Mapping[str, list[Message]]:
    """Group messages by their kind."""
    found: dict[str, list[Message]] = {}
    for each in messages:
        found.setdefault(each.kind, []).append(each)
    return found
