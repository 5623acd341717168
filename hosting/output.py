"""Output of the stages for the tables: frames of results, changes that wait, and events of queries."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ..conf.errors import QueryError
from ..core.rows.buckets import bucket_of
from ..core.rows.exact_integers import Int64s, Mask
from ..core.rows.frames import from_frame, to_frame
from ..core.rows.system_column import SYSTEM
from ..operators.relations.operator import FAILURES, reason_of
from ..operators.relations.zsets import TIME, WEIGHT, check_copies, consolidated, expanded, firsts_of, int64s, to_table
from ..operators.state.store import Store
from ..sink.results.result_table import ResultRows
from .evaluations import WaitingTables
from .host_plan import HostPlan, PlacedFragment, PlacedQuery, Result
from .messages import Outbox

_BATCH = 1 << 36
_UPSERT = 1 << 35
_STAMP = b"upstream.stamp"


@dataclass(frozen=True)
class Stamp:
    """The system values that all rows of a frame have in common.

    A frame has them once instead of a system column, because most results are small.
    """

    batch: int
    shard: int
    shards: int
    now_us: int  # newest arrival
    first_us: int  # arrival of the oldest row in the step

    def numbers(self, deleted: Mask) -> Int64s:
        """Return the rows' sequence numbers, given the mask of tombstones.

        They increase from batch to batch. Within a batch, upserts are above tombstones: a key that moves from one shard
        to another exists afterwards.
        """
        places = np.arange(len(deleted), dtype=np.int64) * self.shards + self.shard
        return max(self.batch, 0) * _BATCH + np.where(deleted, 0, _UPSERT) + places


def result_frames(query: PlacedQuery, changes: pl.DataFrame, stamp: Stamp) -> list[tuple[int, bytes]]:
    """Return bucket and frame of the rows for a query's table, from its consolidated changes; see :func:`result_rows`.

    Raises QueryError if two rows have one key.
    """
    result = query.result
    changes = result.of(changes)
    table = _appended(result, changes) if result.kind == "feed" else _upserted(query, changes)
    if table.num_rows == 0:
        return []
    table = table.replace_schema_metadata({_STAMP: _text(stamp)})
    if query.buckets == 1:
        return [(0, to_frame(table))]
    if result.kind == "feed":
        return [(stamp.shard % query.buckets, to_frame(table))]
    bucket = bucket_of([table.column(name) for name in result.key], query.buckets)
    return [(number, to_frame(table.filter(pa.array(bucket == number)))) for number in np.unique(bucket).tolist()]


@lru_cache(maxsize=64)
def _text(stamp: Stamp) -> str:
    return json.dumps(astuple(stamp))


def result_rows(frames: Sequence[bytes | pa.Buffer]) -> ResultRows:
    """Read the rows of some frames of one query."""
    tables = [from_frame(frame) for frame in frames]
    stamps = [_stamp(table) for table in tables]
    marks = [table.column(SYSTEM).to_numpy() for table in tables]
    sizes = [len(each) for each in marks]
    firsts = [
        table.column(TIME).to_numpy() if TIME in table.column_names else np.full(len(table), stamp.first_us)
        for table, stamp in zip(tables, stamps, strict=True)
    ]
    own = [[name for name in table.column_names if name not in (SYSTEM, TIME)] for table in tables]
    rows = pa.concat_tables(
        [table.select(names).replace_schema_metadata(None) for table, names in zip(tables, own, strict=True)]
    )
    return ResultRows(
        rows.combine_chunks(),
        np.concatenate([stamp.numbers(each) for stamp, each in zip(stamps, marks, strict=True)]),
        np.repeat(np.array([stamp.now_us for stamp in stamps], dtype=np.int64), sizes),
        np.concatenate(firsts),
        np.concatenate(marks),
    )


def _stamp(table: pa.Table) -> Stamp:
    assert table.schema.metadata is not None, "no frame of a result"
    return Stamp(*json.loads(table.schema.metadata[_STAMP]))


def _upserted(query: PlacedQuery, changes: pl.DataFrame) -> pa.Table:
    """Return upserts of the new rows and tombstones of the removed keys: one row for each key."""
    result = query.result
    # With many queries of few changes each, the number of calls determines the cost.
    times = changes.get_column(TIME)
    apart = result.queued or times.min() == times.max()
    moved = changes if apart else consolidated(changes.with_columns(pl.lit(0).alias(TIME)))
    weights = int64s(moved, WEIGHT)
    order = np.argsort(weights < 0, kind="stable")
    came = int(np.count_nonzero(weights > 0))
    first = firsts_of([moved.get_column(name) for name in result.key], order)
    if not first[:came].all() or weights.max(initial=1) > 1:
        raise QueryError(
            f"two rows of the query '{query.name}' have one key ({', '.join(result.key)})",
            expected="one row for each key at any time",
            hint="register it with another grouping, or report it",
        )
    deleted = (np.arange(len(first)) >= came)[first]
    rows = to_table(moved, result.schema).take(pa.array(order[first])).append_column(SYSTEM, pa.array(deleted))
    return rows.append_column(TIME, pa.array(int64s(moved, TIME)[order[first]])) if result.queued else rows


def _appended(result: Result, changes: pl.DataFrame) -> pa.Table:
    """Return each row of a feed with its time, repeated by its weight."""
    weights = int64s(changes, WEIGHT)
    check_copies(weights)
    at, _ = expanded(np.zeros(changes.height, dtype=np.int64), weights)
    rows = changes[at]
    return to_table(rows, result.schema).append_column(SYSTEM, pa.array(np.zeros(rows.height, dtype=np.bool_)))


_PAGES = 8


class DeferredChanges:
    """The changes that wait in a shard, by query.

    For a table, they are consolidated to net changes, so the state grows with the changed rows and not with the
    batches. For a feed, all changes are kept.
    """

    def __init__(self, store: Store, saved: Any) -> None:
        self._pages = WaitingTables(store, saved.get("pages", {}), "deferred")
        self._firsts: dict[int, int] = {int(query): first for query, first in saved.get("firsts", {}).items()}
        self._sizes: dict[str, list[int]] = saved.get("sizes", {})  # rows of each page

    def to_json(self) -> dict[str, Any]:
        return {"pages": self._pages.to_json(), "firsts": self._firsts, "sizes": self._sizes}

    @property
    def firsts(self) -> Mapping[int, int]:
        """The oldest arrival behind each query's waiting changes, in microseconds, by incarnation."""
        return self._firsts

    def put(self, query: PlacedQuery, changes: pl.DataFrame, first_us: int) -> None:
        """Add changes that wait; `first_us` is the oldest arrival behind them."""
        name = str(query.id)
        self._firsts[query.id] = min(first_us, self._firsts.get(query.id, first_us))
        sizes = self._sizes.setdefault(name, [])
        if query.result.kind == "latest" and len(sizes) + 1 >= _PAGES:
            # Pages that are much larger stay, so a row is added up only as often as the pages double.
            some, rows = [changes], changes.height
            while sizes and sizes[-1] <= 2 * rows:
                some.append(_frame(self._pages.take_last(name)))
                rows += sizes.pop()
            changes = added_up(query, some[::-1])
            if changes.height == 0 and not sizes:
                del self._firsts[query.id]
        if changes.height:
            if query.result.kind == "latest":
                sizes.append(changes.height)
            self._pages.put(name, changes.to_arrow(compat_level=pl.CompatLevel.oldest()))

    def take(self, query: PlacedQuery) -> tuple[list[pl.DataFrame], int | None]:
        """Remove and return a query's changes in order, and the oldest arrival behind them (None if none wait)."""
        return self._frames(query), self._firsts.pop(query.id, None)

    def keep(self, queries: Collection[int]) -> None:
        self._pages.keep({str(query) for query in queries})
        self._firsts = {query: first for query, first in self._firsts.items() if query in queries}
        self._sizes = {name: sizes for name, sizes in self._sizes.items() if int(name) in queries}

    def _frames(self, query: PlacedQuery) -> list[pl.DataFrame]:
        self._sizes.pop(str(query.id), None)
        return [_frame(table) for table in self._pages.take(str(query.id))]


