"""The table of metrics: a row of figures for each commit, for tools that plot."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conf.errors import TableError
from ...core.feedback.reports import LeftOutFigures
from ...core.rows.system_column import TIMESTAMP
from ...delta_format.append_table import AppendTable
from ..figures.summary import CommitSummary, complete_up_to_us, summaries_after
from ..maintenance.runner import commit_hooks, maintain
from ..spec.maintenance_rules import is_ours, retention_properties
from ..spec.options import SinkTarget
from ..table.file_statistics import file_stats
from ..table.files import DataFiles
from ..table.table import load_table
from .last_commit import writer_id

if TYPE_CHECKING:
    from deltalake import DeltaTable


_LOG = logging.getLogger("upstream.metrics")

_APP_PREFIX = "upstream-metrics-"
# Each commit adds a file of one row; so often they are made one.
_COMPACT_EVERY = 100

_left_out: dict[tuple[str, str], LeftOutFigures] = {}
"""A process's memory, by the main table and the metrics table."""

_Figure = str | Callable[[CommitSummary], Any]
"""By its path through the parts of a summary, any of which may be absent; or what reads it."""


def _batch_s(summary: CommitSummary) -> float | None:
    return None if summary.queue is None else max(summary.committed_at_us - summary.queue.clock_us, 0) / 1e6


def _each(name: str, path: str, figures: str, kind: pa.DataType) -> list[tuple[str, pa.DataType, _Figure]]:
    return [(name.format(each), kind, path.format(each)) for each in figures.split()]


_SECONDS, _NUMBER = pa.float64(), pa.int64()
_COUNTS = "rows updates applied superseded older deleted absent conflicts late keys pending"
_FIGURES = "mean p50 p99 max"
_COLUMNS: list[tuple[str, pa.DataType, _Figure]] = [
    ("query_id", pa.string(), "query_id"),
    ("batch_id", _NUMBER, "batch_id"),
    ("committed_at", TIMESTAMP, "committed_at_us"),
    *_each("{}", "{}", _COUNTS, _NUMBER),
    ("oldest_s", _SECONDS, "oldest"),
    *_each("staleness_{}_s", "staleness.{}", _FIGURES, _SECONDS),
    ("area_least", pa.float64(), lambda each: None if each.area is None else each.area[0]),
    ("area_most", pa.float64(), lambda each: None if each.area is None else each.area[1]),
    *_each("queue_{}", "queue.{}", "arrived applied superseded older conflicts shed outdated", _NUMBER),
    *_each("queue_staleness_{}_s", "queue.staleness.{}", _FIGURES, _SECONDS),
    ("batch_s", _SECONDS, _batch_s),
    ("low_watermark", pa.string(), lambda each: None if each.low_watermark is None else str(each.low_watermark)),
    ("complete_up_to", TIMESTAMP, lambda each: complete_up_to_us(each.low_watermark)),
    ("target", pa.string(), "target"),
    ("target_met", pa.bool_(), "target_met"),
    ("needed_rows_per_s", pa.float64(), "needed_rows_per_s"),
    ("needed_budget", _NUMBER, "needed_budget"),
    ("maintenance_s", _SECONDS, "maintained.seconds"),
    *_each("maintenance_{}", "maintained.{}", "entries files orphans bytes compacted", _NUMBER),
    *_each("total_{}", "sources.{}", "received late late_idle suspects", _NUMBER),
]

METRICS_SCHEMA = pa.schema([("table", pa.string()), *((name, kind) for name, kind, _ in _COLUMNS)])
"""The table's columns. Times ending in ``_s`` are seconds; ``batch_s`` is from the plan of a queue's batch to its
commit; ``complete_up_to`` is the low-watermark where it is a time;
those beginning with ``maintenance_`` say what was removed, or put together, after this process's commit before; those
with ``total_`` are what the sources have counted from the beginning of the query's checkpoint."""


