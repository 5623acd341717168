"""The change events of a table in PostgreSQL, as tools/debezium.py has recorded them, and the table at their end."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from .places import ROOT

ORDERS = ROOT / "tests" / "datasource" / "data" / "orders.jsonl"


class Message(NamedTuple):
    """A message as Debezium's JSON converter writes it, with schemas or without them."""

    key: bytes
    value: bytes | None  # None for a tombstone


class Recording:
    """Messages in their order, and the rows that the source had after them."""

    def __init__(self, path: Path = ORDERS) -> None:
        head, *self._lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        self._schemas: list[Any] = head["schemas"]
        self.table: list[dict[str, Any]] = head["table"]
        self.events: list[Any] = [None if line["value"] is None else line["value"]["payload"] for line in self._lines]

    def messages(self, *, schemas: bool = True) -> list[Message]:
        return [
            Message(self._bytes(line["key"], schemas) or b"", self._bytes(line["value"], schemas))
            for line in self._lines
        ]

    def lines(self, *, schemas: bool = True) -> list[bytes]:
        """Each message as a line of a file, with its key."""
        return [
            b'{"key":%s,"value":%s}' % (key, b"null" if value is None else value)
            for key, value in self.messages(schemas=schemas)
        ]

    def _bytes(self, part: Any, schemas: bool) -> bytes | None:
        if part is None:
            return None
        payload = part["payload"]
        whole = {"schema": self._schemas[part["schema"]], "payload": payload} if schemas else payload
        return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()
