"""The lanes of a hosted stream: rows for readers of newest rows, and for readers of every row."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal

import pyarrow as pa

from ...storage.folder import TableFolder
from .checkpoint_layout import LANES
from .reports import write_value

Lane = Literal["both", "newest", "every"]

LANE: ContextVar[Lane] = ContextVar("LANE", default="both")
"""The lane of the task that reads, for the step that sends its rows."""

NEWEST: ContextVar[tuple[tuple[str, ...], str] | None] = ContextVar("NEWEST", default=None)
"""The key and the event time by which the task may read only each key's newest row; None for all rows.

The step that sends the rows sets it before it takes the first one, and resets it after the last. So it also holds for
the query's version, which the planner of the task does not have.
"""


def every_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches, all rows of which are read: a step that follows may drop or change some."""
    NEWEST.set(None)
    yield from batches


LANE_FIGURES = "lanes"
"""The member of a source's end offset with the figures of its lanes.

`newest` and `every` are the spans of the rows that the batch gave to both kinds of readers, within the `budget` of the
`stream`. `owed` is the span that readers of every row lack after it, and `since_us` its oldest arrival.
"""

_EVERY_S = 1.0
"""The interval at which a report in an object store is read."""


@dataclasses.dataclass(frozen=True)
class StreamLanes:
    """The readers of a stream, and the budget of rows in a batch for those of every row (None: no limit)."""

    newest: bool  # some need only the newest row of each key
    every: bool
    budget: int | None = None


def write_lanes(checkpoint: TableFolder, lanes: Mapping[str, StreamLanes], more: Mapping[str, Any]) -> None:
    """Replace the report of the streams' lanes, by stream; `more` is for the writer's next start."""
    streams = {name: dataclasses.asdict(each) for name, each in lanes.items()}
    write_value(checkpoint, LANES, {"streams": streams, **more})


def read_lanes(checkpoint: TableFolder) -> tuple[dict[str, StreamLanes], Mapping[str, Any]]:
    """Return the report of the streams' lanes, and what else it has; both are empty if there is none."""
    try:
        found = json.loads(checkpoint.read(LANES))
    except FileNotFoundError:
        return {}, {}
    return {name: StreamLanes(**each) for name, each in found.pop("streams").items()}, found


class LaneReader:
    """The part of a source's planner that reads the host's report of its stream."""

    def __init__(self, checkpoint: TableFolder, stream: str) -> None:
        self.stream = stream
        self._checkpoint = checkpoint
        self._known: StreamLanes | None = None
        self._read_at = float("-inf")

    def __call__(self) -> StreamLanes | None:
        """Return the last report; None before the first one. Without any, the source has no limit and no lag."""
        now = time.monotonic()
        if self._checkpoint.is_local or now - self._read_at >= _EVERY_S:
            self._known, self._read_at = read_lanes(self._checkpoint)[0].get(self.stream), now
        return self._known
