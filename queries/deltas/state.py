"""The state of one operator: its parts in the store, and their metadata."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ...operators.runtime.key_pages import KeyPages
from ...operators.runtime.store import DictStore, Store
from .arrangement import NUMBER, Arrangement
from .pending import Pending
from .slices_log import SliceLog

__all__ = ["State"]


class State:
    """The data that an operator keeps between steps. ``values`` are small values of the operator itself, in JSON."""

    def __init__(self, store: Store, name: str, saved: Mapping[str, Any]) -> None:
        self._store = store
        self._name = name
        self._prefix = ""
        self._saved: dict[str, Any] = dict(saved.get("parts", {}))
        self._pages: dict[str, KeyPages] = {}
        self._pending: dict[str, Pending] = {}
        self._logs: dict[str, SliceLog] = {}
        self.values: dict[str, Any] = dict(saved.get("values", {}))

    @classmethod
    def in_memory(cls) -> State:
        """Return a new, private state that is not persisted."""
        return cls(DictStore(), "", {})

    def within(self, part: str) -> State:
        """Return the same state for a nested operator, with a prefix for the names of its parts."""
        inner = copy.copy(self)
        inner._prefix = f"{self._prefix}{part}."
        return inner

    def arrangement(self, part: str, schema: pa.Schema) -> Arrangement:
        part = self._prefix + part
        numbered = schema.append(pa.field(NUMBER, pa.int64()))
        pages = KeyPages(self._store, self._kind(part), NUMBER, numbered, self._saved.get(part, {}))
        self._pages[part] = pages
        return Arrangement(pages, schema)

    def pending(self, part: str, schema: pa.Schema) -> Pending:
        part = self._prefix + part
        pending = Pending(self._store, self._kind(part), schema, self._saved.get(part, {}))
        self._pending[part] = pending
        return pending

    def log(self, part: str) -> SliceLog:
        part = self._prefix + part
        log = SliceLog(self._store, self._kind(part), self._saved.get(part, {}))
        self._logs[part] = log
        return log

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self._parts.values())

    def to_json(self) -> dict[str, Any]:
        parts = {part: each.to_json() for part, each in self._parts.items()}
        return {"parts": parts, "values": self.values}

    def clear(self) -> None:
        """Remove all parts from the store, even those that this process has not used."""
        for part, saved in {**self._saved, **self.to_json()["parts"]}.items():
            numbers = Pending.pages_of(saved) if "pages" in saved else range(1 << int(saved.get("bits", 0)))
            for page in numbers:
                self._store.remove(self._kind(part), page)

    @property
    def _parts(self) -> dict[str, KeyPages | Pending | SliceLog]:
        return {**self._pages, **self._pending, **self._logs}

    def _kind(self, part: str) -> str:
        return f"{self._name}.{part}"
