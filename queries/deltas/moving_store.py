"""A store whose target can be replaced under all operators that use it."""

from __future__ import annotations

from ...operators.runtime.store import Store

__all__ = ["MovingStore"]


class MovingStore:
    """A store that forwards each call to ``store``, which may be replaced between two calls."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, kind: str, page: int) -> bytes | None:
        return self.store.get(kind, page)

    def put(self, kind: str, page: int, value: bytes) -> None:
        self.store.put(kind, page, value)

    def remove(self, kind: str, page: int) -> None:
        self.store.remove(kind, page)
