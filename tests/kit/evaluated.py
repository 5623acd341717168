"""A query over streams of a few rows: what changes in its result, and the relation at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import polars as pl
import pyarrow as pa
from kit.continuous import MOMENT

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.operator import Computed
from upstream.queries.deltas.streams import TOMBSTONE
from upstream.queries.expressions.compile import compiled
from upstream.queries.expressions.nodes import Expression, fields
from upstream.queries.language import Catalog, bind
from upstream.queries.relations.nodes import Stream

__all__ = ["changes", "relation_at"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_KINDS = {
    pa.string(): pl.String(),
    pa.float64(): pl.Float64(),
    MOMENT: pl.Datetime("us", "UTC"),
    pa.int64(): pl.Int64(),
}

Rows = Sequence[tuple[Any, ...]]


def _computed(expression: Expression, schema: pa.Schema) -> Computed:
    return Computed(compiled(expression, schema).evaluate, fields(expression), expression.type)


def _frame(stream: Stream, rows: Rows, unit: timedelta) -> pl.DataFrame:
    """Make rows of a stream, whose times are whole numbers; a row with one value more is a tombstone."""
    names = stream.schema.names
    schema = {each.name: _KINDS[each.type] for each in stream.schema}
    moved = [
        tuple(
            _EPOCH + unit * value if names[at] == stream.event_time else value
            for at, value in enumerate(row[: len(names)])
        )
        for row in rows
    ]
    made = pl.DataFrame(moved, schema=schema, orient="row")
    return made.with_columns(pl.Series(TOMBSTONE, [len(row) > len(names) for row in rows], dtype=pl.Boolean))


def changes(
    sql: str,
    given: Mapping[Stream, Rows],
    *,
    end: int = 20,
    steps: int = 1,
    unit: timedelta = timedelta(microseconds=1),
) -> list[tuple[Any, ...]]:
    """Return the changes of a query up to a time, as (columns…, time, weight).

    Parameters
    ----------
    sql
        The query.
    given
        Each stream's rows by their times, which are whole numbers of the unit; a stored relation's rows come first.
    end
        The time up to which everything has come.
    steps
        In how many steps the rows come.
    unit
        The length of one unit of time.
    """
    catalog = Catalog()
    for stream in given:
        catalog = catalog.with_stream(stream)
    evaluation = Evaluation(DictStore(), _computed)
    evaluation.add("q", bind(sql, catalog).plan)
    microseconds = unit // timedelta(microseconds=1)
    found: list[tuple[Any, ...]] = []
    for step in range(steps):
        rows: dict[str, pl.DataFrame] = {}
        after: list[int] = []
        for stream, all_rows in given.items():
            if stream.static:
                rows[stream.name] = _frame(stream, all_rows if step == 0 else [], unit)
                continue
            size = -(-len(all_rows) // steps)
            rows[stream.name] = _frame(stream, all_rows[step * size : (step + 1) * size], unit)
            at = stream.schema.names.index(stream.event_time)
            after += [row[at] for row in all_rows[(step + 1) * size :]]
        outcome = evaluation.step(rows, (min(after) if after else end) * microseconds)
        assert not outcome.failed, outcome.failed
        assert not any(each.height for each in outcome.late.values())
        found += [(*row, time // microseconds, weight) for *row, time, weight in outcome.changes["q"].rows()]
    return found


def relation_at(found: list[tuple[Any, ...]], tau: int) -> Counter[tuple[Any, ...]]:
    """Return the relation at a time."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for *row, time, weight in found:
        if time <= tau:
            counts[tuple(row)] += weight
    return Counter({row: count for row, count in counts.items() if count})
