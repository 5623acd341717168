"""The listing of a registry for users."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Protocol

from .names import found, known_name, whole_view
from .registry import Registry

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Reported", "listed", "text_of"]

_WORD = re.compile(r"[\w.-]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Reported(Protocol):
    """The job's report of a query."""

    @property
    def whole_from(self) -> int | None:
        """The event time in µs from which its results are complete, if known."""

    @property
    def staleness_s(self) -> float | None:
        """The age in seconds of the rows that its table took last."""

    @property
    def waiting_since_us(self) -> int | None:
        """The oldest arrival in µs behind results that wait; None if none wait."""


def listed(registry: Registry, reports: Mapping[int, Reported], now_us: int) -> pl.DataFrame:
    """Return a row for each query, in order of registration.

    `reports` are by incarnation, so a query that has restarted since its report has none.
    """
    import polars as pl

    rows = list[tuple[object, ...]]()
    for each in registry.queries.values():
        report = reports.get(each.id)
        whole_from = None if report is None else _time(report.whole_from)
        staleness = None if report is None else report.staleness_s
        since = None if report is None or not each.active else report.waiting_since_us
        waiting = None if since is None else max(now_us - since, 0) / 1e6
        rows.append((each.name, each.text, each.weight, each.active, each.reason, whole_from, staleness, waiting))
    columns = {"name": pl.String, "text": pl.String, "weight": pl.Float64, "active": pl.Boolean, "reason": pl.String}
    more = {"whole_from": pl.Datetime("us", "UTC"), "staleness": pl.Float64, "waiting": pl.Float64}
    return pl.DataFrame(rows, {**columns, **more}, orient="row")


def _time(time_us: int | None) -> datetime | None:
    """Return a time; `datetime.min` for the beginning of a stream."""
    try:
        return None if time_us is None else _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return datetime.min.replace(tzinfo=timezone.utc)


def text_of(query: str, registry: Registry) -> str:
    """Return the text of a registered query or of a view, given its name; return a text unchanged.

    Raises OptionError if `query` is one word and no query or view has this name.
    """
    name = found(query, registry.queries)
    if name is not None:
        return registry.queries[name].text
    view = registry.catalog.view(query)
    if view is not None:
        return whole_view(view[0])
    if _WORD.fullmatch(query.strip()):
        known_name(query.strip(), [*registry.queries, *registry.catalog.views], "query")
    return query
