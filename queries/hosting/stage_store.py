"""The state of a stage: one store for the stage itself and for each evaluation in it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...core.pushdown.ipc_frames import from_frame, to_frame
from ...operators.runtime.store import Store

__all__ = ["Part", "Waiting"]


class Part:
    """A part of a store: its values have names of their own.

    Parameters
    ----------
    store : Store
    name : str
        The part's; no other has it.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def get(self, kind: str, page: int) -> bytes | None:
        """See :class:`~upstream.operators.runtime.store.Store`."""
        return self._store.get(f"{self._name}/{kind}", page)

    def put(self, kind: str, page: int, value: bytes) -> None:
        """See :class:`~upstream.operators.runtime.store.Store`."""
        self._store.put(f"{self._name}/{kind}", page, value)

    def remove(self, kind: str, page: int) -> None:
        """See :class:`~upstream.operators.runtime.store.Store`."""
        self._store.remove(f"{self._name}/{kind}", page)


class Waiting:
    """Tables that cannot be taken yet, by name, each put under its own.

    Parameters
    ----------
    store : Store
    saved
        What :meth:`to_json` gave; empty at first.
    kind : str
        What the tables are called in the store.
    """

    def __init__(self, store: Store, saved: Any, kind: str = "waiting") -> None:
        self._store = store
        self._kind = kind
        self._counts: dict[str, int] = dict(saved)

    def to_json(self) -> dict[str, int]:
        """Return a JSON value: how many tables wait under each name."""
        return self._counts

    def put(self, name: str, table: pa.Table) -> None:
        """Let a table wait."""
        if table.num_rows:
            number = self._counts.get(name, 0)
            self._store.put(f"{self._kind}/{name}", number, to_frame(table))
            self._counts[name] = number + 1

    def count(self, name: str) -> int:
        """Return how many tables wait under a name."""
        return self._counts.get(name, 0)

    def keep(self, names: set[str]) -> None:
        """Forget what waits under other names."""
        for name in [each for each in self._counts if each not in names]:
            self.take(name)

    def take(self, name: str) -> list[pa.Table]:
        """Return what waits under a name, in the order in which it came. It waits no longer."""
        found: list[pa.Table] = []
        for number in range(self._counts.pop(name, 0)):
            frame = self._store.get(f"{self._kind}/{name}", number)
            assert frame is not None
            found.append(from_frame(frame))
            self._store.remove(f"{self._kind}/{name}", number)
        return found
