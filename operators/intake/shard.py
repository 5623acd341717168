"""Some of an input's feeds: a batch of rows in, the same rows with the system column out, then each feed's punctuation.

Pure logic over a :class:`~upstream.operators.runtime.store.Store`, which Spark's stateful processor and the tests
drive.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import MalformedRowError
from ...core.feedback.feed_reports import FeedReport
from ...core.pushdown.ipc_frames import from_frame
from ...core.rows.event_times import NO_TIME, event_time_us, time_scalar
from ...core.rows.system_column import SYSTEM, TIMESTAMP, system_array
from ...core.watermark.bounds import is_finite, times_of_bounds
from ...core.watermark.embedded import embedded_punctuation
from ...core.watermark.policies import Progress
from ..runtime.feeds import punctuation_rows
from ..runtime.state_head import check_identity, other_layout, read_head
from ..runtime.store import Store
from .pack import place_of
from .plan import DELETED, FEED, ORDER, IntakePlan

__all__ = ["REASON", "IntakeShard"]

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

REASON = "__upstream_reason"
"""The column that says why a row was put aside."""

_TIME = "__upstream_time"
_VERSION = 1
_ROWS_PER_BATCH = 1 << 36
"""Sequence numbers of a batch: each shard takes every so many-th of the batch's own, so that no two rows have the same,
and of two feeds' rows the one of the later batch is later."""


class IntakeShard:
    """One batch of some feeds.

    Parameters
    ----------
    plan : IntakePlan
    store : Store
        What the shard keeps: the progress of its feeds.

    Attributes
    ----------
    late, malformed : pyarrow.Table or None
        After :meth:`run`: rows below the low-watermark promised before them, which are given, too; and rows that are
        not given, with :data:`REASON`.

    Raises
    ------
    CheckpointError
        The state was written for another time or number of shards, or by another version.
    """

    def __init__(self, plan: IntakePlan, store: Store) -> None:
        self._plan = plan
        self._store = store
        self._head = read_head(store)
        if self._head:
            self._check()
        self._feeds: dict[str, dict[str, Any]] = self._head.get("feeds", {})
        self.late: pa.Table | None = None
        self.malformed: pa.Table | None = None

    @property
    def feeds(self) -> Collection[str]:
        """The feeds that the shard has."""
        return self._feeds.keys()

    def run(
        self,
        frames: Sequence[bytes],
        batch_id: int,
        shard: int = 0,
        promises: Mapping[str, int] | None = None,
        clock_us: int = 0,
    ) -> tuple[pa.Table | None, list[FeedReport]]:
        """Process the rows that arrived.

        Parameters
        ----------
        frames : sequence of bytes
            Frames in any order.
        batch_id : int
            The batch's number. It increases from batch to batch; a batch that is run again has the same one.
        shard : int
            The shard's number, below the plan's `shards`.
        promises : mapping of str to int, optional
            The bound that a feed sends besides its rows, after those of this batch; in microseconds.
        clock_us : int
            When the batch began, if no row of it says so.

        Returns
        -------
        pyarrow.Table or None
            The rows, then punctuation; None if there are neither.
        list of FeedReport
            Reports on all feeds of the shard.

        Raises
        ------
        MalformedRowError
            A row has no key or no readable time, and the plan fails on such rows.
        """
        tables = sorted((from_frame(frame) for frame in frames), key=place_of)
        # A clock that jumps back stands still.
        now_us = max([*(place_of(table)[0] for table in tables), self._head.get("now_us", 0), clock_us])
        given: list[pa.Table] = []
        seq = max(batch_id, 0) * _ROWS_PER_BATCH + shard
        before = {name: state["progress"]["bound"] for name, state in self._feeds.items()}
        judged: dict[str, Progress] = {}
        if tables:
            schema = tables[0].schema.remove_metadata()
            arrived = self._without_malformed(pa.concat_tables([table.cast(schema) for table in tables]))
            for feed, rows in _by_feed(arrived):
                judged[feed] = progress = self._progress(feed)
                self._feeds[feed]["arrival_us"] = now_us
                self._feeds[feed]["rows"] += rows.num_rows
                given.append(self._taken(feed, rows, progress, seq, now_us))
                seq += rows.num_rows * self._plan.shards
        # By the clock all feeds move, by their rows those that have some.
        moving = {feed: self._progress(feed) for feed in self._feeds if feed} if self._plan.stamped else {}
        for feed, progress in {**moving, **judged}.items():
            progress.close_batch(now_us)
            self._feeds[feed]["progress"] = progress.snapshot()
        for feed, bound in (promises or {}).items():
            progress = self._progress(feed)
            progress.promise(bound)
            self._feeds[feed]["progress"] = progress.snapshot()
        given.append(self._punctuation(before, now_us))
        self._save(now_us)
        result = pa.concat_tables(given)
        return (result if result.num_rows else None), self._reports()

    def _taken(self, feed: str, rows: pa.Table, progress: Progress, seq: int, now_us: int) -> pa.Table:
        """Return a feed's rows as they leave, with its own punctuation for single keys."""
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
        """Return the usable rows, with their times in microseconds.

        The others are quarantined, and counted for their feeds.
        """
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
                hint='leave such rows out before, or set on_malformed="quarantine" to put them aside',
            )
        self.malformed = put_aside
        for feed, count in _counts(pc.fill_null(rows.column(FEED), "").filter(pa.array(bad))):
            self._progress(feed)  # a feed of which nothing else is known is one, too
            self._feeds[feed]["rows"] += count
            self._feeds[feed]["malformed"] += count
        return rows.filter(pa.array(~bad))

    def _progress(self, feed: str) -> Progress:
        known = self._feeds.get(feed)
        if known is None:
            fresh = Progress(self._plan.policy)
            self._feeds[feed] = {"progress": fresh.snapshot(), "arrival_us": 0, "rows": 0, "malformed": 0}
            return fresh
        return Progress(self._plan.policy, known["progress"])

    def _punctuation(self, before: dict[str, int | None], now_us: int) -> pa.Table:
        """Return punctuation for the bounds of feeds that have changed since before the batch."""
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

    def _save(self, now_us: int) -> None:
        head = {"layout": _VERSION, "plan": self._plan.identity(), "now_us": now_us, "feeds": self._feeds}
        self._store.put("head", 0, json.dumps(head).encode())

    def _check(self) -> None:
        check_identity(
            self._head["plan"],
            self._plan.identity(),
            f"the progress of {self._plan.name!r} in this checkpoint was found",
            "time and number of shards",
            other_layout(self._head["layout"], _VERSION),
        )

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
    """Iterate over each feed's rows, in the order that the user named, or else in the order of arrival."""
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
    ):  # by name, so that nothing depends on who came first
        yield names[code], rows.slice(ends[code], ends[code + 1] - ends[code])


def _counts(feeds: pa.ChunkedArray) -> list[tuple[str, int]]:
    found = pc.value_counts(feeds)
    return [(each["values"], each["counts"]) for each in found.to_pylist()]


def _nulls(column: pa.ChunkedArray) -> Mask:
    return column.is_null().to_numpy()