def metrics_rows(summaries: Sequence[CommitSummary], location: str) -> pa.Table:
    """Return a row for each summary; `location` is the main table's."""
    columns = [pa.array([_read(each, figure) for each in summaries], kind) for _, kind, figure in _COLUMNS]
    return pa.table([pa.array([location] * len(summaries), pa.string()), *columns], schema=METRICS_SCHEMA)


def write_metrics(target: SinkTarget) -> int:
    """Append the rows of a query's commits that the metrics table lacks; return their number.

    The rows are a projection of the summaries in the main table's log. Each append records its last batch, so nothing
    is lost or doubled if a process dies. Without a metrics location, nothing happens.
    """
    if target.metrics is None:
        return 0
    place = _place(target)
    side = _side(place)
    table = load_table(target)
    if table is None:
        return 0
    query_id = writer_id(target)
    application = _APP_PREFIX + query_id
    recorded = side.ready().transaction_version(application)
    missing = summaries_after(table, query_id, -1 if recorded is None else recorded)
    if not missing or not _append(
        place, side, metrics_rows(missing, target.location), application, missing[-1].batch_id
    ):
        return 0
    metrics = load_table(place)
    if metrics is not None:
        if metrics.version() % _COMPACT_EVERY == 0:
            _compact(metrics)
        # Its log grows by an entry a commit, as the main table's does.
        maintain(place, metrics, compact=lambda _: 0)
    return len(missing)


def offer_metrics(target: SinkTarget) -> None:
    """Append as :func:`write_metrics`, but never fail: metrics must not end a query.

    A process warns of the first commit that is left out. The append after a later commit catches up.
    """
    if target.metrics is None:
        return
    place = _place(target)
    left_out = _left_out.setdefault(
        (target.location, place.location), LeftOutFigures("the table of metrics", place.folder, _LOG)
    )
    left_out.attempt(lambda: write_metrics(target))


def check_metrics(target: SinkTarget) -> None:
    """Refuse a metrics location that holds a table of other columns."""
    if target.metrics is not None:
        _side(_place(target)).load()


def _place(target: SinkTarget) -> SinkTarget:
    assert target.metrics is not None
    return dataclasses.replace(target, location=target.metrics)


def _side(place: SinkTarget) -> AppendTable:
    options = place.options
    return AppendTable(
        place.folder,
        METRICS_SCHEMA,
        functools.partial(_unusable, place),
        retention_properties(options.maintenance_rules({})),
        lambda table: commit_hooks(on=options.maintenance == "off" or not is_ours(table.metadata().configuration)),
        functools.partial(load_table, place),
    )


def _unusable(place: SinkTarget, why: object) -> TableError:
    return TableError(
        f"the table of metrics at {place.location} cannot be used: {place.masked(why)}",
        expected="a separate Delta table, or none yet, in a writable folder",
        hint="correct this, or remove metricsLocation. No figure is lost: the main table's log has them",
    )


def _append(place: SinkTarget, side: AppendTable, rows: pa.Table, application: str, batch_id: int) -> bool:
    """Append rows, and return True; return False if another writer has appended them."""
    files, appended = DataFiles(place, METRICS_SCHEMA), False
    try:
        path, size = files.write_rows(rows)
    except TableError as error:
        raise _unusable(place, error) from error
    try:
        written_ms = int(rows.column("committed_at")[-1].value // 1000)
        appended = side.append({path: (size, file_stats(rows))}, application, batch_id, written_ms)
    finally:
        if not appended:
            files.remove([path])
    return appended


def _compact(metrics: DeltaTable) -> None:
    from deltalake.exceptions import DeltaError

    with contextlib.suppress(DeltaError):  # another program was quicker; the next time comes
        metrics.optimize.compact()


def _read(summary: CommitSummary, figure: _Figure) -> Any:
    if not isinstance(figure, str):
        return figure(summary)
    value: Any = summary
    for name in figure.split("."):
        value = None if value is None else getattr(value, name)
    return value
