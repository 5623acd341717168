"""A connector that computes columns from another connector's rows (option `select`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ..conf.errors import SchemaError
from .connectors.contract import Advance, Chunk, Connector, Limit, MalformedRows, Position, Range
from .selection import Selection
from .unseen_fields import with_unseen_fields

__all__ = ["SelectingConnector"]


class SelectingConnector(Connector):
    """A connector that computes columns where rows are read, so that key, time and condition may be any of them.

    Guarantee: that of `inner`. A row whose columns cannot be computed is malformed, with the reason; it is never
    dropped.

    `time_zone` is for times in text that name none. Without `raw`, `inner` infers the feed's schema.
    """

    name = "select"

    def __init__(
        self, inner: Connector, text: str, time_zone: str, raw: pa.Schema | None = None, duplicates: str = "refuse"
    ) -> None:
        self._inner = inner
        self._text = text
        self._time_zone = time_zone
        self._raw = raw
        self._duplicates = duplicates
        self._selection: Selection | None = None
        self._schema: pa.Schema | None = None
        self.smallest_task = inner.smallest_task
        self.tasks_report = inner.tasks_report

    @property
    def raw(self) -> pa.Schema:
        if self._raw is None:
            self._raw = with_unseen_fields(self._text, self._inner.schema())
        return self._raw

    def schema(self) -> pa.Schema:
        return self._bound().schema if self._schema is None else self._schema

    def fix_schema(self, schema: pa.Schema) -> None:
        self._inner.fix_schema(self.raw)
        made = self._bound().schema
        if made.names != schema.names:
            raise SchemaError(
                f"select gives the columns {', '.join(made.names)}, and the schema names {', '.join(schema.names)}",
                hint="give the feed's own schema with the option `schema`, and none with readStream.schema(…)",
            )
        self._schema = schema

    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        selection = self._bound()
        for chunk in self._inner.read(part, selection.reads(columns), malformed):
            made, misfits = selection.evaluate(chunk.rows, columns)
            yield dataclasses.replace(chunk, rows=made, misfits=misfits, origin=chunk.rows)

    def feeds(self, position: Position | None) -> Sequence[str]:
        return self._inner.feeds(position)

    def freeze(self, now_us: int) -> None:
        self._inner.freeze(now_us)

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        return self._inner.advance(position, now_us, limit)

    def limit(self, common: Limit) -> Limit:
        return self._inner.limit(common)

    def quarantine_folder(self) -> str:
        return self._inner.quarantine_folder()

    def backlog(self, position: Position | None, now_us: int) -> dict[str, Any] | None:
        return self._inner.backlog(position, now_us)

    def commit(self, position: Position) -> None:
        self._inner.commit(position)

    def _bound(self) -> Selection:
        if self._selection is None:
            self._selection = Selection.bound(self._text, self.raw, self._time_zone, self._duplicates)
        return self._selection
