"""The late rows of a batch: those below the low-watermark that queries had reached before it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ..core.rows.event_times import NO_TIME, event_time_us
from ..core.rows.exact_integers import LOWEST, Int64s
from ..core.rows.system_column import DELETED
from ..operators.relations.plan.nodes import Stream
from ..operators.relations.streams import TOMBSTONE
from ..operators.runtime.shard import REASON
from .evaluations import BatchContext
from .host_plan import Domain, HostPlan, PlacedQuery, PlacedRoute
from .scan import as_letters

_NAMED = 5


class LateRows:
    """The late rows of a batch in one shard, for the queries by the clock of event time.

    A row is late for a domain if its time is below the domain's low-watermark before the batch, less the lateness. Each
    route has all rows of its stream, so the rows of one route are counted and kept.
    """

    def __init__(self, plan: HostPlan, moments: Mapping[str, BatchContext], rows: Mapping[str, pa.Table]) -> None:
        self._rows = rows
        self._routes = {stream: route for stream, (route, _) in plan.timed.items()}
        self._least: dict[str, int] = {}  # by domain that has a low-watermark
        self._domains: dict[str, list[str]] = {}  # by stream
        for stream, (_, domains) in plan.timed.items():
            for name, domain in domains.items():
                before = moments[name].before
                if before is not None:
                    self._least[name] = max(before - domain.lateness_us, LOWEST)
                    self._domains.setdefault(stream, []).append(name)
        self._times: dict[str, Int64s | None] = {}

    def in_time(self, route: PlacedRoute, domain: Domain) -> pa.Table:
        """Return the rows of a route that are not late for a domain."""
        rows = self._rows[route.name]
        times = self._late_times(route) if domain.name in self._least else None
        if times is None:
            return rows
        return rows.filter(pa.array(times >= self._least[domain.name]))

    def counts(self, queries: Iterable[PlacedQuery]) -> Iterator[tuple[str, int, list[int]]]:
        """Yield a stream, a number of its rows, and the queries that miss them, once for each stream and domain."""
        readers: Mapping[str, Collection[PlacedQuery]] = {}
        for stream, route in self._routes.items():
            times = self._late_times(route)
            if times is None:
                continue
            readers = readers or _readers(queries)
            for name in sorted(self._domains[stream]):
                count = int(np.count_nonzero(times < self._least[name]))
                if count and name in readers:
                    yield stream, count, sorted(each.id for each in readers[name])

    def letters(self, stream: str, queries: Iterable[PlacedQuery]) -> pa.Table | None:
        """Return a stream's late rows, each once, with the queries that miss it as the reason; None if there are none.

        A row counts as one of all queries in force, also if some of them have failed in this shard.
        """
        route = self._routes.get(stream)
        times = None if route is None else self._late_times(route)
        if route is None or times is None:
            return None
        readers = _readers(queries)
        domains = sorted(self._domains[stream], key=lambda name: (self._least[name], name))
        least = np.array([self._least[name] for name in domains], dtype=np.int64)
        which = np.searchsorted(least, times, side="right")
        missed = which < len(domains)
        names = [sorted(each.name for name in domains[at:] for each in readers[name]) for at in range(len(domains))]
        reasons = pa.array([late_reason(each) for each in names]).take(pa.array(which[missed]))
        return as_letters(self._rows[route.name].filter(pa.array(missed))).append_column(REASON, reasons)

    def _late_times(self, route: PlacedRoute) -> Int64s | None:
        """Return the times of a route's rows; None if none is late for any domain."""
        if route.name not in self._times:
            least = max((self._least[each] for each in self._domains.get(route.stream.name, ())), default=LOWEST)
            rows = self._rows.get(route.name)
            times = None if rows is None or rows.num_rows == 0 else times_of(rows, route.stream)
            self._times[route.name] = times if times is not None and times.min() < least else None
        return self._times[route.name]


def times_of(rows: pa.Table, stream: Stream) -> Int64s:
    """Return the event time of each row in µs; :data:`NO_TIME` for a row without one."""
    return event_time_us(rows.column(stream.event_time), None, "UTC")


def least_time(rows: pa.Table, stream: Stream) -> int | None:
    """Return the least event time of some rows; None if they have none."""
    times = times_of(rows, stream)
    times = times[times != NO_TIME]
    return int(times.min()) if len(times) else None


def refused_letters(rows: pl.DataFrame, queries: Sequence[str]) -> pa.Table:
    """Return rows that an evaluation has refused, with the reason."""
    reason = late_reason(queries, "it has no time, or may be older than a deletion that is forgotten")
    rows = rows.rename({TOMBSTONE: DELETED}).with_columns(pl.lit(reason).alias(REASON))
    return rows.to_arrow(compat_level=pl.CompatLevel.oldest())


def late_reason(queries: Sequence[str], why: str = "below the low-watermark of its results") -> str:
    """Return why a row is a dead letter, with the names of the first queries that miss it."""
    more = f" and {len(queries) - _NAMED} more" if len(queries) > _NAMED else ""
    return f"late for {', '.join(queries[:_NAMED])}{more}: {why}"


def _readers(queries: Iterable[PlacedQuery]) -> Mapping[str, Collection[PlacedQuery]]:
    found: dict[str, list[PlacedQuery]] = {}
    for each in queries:
        found.setdefault(each.domain.name, []).append(each)
    return found
