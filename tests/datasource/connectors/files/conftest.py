"""What the tests of the files connector share: a reader that follows positions as Spark would, through JSON."""

from typing import Any

import pyarrow as pa
import pytest
from kit.journal import through_json
from kit.malformed_rows import Reported
from kit.ranges import read_twice

from upstream.conf.options import parse_options
from upstream.datasource.connectors.contract import Connector, Limit, Position, Range
from upstream.datasource.connectors.files import FilesConnector, FilesOptions


class Following:
    """Reads what comes, batch after batch, each range twice."""

    def __init__(self, connector: Connector) -> None:
        self.connector = connector
        self.position: Position | None = None
        self.now_us = 1_000_000
        self.rows: list[dict[str, Any]] = []
        self.arrivals: list[int] = []
        self.malformed = Reported()
        self.last: list[Range] = []

    def step(self, now_us: int | None = None, limit: Limit | None = None) -> list[dict[str, Any]]:
        """One batch; its rows."""
        self.now_us = self.now_us + 1_000_000 if now_us is None else now_us
        advance = self.connector.advance(self.position, self.now_us, limit or Limit())
        if not advance.ranges:
            assert advance.position == (self.position or advance.position)
        elif self.position is not None:
            assert advance.position != self.position
        self.position = through_json(advance.position)
        self.last = list(advance.ranges)
        rows: list[dict[str, Any]] = []
        for part in self.last:
            first = read_twice(self.connector, part, self.malformed)
            rows += [row for row, _, _ in first]
            self.arrivals += [arrival for _, _, arrival in first]
        self.rows += rows
        return rows

    def drain(self, limit: Limit) -> list[dict[str, Any]]:
        """Batches until nothing comes; their rows."""
        rows: list[dict[str, Any]] = []
        while more := (self.step(limit=limit) or self.last):
            rows += [row for row in more if isinstance(row, dict)]
        return rows


@pytest.fixture
def folder(tmp_path):
    """Where the data lies."""
    made = tmp_path / "data"
    made.mkdir()
    return made


@pytest.fixture
def connect(folder):
    """Makes a connector of the folder, by options as a user writes them."""

    def make(schema=None, *, state=None, key=(), time=None, **options):
        if isinstance(schema, str):
            schema = pa.schema(
                [(name, getattr(pa, kind)()) for name, kind in (pair.split() for pair in schema.split(","))]
            )
        (parsed,) = parse_options({"path": str(folder), **options}, [FilesOptions])
        made = FilesConnector(parsed, state_folder=None if state is None else str(state), key=key, time=time)
        if schema is not None:
            made.fix_schema(schema)
        return made

    return make


@pytest.fixture
def follow(connect):
    """Makes a connector and follows it."""
    return lambda *args, **options: Following(connect(*args, **options))


@pytest.fixture
def following():
    """Follows a connector that there is."""
    return Following
