"""What leaves the stages for the tables: frames of results, and what there is to know about queries."""

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

    Attributes
    ----------
    kind : str
        ``rows``: the frame has rows for the table of a query. ``begun``: the query's first batch; its table begins
        anew, also if no rows come. ``failed``: nothing of the query is to be kept. ``late``: rows of a stream that came
        below the low-watermark of some queries, in this shard. ``waiting``: queries with results in this shard that
        this batch did not put out.
    query : int
        The query's incarnation; -1 for ``late`` and ``waiting``.
    name : str
        The query's name, or the stream's.
    bucket : int
        Of the table.
    reason : str
        Why a query failed.
    whole_from : int or None
        The time in µs from which results lack nothing.
    count : int
        The number of late rows.
    queries : tuple of int
        To which rows were late, or which wait.
    since : tuple of int
        Since when each of the queries waits: when the oldest row behind its results came, in microseconds.
    took_s : float
        The seconds in which a task merged the rows.
    """

    kind: str
    query: int = -1
    name: str = ""
    bucket: int = 0
    reason: str = ""
    whole_from: int | None = None
    count: int = 0
    queries: tuple[int, ...] = ()
    since: tuple[int, ...] = ()
    took_s: float = field(default=0.0, compare=False)

    def control(self) -> str:
        """Return it as text; equal ones have equal texts."""
        values = {name: value for name, value in vars(self).items() if value != _DEFAULTS[name]}
        return json.dumps({"kind": self.kind, **values}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def of(cls, control: str) -> Leaving:
        """Return what a control says."""
        values = json.loads(control)
        for name in ("queries", "since"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)


_DEFAULTS = vars(Leaving(""))


class Results:
    """Collects what leaves a stage in a shard for the tables.

    Parameters
    ----------
    plan : HostPlan
    known : KnownQueries
        Learns which queries fail.
    out : Outbox
    deferred : Deferred
    served : frozenset of int or None
        The queries whose results are put out; None for all. Those of others wait.
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
        """Put out what changes make of a query's table, or let them wait."""
        if self._served is not None and query.id not in self._served:
            self._deferred.put(query, changes, stamp.first_us)
            return
        frames, first_us = self._deferred.take(query)
        if first_us is not None:
            changes = added_up(query, [*frames, changes])
            stamp = replace(stamp, first_us=min(first_us, stamp.first_us))
        self._leave(query, changes, stamp)

    def close(self, stamp: Stamp) -> None:
        """Put out what waited for this batch, then what still waits, and which queries failed."""
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
        """Put out that this is the first batch of a query; a feed has no changes from before ``since``."""
        if query.result.kind == "feed" and whole_from is not None and since is not None:
            whole_from = max(whole_from, since)
        self._put(Leaving("begun", query.id, query.name, whole_from=whole_from))

    def late(self, domain: Domain, jobs: Iterable[Job], stepped: Stepped) -> None:
        """Put out how many rows came late."""
        for stream, count in stepped.late.items():
            queries = sorted({number for job in jobs for number in job.ids})
            leaving = Leaving("late", name=stream, count=count, queries=tuple(queries))
            self._out.put(self._shard(domain.name), leaving.control())

    def _failures(self) -> None:
        """Put out which queries have failed in this shard, in this batch or before."""
        names = {number: each.name for number, each in self._plan.queries.items()}
        names |= {number: name for number, (name, _) in self._plan.refused.items()}
        for number, reason in self._known.failed.items():
            self._put(Leaving("failed", number, names[number], reason=reason))

    def _put(self, leaving: Leaving, frame: bytes | None = None) -> None:
        self._out.put(self._shard(f"{leaving.query:08x}{leaving.bucket}"), leaving.control(), frame)

    def _shard(self, name: str) -> int:
        return zlib.crc32(name.encode()) % self._plan.shards
