"""Stores of a shard's state: named binary values, in Spark's state store or, in tests, in a dictionary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from ...conf.errors import CheckpointError


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


class StorePart:
    """A part of ``store``, which may be replaced between two calls; its name precedes those of its values."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self._prefix = f"{name}/" if name else ""

    def get(self, kind: str, page: int) -> bytes | None:
        return self.store.get(self._prefix + kind, page)

    def put(self, kind: str, page: int, value: bytes) -> None:
        self.store.put(self._prefix + kind, page, value)

    def remove(self, kind: str, page: int) -> None:
        self.store.remove(self._prefix + kind, page)


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


LAYOUT = 2
"""The layout of all states. It changes with each release that reads or writes any of them in another way."""


def read_head(store: Store) -> dict[str, Any]:
    """Return a shard's saved head; empty before its first batch."""
    saved = store.get("head", 0)
    return {} if saved is None else json.loads(saved)


def write_head(store: Store, identity: Mapping[str, str], members: Mapping[str, Any]) -> None:
    """Save a shard's head with the settings to which its state is bound, for :func:`check_head`."""
    store.put("head", 0, json.dumps({**members, "layout": LAYOUT, "plan": identity}).encode())


def check_head(head: Mapping[str, Any], identity: Mapping[str, str], began: str, same: str) -> None:
    """Raise CheckpointError if another version, or other settings than `identity`, wrote a head. A new one is empty."""
    if not head:
        return
    if head["layout"] != LAYOUT:
        raise CheckpointError(
            f"{began} by another version of the package, with layout {head['layout']}, now {LAYOUT}",
            expected="the version that began the checkpoint",
            hint="run that version, or start with a new checkpoint location: the table keeps what is newer",
        )
    check_identity(head["plan"], identity, began, same)


def check_identity(was: Mapping[str, str], now: Mapping[str, str], began: str, same: str) -> None:
    """Raise CheckpointError, naming all differences, if the checkpoint's settings `was` are not the query's (`now`).

    `began` begins the message, such as ``the windows of this checkpoint were begun``; `same` names what must not
    change.
    """
    differ = [f"{name} {old!r}, now {now.get(name)!r}" for name, old in was.items() if now.get(name) != old]
    if differ:
        raise CheckpointError(
            f"{began} with another " + "; ".join(differ),
            expected=f"the same {same} for the life of a checkpoint",
            hint="restore them, or start with a new checkpoint location: the table keeps the newer rows",
        )
