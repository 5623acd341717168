"""A connector over rows in memory: the contract at its smallest, for tests of what stands on it."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from upstream.datasource.connectors.contract import (
    Advance,
    Chunk,
    Connector,
    Limit,
    MalformedRows,
    Position,
    Range,
)


class MemoryConnector(Connector):
    """Feeds are tables that grow by assignment; positions are row counts; ranges hold at most `most` rows.

    A row has arrived when it was first seen, whether or not a limit left it for later.
    """

    name = "files"

    def __init__(self, tables: Mapping[str, pa.Table], most: int = 7) -> None:
        self.tables = dict(tables)
        self.most = most
        self.ended: frozenset[str] = frozenset()
        self.seen: dict[str, list[tuple[int, int]]] = {}

    def schema(self) -> pa.Schema:
        return next(iter(self.tables.values())).schema

    def fix_schema(self, schema: pa.Schema) -> None:
        assert schema.names == self.schema().names

    def feeds(self, position: Position | None) -> Sequence[str]:
        return [feed for feed in position or {} if feed in self.tables]

    def freeze(self, now_us: int) -> None:
        self.tables = dict(self.tables)

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        reached = dict(position or {})
        left = limit.rows if limit.rows is not None else 1 << 40
        ranges: list[Range] = []
        for feed, table in self.tables.items():
            low = int(reached.get(feed, 0))
            high = min(table.num_rows, low + left)
            left -= high - low
            looks = self.seen.setdefault(feed, [])
            if table.num_rows > (looks[-1][0] if looks else 0):
                looks.append((table.num_rows, now_us))
            start = low
            while start < high:
                seen, arrival = self._look(feed, start)
                stop = min(start + self.most, high, seen)
                ranges.append(Range(feed, {"from": start, "to": stop}, stop - start, arrival))
                start = stop
            reached[feed] = high
        left = [feed for feed, table in self.tables.items() if reached[feed] < table.num_rows]
        return Advance(reached, ranges, self.ended, {feed: self._look(feed, reached[feed])[1] for feed in left})

    def _look(self, feed: str, row: int) -> tuple[int, int]:
        """Up to which row the look went that first saw this one, and when it was."""
        return next(look for look in self.seen[feed] if look[0] > row)

    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        table = self.tables[part.feed].slice(part.place["from"], part.place["to"] - part.place["from"])
        for start in range(0, table.num_rows, 3):
            piece = table.slice(start, 3)
            yield Chunk(piece.select(columns) if columns else piece, start)
