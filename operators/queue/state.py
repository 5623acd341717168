"""A shard's queue in the state store, without its rows; its figures."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.feedback.ages import Ages
from ..state.store import LAYOUT, Store
from .cells import Cells
from .queue import EnqueueResult, ShardPlan, UpdateQueue


class QueueState:
    """A shard's state without its rows. `head` is empty for a shard without rows so far.

    The head is one value, because each value costs a call to Spark's state store. It has some JSON, the rows' schema, a
    bit for each location, set if it has a row, and the update rates. Each page of cells is one value. A removed cell
    stays in its page until the page is written again, and only its bit in the head changes. So rows that leave cause no
    page writes.
    """

    def __init__(self, store: Store, slots: int = 4096) -> None:
        self._store = store
        self.head: dict[str, Any] = {}
        self.schema: pa.Schema | None = None
        self.slots = slots
        self._held = self._rates = b""
        value = store.get("head", 0)
        if value is not None:
            head, schema, self._held, self._rates = _split(value)
            self.head = json.loads(head)
            self.schema = pa.ipc.read_schema(pa.py_buffer(schema))
            self.slots = self.head["slots"]

    @property
    def waiting(self) -> bool:
        return bool(self.head and self.head["pages"])

    def queue(self) -> dict[str, Any]:
        """Return the snapshot from which to restore the queue."""
        pages = self.head["pages"]
        bits = np.unpackbits(np.frombuffer(self._held, np.uint8), count=len(pages) * self.slots).reshape(-1, self.slots)
        cells, at = Cells.empty(int(bits.sum())), 0
        for number, mine in zip(pages, bits.view(np.bool_), strict=True):
            value = self._store.get("cells", number)
            assert value is not None, f"page {number} of cells is not in the state store"
            size = -(-self.slots // 8)
            slot = np.flatnonzero(np.unpackbits(np.frombuffer(value, np.uint8, size), count=self.slots))
            waiting = Cells.from_bytes(value[size:]).take(mine[slot])
            cells.put(slice(at, at + len(waiting)), waiting)
            at += len(waiting)
        page, slot = np.nonzero(bits)
        return {
            **self.head["queue"],
            "monitor": {
                **self.head["queue"]["monitor"],
                "count": np.frombuffer(self._rates, "<f4").reshape(3, -1)[: len(self._rates)],
            },
            "held": np.array(pages, dtype=np.int64)[page] * self.slots + slot,
            "cells": cells,
        }

    def save(self, queue: UpdateQueue, schema: pa.Schema, plan: ShardPlan, more: Mapping[str, Any]) -> list[int]:
        """Write the head with the members `more` and the changed pages of cells; return the released pages."""
        pages = queue.pages.pages()
        gone = sorted(set(self.head.get("pages", ())).difference(pages.tolist()))
        for number in queue.changed().tolist():
            mine = queue.pages.held[number]
            cells = queue.cells(np.flatnonzero(mine) + number * self.slots)
            self._store.put("cells", number, np.packbits(mine).tobytes() + cells.to_bytes())
        for number in gone:
            self._store.remove("cells", number)
        counters = queue.counters()
        rates = counters["monitor"].pop("count") if plan.policy in ("linecutting", "auto") else np.empty(0)
        counters["monitor"].pop("count", None)
        head = {
            "layout": LAYOUT,
            "plan": plan.identity(),
            "slots": self.slots,
            "pages": pages.tolist(),
            "queue": counters,
            **more,
        }
        held = np.packbits(queue.pages.held[pages]).tobytes()
        parts = [json.dumps(head).encode(), schema.serialize().to_pybytes(), held, rates.astype("<f4").tobytes()]
        self._store.put("head", 0, _joined(parts))
        return gone

    def clear(self) -> None:
        """Remove the state from the store."""
        for number in self.head.get("pages", ()):
            self._store.remove("cells", number)
        self._store.remove("head", 0)


def queue_figures(queue: UpdateQueue | None, took: EnqueueResult, arrived: int, served: Ages) -> dict[str, Any]:
    """Return the values of a shard's ``QueueReport`` that follow from its queue after a batch."""
    waiting = np.empty(0, dtype=np.int64) if queue is None else queue.locations
    places: list[list[int]] = []
    oldest = None
    if queue is not None and len(waiting):
        oldest = int(queue.column("first_arrival", waiting).min())
        place = np.sort(queue.column("place", waiting))
        # Dense where the next budgets end: half of the samples within each halving of the queue.
        at = np.unique(np.geomspace(1, len(place), _SAMPLE).astype(np.int64)) - 1
        places = [[int(place[i]), int(i) + 1] for i in at]
    return {
        "arrived": arrived,
        "applied": served.count,
        "superseded": took.superseded,
        "older": took.older,
        "shed": took.shed,
        "waiting": len(waiting),
        "ready_at_us": None if queue is None else queue.next_ready_us(),
        "oldest_us": oldest,
        "places": places,
        "used": 0 if queue is None else queue.pages.used,
        "allocated": 0 if queue is None else len(queue.pages.pages()) * queue.pages.slots,
        "ages": served,
        "outdated": took.outdated,
    }


_SAMPLE = 64


def _joined(parts: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(parts)}q", *map(len, parts)) + b"".join(parts)


def _split(value: bytes) -> list[bytes]:
    ends = 32 + np.cumsum(struct.unpack_from("<4q", value))
    return [value[start:end] for start, end in zip((32, *ends[:-1].tolist()), ends.tolist(), strict=True)]
