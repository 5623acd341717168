"""The packing of an input's rows by feed, and one shard: the rows with the system column, and punctuation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import MalformedRowError
from ...core.feedback.reports import FeedReport, FeedReports
from ...core.rows.event_times import NO_TIME, event_time_us, time_scalar
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.frames import by_bucket, from_frame, some_at_once, to_frame
from ...core.rows.system_column import SYSTEM, TIMESTAMP, system_array
from ...core.watermark.bounds import embedded_punctuation, is_finite, times_of_bounds
from ...core.watermark.policies import FeedProgress
from ..runtime.feeds import punctuation_rows
from ..runtime.pack import packed
from ..runtime.shard import REASON, Shard, ShardInput
from ..state.runs import RunFiles
from ..state.store import Store
from .plan import ARRIVAL, DELETED, FEED, ORDER, IntakePlan

_PLACE = b"upstream.place"

Batches = Iterator[pa.RecordBatch]


def intake_pack(slots: Sequence[int], *, every_shard: bool) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that packs a task's rows into frames.

    The shard of a feed is the bucket of its name, and `slots` has Spark's grouping number of each shard. With
    `every_shard` each shard gets a frame in each batch, so that the clock also moves silent feeds.
    """

    def run(batches: Batches) -> Batches:
        from pyspark import TaskContext  # not for readers of this module's names, such as the workbench

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        for number, table in enumerate(some_at_once(batches)):
            yield frames_of(table, slots, (task, number), every_shard=every_shard)

    return run


def frames_of(
    table: pa.Table, slots: Sequence[int], place: tuple[int, int], *, every_shard: bool, clock_us: int = 0
) -> pa.RecordBatch:
    """Return the frames of rows that have :data:`FEED` and :data:`ARRIVAL`.

    `place` is the task's number and the part's number within it, by which frames are sorted. `clock_us` is the batch's
    start: it replaces the arrival in a batch without rows.
    """
    arrived = pc.max(table.column(ARRIVAL).cast(TIMESTAMP).cast(pa.int64())).as_py()
    arrival_us = clock_us if arrived is None else int(arrived)
    rows = table.drop_columns([ARRIVAL])
    metadata = {_PLACE: json.dumps([arrival_us, *place])}
    parts = dict(by_bucket(rows, [FEED], len(slots)))
    if every_shard:
        parts = {number: parts.get(number, rows.slice(0, 0)) for number in range(len(slots))}
    return packed([(number, to_frame(part.replace_schema_metadata(metadata))) for number, part in parts.items()], slots)


def place_of(frame: pa.Table) -> tuple[int, ...]:
    """Return a frame's sort key: its arrival in microseconds, the task's number, and the part's number."""
    found: Any = json.loads(frame.schema.metadata[_PLACE])
    return tuple(np.array(found, dtype=np.int64).tolist())


_TIME = "__upstream_time"
_ROWS_PER_BATCH = 1 << 36
"""Sequence numbers of a batch: the shards take them in turn, so no two rows share one. Later batches' are greater."""


