"""Stores of a shard's state: named binary values, in Spark's state store or, in tests, in a dictionary."""

from __future__ import annotations

from typing import Protocol

__all__ = ["CountingStore", "DictStore", "Store"]


class Store(Protocol):
    """Binary values by kind and page number."""

    def get(self, kind: str, page: int) -> bytes | None: ...

    def put(self, kind: str, page: int, value: bytes) -> None: ...

    def remove(self, kind: str, page: int) -> None: ...


class DictStore:
    """A store in memory."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], bytes] = {}

    def get(self, kind: str, page: int) -> bytes | None:
        return self.values.get((kind, page))

    def put(self, kind: str, page: int, value: bytes) -> None:
        self.values[kind, page] = value

    def remove(self, kind: str, page: int) -> None:
        self.values.pop((kind, page), None)


class CountingStore:
    """A store that counts the bytes written to it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.written = 0

    def get(self, kind: str, page: int) -> bytes | None:
        return self._store.get(kind, page)

    def put(self, kind: str, page: int, value: bytes) -> None:
        self.written += len(value)
        self._store.put(kind, page, value)

    def remove(self, kind: str, page: int) -> None:
        self._store.remove(kind, page)
