"""A table that the sink's own classes write, and a follower that reads it batch by batch, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kit.journal import through_json
from kit.sink import NOW_US, Sink

from upstream.datasource.connectors.contract import Limit
from upstream.datasource.planner import Offset, Planner
from upstream.datasource.registry import CONNECTORS, parse_source_options
from upstream.datasource.schema import leaving_schema, shape_of, with_key
from upstream.datasource.task import Reading


class Follower:
    """Reads a latest table as Spark would: offsets go through JSON, and a new process is one call away."""

    def __init__(self, table: Path, **options: str) -> None:
        given = {"connector": "latest", "path": str(table), "timeFormat": "epoch_us", **options}
        self.given = {name: value for name, value in given.items() if value}
        self.offset: Offset = Planner.initial()
        self.now_us = NOW_US + 1_000_000
        self.restart()

    def restart(self) -> None:
        """A new process: nothing but the offset is known."""
        common, own = parse_source_options(self.given)
        schema = leaving_schema(CONNECTORS["latest"].make(own, common, None).schema(), common)
        connector = CONNECTORS["latest"].make(own, common, None)
        shape = shape_of(schema, common)
        common = with_key(common, shape)
        connector.fix_schema(shape.rows)
        self.options, self.schema = common, schema
        self.reading = Reading(common, shape, connector, "unused")
        self.limit = connector.limit(common.limit())
        self.planner = Planner(connector, common, shape, clock=lambda: self.now_us, new_id=lambda: "follower")

    def plan(self, limit: Limit | None = None) -> Offset:
        """The end of the next batch."""
        return through_json(self.planner.plan(self.offset, self.limit if limit is None else limit))

    def read(self, end: Offset) -> list[list[pa.RecordBatch]]:
        """What each task of the batch that ends there gives."""
        return [list(self.reading.read(task)) for task in self.planner.tasks(self.offset, end)]

    def take(self) -> list[list[pa.RecordBatch]] | None:
        """The next batch, committed; None if nothing has come."""
        end = self.plan()
        if end == self.offset:
            return None
        batches = self.read(end)
        self.planner.commit(end)
        self.offset = end
        return batches

    def rows(self) -> list[dict[str, Any]]:
        """All rows until there is nothing more."""
        found: list[dict[str, Any]] = []
        while (tasks := self.take()) is not None:
            found += [row for task in tasks for batch in task for row in batch.to_pylist()]
        return found


@pytest.fixture
def make_first(tmp_path: Path) -> Callable[..., Sink]:
    def make(folder: Path = tmp_path / "first", **options: str) -> Sink:
        chosen = {"key": "k", "time": "t", "buckets": "2"} | options
        return Sink(folder, options={name: value for name, value in chosen.items() if value})

    return make


@pytest.fixture
def first(make_first: Callable[..., Sink]) -> Sink:
    return make_first()


@pytest.fixture
def follower_of() -> type[Follower]:
    return Follower


@pytest.fixture
def follow(first: Sink) -> Callable[..., Follower]:
    return lambda **options: Follower(first.path, **options)
