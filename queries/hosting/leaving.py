"""Output of the stages for the tables: frames of results, and events of queries."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import polars as pl

from ..deltas.failures import FAILURES, reason_of
from .deferring import Deferred, added_up
from .evaluating import Job, Stepped
from .host_plan import Domain, Hosted, HostPlan
from .known_queries import KnownQueries
from .messages import Outbox
from .results import Stamp, result_frames

__all__ = ["Leaving", "Results"]


@dataclass(frozen=True)
class Leaving:
    """The control of a row that leaves the second stage.

    The kinds are: ``rows``, a frame for a query's table; ``begun``, the query's first batch, in which its table
    restarts even without rows; ``failed``, a query of which nothing is kept; ``late``, a stream's rows below the
    low-watermark of some queries in this shard; ``waiting``, queries with results in this shard that this batch does
    not emit.
    """

    kind: str
    query: int = -1  # the incarnation; -1 for ``late`` and ``waiting``
    name: str = ""  # of the query, or of the stream if ``late``
    bucket: int = 0
    reason: str = ""
    whole_from: int | None = None  # event time in µs from which results are complete; None if never certain
    count: int = 0  # number of late or of merged rows
    queries: tuple[int, ...] = ()  # those with late rows, or those that wait
    since: tuple[int, ...] = ()  # oldest arrival in µs behind the results of each query that waits
    took_s: float = field(default=0.0, compare=False)  # seconds in which a task merged the rows

    def control(self) -> str:
        """Return the control as text; equal ones have equal texts."""
        values = {name: value for name, value in vars(self).items() if value != _DEFAULTS[name]}
        return json.dumps({"kind": self.kind, **values}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def of(cls, control: str) -> Leaving:
        values = json.loads(control)
        for name in ("queries", "since"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)


_DEFAULTS = vars(Leaving(""))


class Results:
    """Collects a shard's output for the tables, and reports failed queries to `known`.

    `served` has the queries whose results are emitted; None for all. Results of other queries wait.
    """

    def __init__(
        self, plan: HostPlan, known: KnownQueries, out: Outbox, deferred: Deferred, served: frozenset[int] | None
    ) -> None:
        self._plan = plan
        self._known = known
        self._out = out
        self._deferred = deferred
        self._served = served
        deferred.keep([each.id for each in known.running(plan)])

    def take(self, query: Hosted, changes: pl.DataFrame, stamp: Stamp) -> None:
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
        self._deferred.keep([each.id for each in self._known.running(self._plan)])
        if firsts := self._deferred.firsts:
            queries = tuple(sorted(firsts))
            waiting = Leaving("waiting", queries=queries, since=tuple(firsts[each] for each in queries))
            self._out.put(self._shard("waiting"), waiting.control())
        self._failures()

    def _leave(self, query: Hosted, changes: pl.DataFrame, stamp: Stamp) -> None:
        try:
            frames = result_frames(query, changes, stamp)
        except FAILURES as error:
            self._known.fail([query.id], reason_of(error))
            return
        for bucket, frame in frames:
            self._put(Leaving("rows", query.id, query.name, bucket), frame)

    def begin(self, query: Hosted, whole_from: int | None, since: int | None) -> None:
        """Emit that this is a query's first batch; a feed has no changes from before `since`."""
        if query.result.kind == "feed" and whole_from is not None and since is not None:
            whole_from = max(whole_from, since)
        self._put(Leaving("begun", query.id, query.name, whole_from=whole_from))

    def late(self, domain: Domain, jobs: Iterable[Job], stepped: Stepped) -> None:
        for stream, count in stepped.late.items():
            queries = sorted({number for job in jobs for number in job.ids})
            leaving = Leaving("late", name=stream, count=count, queries=tuple(queries))
            self._out.put(self._shard(domain.name), leaving.control())

    def _failures(self) -> None:
        """Emit the failures of this shard, those of earlier batches included."""
        names = {number: each.name for number, each in self._plan.queries.items()}
        names |= {number: name for number, (name, _) in self._plan.refused.items()}
        for number, reason in self._known.failed.items():
            self._put(Leaving("failed", number, names[number], reason=reason))

    def _put(self, leaving: Leaving, frame: bytes | None = None) -> None:
        self._out.put(self._shard(f"{leaving.query:08x}{leaving.bucket}"), leaving.control(), frame)

    def _shard(self, name: str) -> int:
        return zlib.crc32(name.encode()) % self._plan.shards
