"""What a shard's state is kept in: named binary values. Spark's state store has this shape; a dictionary has it in
tests.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["CountingStore", "DictStore", "Store"]


class Store(Protocol):
    """Binary values by kind and page number."""

    def get(self, kind: str, page: int) -> bytes | None:
        """Return the value; None if there is none."""
        ...

    def put(self, kind: str, page: int, value: bytes) -> None:
        """Keep the value from now on."""
        ...

    def remove(self, kind: str, page: int) -> None:
        """Forget the value."""
        ...


class DictStore:
    """A store in memory.

    Attributes
    ----------
    values : dict
        By kind and page.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], bytes] = {}

    def get(self, kind: str, page: int) -> bytes | None:
        """See :class:`Store`."""
        return self.values.get((kind, page))

    def put(self, kind: str, page: int, value: bytes) -> None:
        """See :class:`Store`."""
        self.values[kind, page] = value

    def remove(self, kind: str, page: int) -> None:
        """See :class:`Store`."""
        self.values.pop((kind, page), None)


class CountingStore:
    """A store that counts the bytes written to it.

    Parameters
    ----------
    store : Store

    Attributes
    ----------
    written : int
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.written = 0

    def get(self, kind: str, page: int) -> bytes | None:
        """See :class:`Store`."""
        return self._store.get(kind, page)

    def put(self, kind: str, page: int, value: bytes) -> None:
        """See :class:`Store`."""
        self.written += len(value)
        self._store.put(kind, page, value)

    def remove(self, kind: str, page: int) -> None:
        """See :class:`Store`."""
        self._store.remove(kind, page)
