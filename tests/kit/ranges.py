"""Reading what a connector has planned, as a task does."""

from typing import Any

from upstream.datasource.connectors.contract import Connector, MalformedRows, Range

from .journal import through_json
from .malformed_rows import Reported

Row = tuple[dict[str, Any], int, int]
"""Columns by name, the row's number in its range, its arrival."""


def read_twice(connector: Connector, part: Range, malformed: MalformedRows) -> list[Row]:
    """The rows of a range that has gone through the journal, which are the same at a second reading."""
    again = Range.from_json(through_json(part.to_json()))
    rows = read_range(connector, again, malformed)
    assert read_range(connector, again, Reported()) == rows
    return rows


def read_range(connector: Connector, part: Range, malformed: MalformedRows) -> list[Row]:
    """The rows of a range; their numbers increase, and are below the range's span."""
    found: list[Row] = []
    for chunk in connector.read(part, None, malformed):
        count = chunk.rows.num_rows
        numbers = range(chunk.index, chunk.index + count) if isinstance(chunk.index, int) else map(int, chunk.index)
        arrivals = [part.arrival_us] * count if chunk.arrival_us is None else map(int, chunk.arrival_us)
        found += zip(chunk.rows.to_pylist(), numbers, arrivals, strict=True)
    numbered = [number for _, number, _ in found]
    assert numbered == sorted(set(numbered))
    assert all(0 <= number < part.span for number in numbered)
    return found
