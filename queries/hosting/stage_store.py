"""Views of a shard's store for the evaluations in it and for tables that wait."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...core.pushdown.ipc_frames import from_frame, to_frame
from ...operators.runtime.store import Store

__all__ = ["Part", "Waiting"]


class Part:
    """A part of a store, which prefixes the names of its values with its own."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def get(self, kind: str, page: int) -> bytes | None:
        return self._store.get(f"{self._name}/{kind}", page)

    def put(self, kind: str, page: int, value: bytes) -> None:
        self._store.put(f"{self._name}/{kind}", page, value)

    def remove(self, kind: str, page: int) -> None:
        self._store.remove(f"{self._name}/{kind}", page)


class Waiting:
    """Tables that wait under a name until they can be processed. `kind` is their prefix in the store."""

    def __init__(self, store: Store, saved: Any, kind: str = "waiting") -> None:
        self._store = store
        self._kind = kind
        self._counts: dict[str, int] = dict(saved)

    def to_json(self) -> dict[str, int]:
        """Return the number of tables by name."""
        return self._counts

    def put(self, name: str, table: pa.Table) -> None:
        if table.num_rows:
            number = self._counts.get(name, 0)
            self._store.put(f"{self._kind}/{name}", number, to_frame(table))
            self._counts[name] = number + 1

    def count(self, name: str) -> int:
        return self._counts.get(name, 0)

    def keep(self, names: set[str]) -> None:
        """Remove the tables under other names."""
        for name in [each for each in self._counts if each not in names]:
            self.take(name)

    def take(self, name: str) -> list[pa.Table]:
        """Remove and return the tables under a name, in order of arrival."""
        found: list[pa.Table] = []
        for number in range(self._counts.pop(name, 0)):
            frame = self._store.get(f"{self._kind}/{name}", number)
            assert frame is not None
            found.append(from_frame(frame))
            self._store.remove(f"{self._kind}/{name}", number)
        return found
