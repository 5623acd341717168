"""A store that can become another one under all operators that use it."""

from __future__ import annotations

from ...operators.runtime.store import Store

__all__ = ["MovingStore"]


class MovingStore:
    """Passes on what is asked of it.

    Parameters
    ----------
    store : Store

    Attributes
    ----------
    store : Store
        To which it passes on; another one from the next call on.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, kind: str, page: int) -> bytes | None:
        """See :class:`~upstream.operators.runtime.store.Store`."""
        return self.store.get(kind, page)

    def put(self, kind: str, page: int, value: bytes) -> None:
        """See :class:`~upstream.operators.runtime.store.Store`."""
        self.store.put(kind, page, value)

    def remove(self, kind: str, page: int) -> None:
        """See :class:`~upstream.operators.runtime.store.Store`."""
        self.store.remove(kind, page)