class IntakeShard(Shard[IntakePlan, FeedReports]):
    """A shard of an input: rows in, the same rows with the system column out, then each feed's punctuation.

    `late` has the rows below their feed's low-watermark, which are also in the result. `malformed` has the rows left
    out, with :data:`REASON`.
    """

    same = "time and number of shards"
    report = FeedReports

    def __init__(self, number: int, plan: IntakePlan, store: Store, files: RunFiles | None = None) -> None:
        self.began = f"the progress of {plan.name!r} in this checkpoint was found"
        super().__init__(number, plan, store, files)
        self._feeds: dict[str, dict[str, Any]] = self._head.get("feeds", {})

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return the batch's rows and then punctuation, and reports on all feeds of the shard.

        Frames may come in any order. A rerun needs the same batch ID, since sequence numbers follow from it. The
        control has feeds' bounds in microseconds, which hold after the rows of this batch, and the batch's start. It
        is for all shards, of which one alone has any feed.
        """
        control: dict[str, Any] = {} if given.control is None else json.loads(given.control)
        own = self._plan.shards == 1
        promises = {feed: bound for feed, bound in control.get("promises", {}).items() if own or feed in self._feeds}
        tables = sorted((from_frame(frame) for frame in given.left), key=place_of)
        # The clock never moves back.
        now_us = self._now_us = max([*(place_of(table)[0] for table in tables), self._now_us, control.get("now_us", 0)])
        leaving: list[pa.Table] = []
        seq = max(given.batch_id, 0) * _ROWS_PER_BATCH + self._number
        before = {name: state["progress"]["bound"] for name, state in self._feeds.items()}
        judged: dict[str, FeedProgress] = {}
        if tables:
            schema = tables[0].schema.remove_metadata()
            arrived = self._without_malformed(pa.concat_tables([table.cast(schema) for table in tables]))
            for feed, rows in _by_feed(arrived):
                judged[feed] = progress = self._progress(feed)
                self._feeds[feed]["arrival_us"] = now_us
                self._feeds[feed]["rows"] += rows.num_rows
                leaving.append(self._taken(feed, rows, progress, seq, now_us))
                seq += rows.num_rows * self._plan.shards
        # The clock moves all feeds; rows move only their own feed.
        moving = {feed: self._progress(feed) for feed in self._feeds if feed} if self._plan.stamped else {}
        for feed, progress in {**moving, **judged}.items():
            progress.close_batch(now_us)
            self._feeds[feed]["progress"] = progress.snapshot()
        for feed, bound in promises.items():
            progress = self._progress(feed)
            progress.promise(bound)
            self._feeds[feed]["progress"] = progress.snapshot()
        leaving.append(self._punctuation(before, now_us))
        return pa.concat_tables(leaving), {"feeds": self._reports()}

    def saved(self) -> dict[str, Any]:
        return {"feeds": self._feeds}

    def _taken(self, feed: str, rows: pa.Table, progress: FeedProgress, seq: int, now_us: int) -> pa.Table:
        """Return a feed's output rows, and its own punctuation for single keys."""
        plan = self._plan
        n = rows.num_rows
        numbers = seq + np.arange(n, dtype=np.int64) * plan.shards
        own = rows.select(plan.schema.names)
        deleted = rows.column(DELETED).to_numpy() if DELETED in rows.column_names else None
        times = rows.column(_TIME).to_numpy() if _TIME in rows.column_names else None
        marks = np.zeros(n, dtype=np.bool_)
        keyed = marks
        if plan.policy.name == "embedded":
            marks = embedded_punctuation(own, plan.key, plan.time)
            keyed = marks & np.any([own.column(name).is_valid().to_numpy() for name in plan.key], axis=0)
        arrival = np.full(n, now_us, dtype=np.int64)
        system = system_array(source=feed, seq=numbers, arrival_us=arrival, deleted=deleted)
        leaving = self._leaving(own, times, system, now_us)
        if times is not None and not plan.stamped:
            bound = progress.bound
            progress.observe(times[~marks])
            if bound is not None:
                late = (times < bound) & ~marks
                if late.any():
                    missed = leaving.filter(pa.array(late))
                    self.late = missed if self.late is None else pa.concat_tables([self.late, missed])
            feed_wide = marks & ~keyed
            if feed_wide.any():
                progress.observe_punctuation(int(times[feed_wide].max()))
        if not marks.any():
            return leaving
        single = system_array(source=feed, seq=numbers, arrival_us=arrival, punctuation=True)
        of_keys = self._leaving(own, times, single, now_us).filter(pa.array(keyed))
        return pa.concat_tables([leaving.filter(pa.array(~marks)), of_keys])

    def _times(self, rows: pa.Table) -> Int64s | None:
        plan = self._plan
        if plan.time is None or plan.stamped:
            return None
        return event_time_us(rows.column(plan.time), plan.time_format, plan.time_zone)

    def _leaving(self, rows: pa.Table, times: Int64s | None, system: pa.StructArray, now_us: int) -> pa.Table:
        plan, schema = self._plan, self._plan.leaving
        columns: dict[str, Any] = {name: rows.column(name) for name in rows.column_names}
        if plan.stamped and plan.time is not None:
            columns[plan.time] = pa.array(np.full(rows.num_rows, now_us, dtype=np.int64)).view(TIMESTAMP)
        elif plan.time is not None and times is not None and schema.field(plan.time).type == TIMESTAMP:
            columns[plan.time] = pa.array(times).view(TIMESTAMP)
        columns[SYSTEM] = system
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def _without_malformed(self, rows: pa.Table) -> pa.Table:
        """Return the usable rows, with their times in microseconds; quarantine the others, counted by feed."""
        plan = self._plan
        own = rows.select(plan.schema.names)
        marks = np.zeros(rows.num_rows, dtype=np.bool_)
        if plan.policy.name == "embedded":
            marks = embedded_punctuation(own, plan.key, plan.time)
        reasons = [(name, "is null, and it is part of the update key") for name in plan.key]
        found = [(_nulls(own.column(name)) & ~marks, f"{name!r} {text}") for name, text in reasons]
        times = self._times(own)
        if times is not None:
            rows = rows.append_column(_TIME, pa.array(times))
            found.append((times == NO_TIME, f"the time {plan.time!r} is null or cannot be read as a time"))
        found.append((_nulls(rows.column(FEED)), "the name of its feed is null"))
        bad = np.any([mask for mask, _ in found], axis=0)
        if not bad.any():
            return rows
        first = np.select([mask for mask, _ in found], np.arange(len(found)), -1)[bad]
        reason = pa.array([text for _, text in found]).take(pa.array(first))
        put_aside = own.filter(pa.array(bad)).append_column(REASON, reason)
        if plan.fail:
            raise MalformedRowError(
                f"{put_aside.num_rows} rows of {plan.name!r} cannot be used: {reason[0]}; the first reads "
                f"{str(own.filter(pa.array(bad)).slice(0, 1).to_pylist()[0])[:200]}",
                expected="a key and a time in each row",
                hint='leave such rows out before, or set on_malformed="quarantine" to keep them as dead letters',
            )
        self.malformed = put_aside
        for feed, count in _counts(pc.fill_null(rows.column(FEED), "").filter(pa.array(bad))):
            self._progress(feed)  # a feed with malformed rows only is a feed, too
            self._feeds[feed]["rows"] += count
            self._feeds[feed]["malformed"] += count
        return rows.filter(pa.array(~bad))

    def _progress(self, feed: str) -> FeedProgress:
        known = self._feeds.get(feed)
        if known is None:
            fresh = FeedProgress(self._plan.policy)
            self._feeds[feed] = {"progress": fresh.snapshot(), "arrival_us": 0, "rows": 0, "malformed": 0}
            return fresh
        return FeedProgress(self._plan.policy, known["progress"])

    def _punctuation(self, before: dict[str, int | None], now_us: int) -> pa.Table:
        """Return punctuation for the feeds whose bound has changed since `before`."""
        plan, schema = self._plan, self._plan.leaving
        bounds = {feed: state["progress"]["bound"] for feed, state in self._feeds.items()}
        due = {feed: bound for feed, bound in bounds.items() if bound is not None and bound != before.get(feed)}
        if plan.time is None or not due:
            return schema.empty_table()
        kind = schema.field(plan.time).type
        at = times_of_bounds(
            list(due.values()), kind, lambda bound: time_scalar(bound, kind, plan.time_format, plan.time_zone)
        )
        return punctuation_rows(schema, list(due), now_us, **{plan.time: at})

    def _reports(self) -> list[FeedReport]:
        return [
            FeedReport(
                feed=feed,
                bound=bound if is_finite(bound := state["progress"]["bound"]) else None,
                newest=state["progress"]["confirmed"],
                arrival_us=state["arrival_us"],
                rows=state["rows"],
                late=state["progress"]["late"],
                suspects=state["progress"]["suspects"],
                malformed=state["malformed"],
                progress=None if self._plan.on_demand is None else state["progress"],
            )
            for feed, state in self._feeds.items()
        ]


def _by_feed(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield each feed's rows, in the order that the user named, or else in the order of arrival."""
    if rows.num_rows == 0:
        return
    encoded = rows.column(FEED).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    keys = {"feed": encoded.indices}
    if ORDER in rows.column_names:
        keys["order"] = rows.column(ORDER)
    place = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    codes = encoded.indices.take(place).to_numpy(zero_copy_only=False)
    rows = rows.take(place)
    names = encoded.dictionary.to_pylist()
    ends = np.searchsorted(codes, np.arange(len(names) + 1))
    for code in sorted(
        range(len(names)), key=lambda code: names[code]
    ):  # by name, so that the result does not depend on the order of arrival
        yield names[code], rows.slice(ends[code], ends[code + 1] - ends[code])


def _counts(feeds: pa.ChunkedArray) -> list[tuple[str, int]]:
    found = pc.value_counts(feeds)
    return [(each["values"], each["counts"]) for each in found.to_pylist()]


def _nulls(column: pa.ChunkedArray) -> Mask:
    return column.is_null().to_numpy()