def _frame(table: pa.Table) -> pl.DataFrame:
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)
    return found


def added_up(query: PlacedQuery, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Combine the changes of several batches: all of them for a feed, net changes at the last time for a table."""
    changes = pl.concat(frames)
    if query.result.kind == "feed":
        return changes
    # Of a queue, it is the arrival.
    return consolidated(changes.with_columns(pl.col(TIME).min() if query.result.queued else pl.col(TIME).max()))


class KnownQueries:
    """The queries of a stage in one shard.

    The queries that begin in one batch are a *generation*, named by the registry's version at that batch. Each
    generation gets its own changes from the first stage. A later query needs the existing rows as changes, which an
    earlier one has already had.
    """

    def __init__(self, saved: Any) -> None:
        self._generations: dict[int, int] = {int(number): each for number, each in saved.get("begun", {}).items()}
        self.failed: dict[int, str] = {int(number): reason for number, reason in saved.get("failed", {}).items()}
        """Reasons of the queries that failed in this shard, until the registry deactivates them."""
        self.clears = False
        """True if a query that failed in any shard is removed in this batch.

        Then queries that begin must not take over the state that only removed queries used. A shard in which one failed
        has lost that state, so the new queries would begin with different rows in each shard.
        """

    def to_json(self) -> dict[str, Any]:
        return {"begun": self._generations, "failed": self.failed}

    def follow(self, plan: HostPlan) -> None:
        """Begin the queries that are new in a plan, and forget those that it no longer has."""
        self.clears = not plan.failed.isdisjoint(self._generations)
        self._generations = {number: self._generations.get(number, plan.version) for number in plan.queries}
        refused = {number: reason for number, (_, reason) in plan.refused.items()}
        kept = {number: reason for number, reason in self.failed.items() if number in plan.queries}
        self.failed = {**kept, **refused}

    def job_name(self, query: PlacedQuery, fragment: PlacedFragment) -> str:
        """Return the name of a fragment's job: per query if the first stage finishes it, else per generation."""
        return f"{query.id}/{fragment.name}" if fragment.is_result else f"{fragment.name}@{self._generations[query.id]}"

    def fail(self, queries: Iterable[int], reason: str) -> None:
        """Record a failure; the first reason stays."""
        for number in queries:
            self.failed.setdefault(number, reason)

    def running(self, plan: HostPlan) -> list[PlacedQuery]:
        return [each for number, each in plan.queries.items() if number not in self.failed]


@dataclass(frozen=True)
class OutputControl:
    """The control of a row that leaves the second stage.

    The kinds are: ``rows``, a frame for a query's table; ``begun``, the query's first batch, in which its table
    restarts even without rows; ``failed``, a query of which nothing is kept; ``late``, a stream's rows below the
    low-watermark of some queries in this shard; ``waiting``, queries with results in this shard that this batch does
    not emit; ``reached``, the low-watermark of a domain; ``behind``, queries that this shard has not evaluated so far;
    ``state``, the files of a shard's state after the batch.
    """

    kind: str
    query: int = -1  # the incarnation; -1 for ``late`` and ``waiting``
    name: str = ""  # of the query, of the stream if ``late``, or of the domain if ``reached``
    bucket: int = 0
    reason: str = ""
    complete_from: int | None = None  # event time in µs from which results are complete; None if never certain
    complete_to: int | None = None  # the low-watermark in µs, if ``reached``
    count: int = 0  # number of late or of merged rows
    queries: tuple[int, ...] = ()  # those with late rows, those that wait, or those that are behind
    since: tuple[int, ...] = ()  # oldest arrival in µs behind the results of each query that waits
    took_s: float = field(default=0.0, compare=False)  # seconds in which a task merged the rows
    stage: int = 0  # of the shard, if ``state``
    shard: int = 0
    files: tuple[str, ...] = ()  # oldest first

    def control(self) -> str:
        """Return the control as text; equal ones have equal texts."""
        values = {name: value for name, value in vars(self).items() if value != _DEFAULTS[name]}
        return json.dumps({"kind": self.kind, **values}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def of(cls, control: str) -> OutputControl:
        values = json.loads(control)
        for name in ("queries", "since", "files"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)


_DEFAULTS = vars(OutputControl(""))


class ResultOutput:
    """Collects a shard's output for the tables, and reports failed queries to `known`.

    `served` has the queries whose results are emitted; None for all. Results of other queries wait.
    """

    def __init__(
        self, plan: HostPlan, known: KnownQueries, out: Outbox, deferred: DeferredChanges, served: frozenset[int] | None
    ) -> None:
        self._plan = plan
        self._known = known
        self._out = out
        self._deferred = deferred
        self._served = served
        self.queued: dict[int, int] = {}
        """The oldest arrival in µs that waits in the queue of a query, by incarnation."""
        deferred.keep([each.id for each in known.running(plan)])

    def take(self, query: PlacedQuery, changes: pl.DataFrame, stamp: Stamp) -> None:
        """Emit a query's changes, or defer them."""
        if self._served is not None and query.id not in self._served:
            self._deferred.put(query, changes, stamp.first_us)
            return
        frames, first_us = self._deferred.take(query)
        if first_us is not None:
            changes = added_up(query, [*frames, changes])
            stamp = replace(stamp, first_us=min(first_us, stamp.first_us))
        self._leave(query, changes, stamp)

    def close(self, stamp: Stamp) -> None:
        """Emit the deferred results of served queries, then the list of queries that still wait, and all failures."""
        for query in [self._plan.queries[number] for number in sorted(self._deferred.firsts)]:
            if query.id not in self._known.failed and (self._served is None or query.id in self._served):
                frames, first_us = self._deferred.take(query)
                assert first_us is not None
                self._leave(query, added_up(query, frames), replace(stamp, first_us=first_us))
        running = [each.id for each in self._known.running(self._plan)]
        self._deferred.keep(running)
        firsts = {number: first for number, first in self.queued.items() if number in running}
        for number, first in self._deferred.firsts.items():
            firsts[number] = min(first, firsts.get(number, first))
        if firsts:
            queries = tuple(sorted(firsts))
            waiting = OutputControl("waiting", queries=queries, since=tuple(firsts[each] for each in queries))
            self._out.put(self._shard("waiting"), waiting.control())
        self._failures()

    def _leave(self, query: PlacedQuery, changes: pl.DataFrame, stamp: Stamp) -> None:
        try:
            frames = result_frames(query, changes, stamp)
        except FAILURES as error:
            self._known.fail([query.id], reason_of(error))
            return
        for bucket, frame in frames:
            self._put(OutputControl("rows", query.id, query.name, bucket), frame)

    def begin(self, query: PlacedQuery, complete_from: int | None, since: int | None) -> None:
        """Emit that this is a query's first batch; a feed has no changes from before `since`."""
        if query.result.kind == "feed" and complete_from is not None and since is not None:
            complete_from = max(complete_from, since)
        self._put(OutputControl("begun", query.id, query.name, complete_from=complete_from))

    def late(self, stream: str, count: int, queries: Sequence[int]) -> None:
        """Emit that some queries miss rows of a stream."""
        leaving = OutputControl("late", name=stream, count=count, queries=tuple(queries))
        self._out.put(self._shard(stream), leaving.control())

    def reach(self, domains: Mapping[str, int], behind: Iterable[int]) -> None:
        """Emit the low-watermarks of some domains, and the queries that are not evaluated up to them."""
        for name, low in sorted(domains.items()):
            self._out.put(self._shard(name), OutputControl("reached", name=name, complete_to=low).control())
        if lagging := tuple(sorted(set(behind))):
            self._out.put(self._shard("behind"), OutputControl("behind", queries=lagging).control())

    def _failures(self) -> None:
        """Emit the failures of this shard, those of earlier batches included."""
        names = {number: each.name for number, each in self._plan.queries.items()}
        names |= {number: name for number, (name, _) in self._plan.refused.items()}
        for number, reason in self._known.failed.items():
            self._put(OutputControl("failed", number, names[number], reason=reason))

    def _put(self, leaving: OutputControl, frame: bytes | None = None) -> None:
        self._out.put(self._shard(f"{leaving.query:08x}{leaving.bucket}"), leaving.control(), frame)

    def _shard(self, name: str) -> int:
        return zlib.crc32(name.encode()) % self._plan.shards


@dataclasses.dataclass
class BatchOutcome:
    """The outcome of a batch. All mappings are by incarnation."""

    # Input of each table's commit, from the tasks that had rows
    staged: dict[int, list[bytes]] = dataclasses.field(default_factory=dict[int, list[bytes]])
    # Number of rows and tombstones for a table
    rows: dict[int, int] = dataclasses.field(default_factory=dict[int, int])
    # Names and reasons
    failed: dict[int, tuple[str, str]] = dataclasses.field(default_factory=dict[int, tuple[str, str]])
    # Of queries in their first batch: event time in µs from which results are complete; None if never certain
    began: dict[int, int | None] = dataclasses.field(default_factory=dict[int, "int | None"])
    # Number of rows below the query's low-watermark
    late: dict[int, int] = dataclasses.field(default_factory=dict[int, int])
    # Oldest arrival in µs behind results that this batch did not emit
    waiting: dict[int, int] = dataclasses.field(default_factory=dict[int, int])
    # Seconds in which tasks merged a table's rows
    took_s: dict[int, float] = dataclasses.field(default_factory=dict[int, float])
    # Low-watermark in µs, by domain
    reached: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    # Queries that are not evaluated up to it
    behind: set[int] = dataclasses.field(default_factory=set[int])
    # Files of each shard's state after the batch, by stage and shard
    states: dict[tuple[int, int], tuple[str, ...]] = dataclasses.field(
        default_factory=dict[tuple[int, int], tuple[str, ...]]
    )

    def fail(self, number: int, name: str, reason: str) -> None:
        """Record a failure. The reason that sorts first counts, so the order of the calls does not matter."""
        known = self.failed.get(number, (name, reason))
        self.failed[number] = name, min(known[1], reason)

    def bounds(self, queries: Mapping[int, PlacedQuery]) -> dict[str, dict[str, int]]:
        """Return the bounds up to which the results of this batch have the rows of each stream, by the query's name.

        A query without a low-watermark, or that has not reached it, has none.
        """
        return {
            query.name: dict.fromkeys(query.domain.streams, self.reached[query.domain.name])
            for number, query in queries.items()
            if query.domain.name in self.reached and number not in self.behind and number not in self.waiting
        }


def outcome_of(left: Iterable[tuple[str, bytes | None]]) -> BatchOutcome:
    """Combine the rows of :class:`~.table_merge.MergeStep`, in any order: controls and staged files."""
    outcome = BatchOutcome()
    for control, staged in left:
        leaving = OutputControl.of(control)
        match leaving.kind:
            case "rows":
                if staged is not None:
                    outcome.staged.setdefault(leaving.query, []).append(bytes(staged))
                outcome.rows[leaving.query] = outcome.rows.get(leaving.query, 0) + leaving.count
                outcome.took_s[leaving.query] = outcome.took_s.get(leaving.query, 0.0) + leaving.took_s
            case "failed":
                outcome.fail(leaving.query, leaving.name, leaving.reason)
            case "begun":
                since = leaving.complete_from
                known = outcome.began.get(leaving.query, since)
                outcome.began[leaving.query] = None if known is None or since is None else max(known, since)
            case "late":
                for number in leaving.queries:
                    outcome.late[number] = outcome.late.get(number, 0) + leaving.count
            case "waiting":
                for number, since in zip(leaving.queries, leaving.since, strict=True):
                    outcome.waiting[number] = min(since, outcome.waiting.get(number, since))
            case "reached":
                assert leaving.complete_to is not None
                outcome.reached[leaving.name] = leaving.complete_to
            case "behind":
                outcome.behind.update(leaving.queries)
            case "state":
                outcome.states[leaving.stage, leaving.shard] = leaving.files
            case kind:
                raise ValueError(f"a row of the kind {kind!r} left the second stage")
    return outcome
