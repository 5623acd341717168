"""What leaves the stages for the tables: frames of results, and what there is to know about queries."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from ..deltas.failures import FAILURES
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
        below the low-watermark of some queries, in this shard.
    query : int
        The query's incarnation; -1 for ``late``.
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
        To which they were late.
    """

    kind: str
    query: int = -1
    name: str = ""
    bucket: int = 0
    reason: str = ""
    whole_from: int | None = None
    count: int = 0
    queries: tuple[int, ...] = ()

    def control(self) -> str:
        """Return it as text; equal ones have equal texts."""
        values = {name: value for name, value in vars(self).items() if value != _DEFAULTS[name]}
        return json.dumps({"kind": self.kind, **values}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def of(cls, control: str) -> Leaving:
        """Return what a control says."""
        values = json.loads(control)
        values["queries"] = tuple(values.get("queries", ()))
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
    """

    def __init__(self, plan: HostPlan, known: KnownQueries, out: Outbox) -> None:
        self._plan = plan
        self._known = known
        self._out = out

    def take(self, query: Hosted, changes: pl.DataFrame, stamp: Stamp) -> None:
        """Put out what changes make of a query's table."""
        try:
            frames = result_frames(query, changes, stamp)
        except FAILURES as error:
            self._known.fail([query.id], f"{type(error).__name__}: {error}")
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

    def failures(self) -> None:
        """Put out which queries have failed in this shard, in this batch or before."""
        names = {number: each.name for number, each in self._plan.queries.items()}
        names |= {number: name for number, (name, _) in self._plan.refused.items()}
        for number, reason in self._known.failed.items():
            self._put(Leaving("failed", number, names[number], reason=reason))

    def _put(self, leaving: Leaving, frame: bytes | None = None) -> None:
        self._out.put(self._shard(f"{leaving.query:08x}{leaving.bucket}"), leaving.control(), frame)

    def _shard(self, name: str) -> int:
        return zlib.crc32(name.encode()) % self._plan.shards
