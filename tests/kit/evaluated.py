"""A query over streams of a few rows: what changes in its result, and the relation at a time."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import polars as pl

from upstream.language import Catalog, bind
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.nodes import Changes, Relation, Stream, walk
from upstream.operators.relations.streams import TOMBSTONE
from upstream.operators.relations.zsets import TIME, WEIGHT, dtypes_of
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


def changes_of_frames(
    plan: Relation | Changes, given: Mapping[str, pl.DataFrame], bounds: Sequence[int], end_us: int
) -> pl.DataFrame:
    """Return the changes of a plan up to a time, if rows come in steps, each with a new evaluation over one store.

    A step takes the rows whose ``__at`` is below its bound, and the last one the others. Stored relations come first.
    """
    streams = {each.name: each for each in walk(plan) if isinstance(each, Stream)}
    waiting, store, found = {name: given[name] for name in streams}, DictStore(), list[pl.DataFrame]()
    for bound in [*bounds, None]:
        below = {
            name: pl.lit(bound is None or stream.static) | (pl.col("__at") < (bound or 0))
            for name, stream in streams.items()
        }
        now = {name: rows.filter(below[name]).drop("__at") for name, rows in waiting.items()}
        waiting = {name: rows.filter(~below[name]) for name, rows in waiting.items()}
        times = [
            rows[streams[name].event_time].dt.timestamp("us").min() for name, rows in waiting.items() if rows.height
        ]
        evaluation = Evaluation(store)
        evaluation.add("q", plan)
        outcome = evaluation.step(now, min([*times, end_us]))
        assert not outcome.failed, outcome.failed
        assert not any(each.height for each in outcome.late.values())
        found.append(outcome.changes["q"])
        evaluation.save()
    return pl.concat(found)


def plain(value: Any) -> Any:
    """Return a value as it compares with that of another engine: NaN is equal to itself."""
    if isinstance(value, dict):
        return plain(list(cast("dict[str, Any]", value).values()))
    if isinstance(value, list | tuple):
        return tuple(plain(each) for each in cast("list[Any]", value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else round(value, 7)
    return value


def rows_at(changes: pl.DataFrame, tau: int | None = None) -> Counter[tuple[Any, ...]]:
    """Return the relation at a time, or after all changes."""
    there = changes if tau is None else changes.filter(pl.col(TIME) <= tau)
    summed = there.group_by(pl.all().exclude(TIME, WEIGHT)).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0)
    counts: Counter[tuple[Any, ...]] = Counter()
    for *row, weight in summed.rows():
        counts[tuple(map(plain, row))] += weight
    return counts
