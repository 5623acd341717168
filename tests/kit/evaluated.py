"""A query over streams of a few rows: what changes in its result, and the relation at a time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import polars as pl

from upstream.language import Catalog, bind
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.nodes import Stream
from upstream.operators.relations.streams import TOMBSTONE
from upstream.operators.relations.zsets import dtypes_of
from upstream.operators.state.store import DictStore

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Rows = Sequence[tuple[Any, ...]]


def _frame(stream: Stream, rows: Rows, unit: timedelta) -> pl.DataFrame:
    """Make rows of a stream, whose times are whole numbers; a row with one value more is a tombstone."""
    names = stream.schema.names
    moved = [
        [_EPOCH + unit * value if name == stream.event_time else value for name, value in zip(names, row, strict=False)]
        for row in rows
    ]
    made = pl.DataFrame(moved, schema=dtypes_of(stream.schema), orient="row")
    return made.with_columns(pl.Series(TOMBSTONE, [len(row) > len(names) for row in rows], dtype=pl.Boolean))


def changes(
    sql: str,
    given: Mapping[Stream, Rows],
    *,
    end: int = 20,
    steps: int = 1,
    unit: timedelta = timedelta(microseconds=1),
) -> list[tuple[Any, ...]]:
    """Return the changes of a query up to a time, as (columns…, time, weight), if the rows come in some steps.

    Times are whole numbers of the unit. The rows of a stored relation come first.
    """
    catalog = Catalog()
    for stream in given:
        catalog = catalog.with_stream(stream)
    evaluation = Evaluation(DictStore())
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
