"""The table of metrics: a row of figures for each commit, for tools that plot.

It is a projection of the summaries in the main table's log, so nothing in it can be lost or doubled: each append records up to which
batch it goes, and the next one begins there, whoever died in between.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conf.errors import TableError
from ...core.feedback.ages import Staleness
from ...core.rows.system_column import TIMESTAMP
from ..figures.freshness import complete_up_to_us
from ..figures.queue_figures import QueueFigures
from ..figures.summary import CommitSummary, summaries_after
from ..merge.side_table import SideTable
from ..spec.maintenance_rules import Maintained
from ..spec.options import SinkTarget
from ..table.file_statistics import file_stats
from ..table.files import DataFiles
from ..table.table import load_table, transaction_version
from .writer_id import writer_id

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["METRICS_SCHEMA", "check_metrics", "metrics_rows", "write_metrics"]

_APP_PREFIX = "upstream-metrics-"
# Others may append at the same moment, where queries share a table.
_TRIES = 20
# Each commit adds a file of one row; so often they are made one.
_COMPACT_EVERY = 100

_FIGURES = ("mean", "p50", "p99", "max")
_COUNTS = (
    "rows",
    "updates",
    "delivered",
    "superseded",
    "older",
    "deleted",
    "absent",
    "conflicts",
    "late",
    "keys",
    "pending",
)
_OF_SOURCES = ("received", "late", "late_idle", "suspects")
_OF_MAINTENANCE = ("entries", "files", "orphans", "bytes", "compacted")
_OF_QUEUE = ("arrived", "delivered", "superseded", "older", "conflicts", "shed")

METRICS_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("query_id", pa.string()),
        ("batch_id", pa.int64()),
        ("committed_at", TIMESTAMP),
        *((name, pa.int64()) for name in _COUNTS),
        ("oldest_s", pa.float64()),
        *((f"staleness_{name}_s", pa.float64()) for name in _FIGURES),
        ("area_least", pa.float64()),
        ("area_most", pa.float64()),
        *((f"queue_{name}", pa.int64()) for name in _OF_QUEUE),
        *((f"queue_staleness_{name}_s", pa.float64()) for name in _FIGURES),
        ("batch_s", pa.float64()),
        ("low_watermark", pa.string()),
        ("complete_up_to", TIMESTAMP),
        ("target", pa.string()),
        ("target_met", pa.bool_()),
        ("needed_rows_per_s", pa.float64()),
        ("needed_budget", pa.int64()),
        ("maintenance_s", pa.float64()),
        *((f"maintenance_{name}", pa.int64()) for name in _OF_MAINTENANCE),
        *((f"total_{name}", pa.int64()) for name in _OF_SOURCES),
    ]
)
"""The table's columns. Times ending in ``_s`` are seconds; ``batch_s`` is from the plan of a queue's batch to its commit;
``complete_up_to`` is the low-watermark where it is a time;
those beginning with ``maintenance_`` say what was removed, or put together, after this process's commit before; those with ``total_`` are what the sources have counted from the beginning of the query's checkpoint."""


def metrics_rows(summaries: Sequence[CommitSummary], location: str) -> pa.Table:
    """A row for each summary.

    Parameters
    ----------
    summaries
        Of commits.
    location
        The main table's, for the column ``table``.
    """
    return pa.Table.from_pylist([_row(each, location) for each in summaries], METRICS_SCHEMA)


def write_metrics(target: SinkTarget) -> int:
    """Append what the metrics table lacks of a query's commits; returns how many rows. Nothing happens where no such table is asked for.

    Raises
    ------
    TableError
        It cannot be written. What it lacks is appended after the next commit, also of a restarted query.
    """
    if target.metrics is None:
        return 0
    place = _place(target)
    side = _side(place)
    table = load_table(target)
    if table is None:
        return 0
    query_id = writer_id(target)
    for _ in range(_TRIES):
        metrics = side.ready()
        recorded = transaction_version(place, metrics, _APP_PREFIX + query_id)
        missing = summaries_after(table, query_id, -1 if recorded is None else recorded)
        if not missing:
            return 0
        transaction = (_APP_PREFIX + query_id, missing[-1].batch_id)
        if _append(place, side, metrics, metrics_rows(missing, target.location), transaction):
            if (metrics.version() + 1) % _COMPACT_EVERY == 0:
                _compact(place)
            return len(missing)
    raise _unusable(place, "others keep appending to it")


def check_metrics(target: SinkTarget) -> None:
    """Refuse a metrics location that holds something else.

    Raises
    ------
    TableError
        Naming the columns that do not fit.
    """
    table = None if target.metrics is None else _side(_place(target)).load()
    if table is None:
        return
    held = {field.name: field.type for field in pa.schema(table.schema().to_arrow())}
    wrong = [field.name for field in METRICS_SCHEMA if field.name in held and held[field.name] != field.type]
    absent = [name for name in ("query_id", "batch_id", "committed_at") if name not in held]
    if wrong or absent:
        raise TableError(
            f"the table at {target.metrics} is no table of metrics: "
            + "; ".join(
                f"{what} {', '.join(names)}"
                for what, names in (("it lacks", absent), ("of another type:", wrong))
                if names
            ),
            expected="a folder where there is no table yet, or one that metricsLocation has made",
            hint="name another metricsLocation",
        )


def _place(target: SinkTarget) -> SinkTarget:
    assert target.metrics is not None
    return dataclasses.replace(target, location=target.metrics)


def _side(place: SinkTarget) -> SideTable:
    return SideTable(place, METRICS_SCHEMA, functools.partial(_unusable, place))


def _unusable(place: SinkTarget, why: object) -> TableError:
    return TableError(
        f"the table of metrics at {place.location} cannot be used: {place.masked(why)}",
        expected="a Delta table of its own, or none yet, in a folder that may be written to",
        hint="put that right or leave out metricsLocation; no figures are lost, they are in the main table's log",
    )


def _append(
    place: SinkTarget, side: SideTable, metrics: DeltaTable, rows: pa.Table, transaction: tuple[str, int]
) -> bool:
    """Whether the rows were appended; False if somebody else has taken the version."""
    files, appended = DataFiles(place, METRICS_SCHEMA), False
    try:
        path, size = files.write_rows(rows)
    except TableError as error:
        raise _unusable(place, error) from error
    try:
        written_ms = int(rows.column("committed_at")[-1].value // 1000)
        appended = side.append(metrics, {path: (size, file_stats(rows))}, written_ms, transaction)
    finally:
        if not appended:
            files.remove([path])
    return appended


def _compact(place: SinkTarget) -> None:
    from deltalake.exceptions import DeltaError

    table = load_table(place)
    if table is not None:
        with contextlib.suppress(DeltaError):  # somebody else was quicker; the next time comes
            table.optimize.compact()


def _row(summary: CommitSummary, location: str) -> dict[str, Any]:
    queue = summary.queue
    area = summary.area or (None, None)
    low = summary.low_watermark
    return {
        "table": location,
        "query_id": summary.query_id,
        "batch_id": summary.batch_id,
        "committed_at": summary.committed_at_us,
        **{name: getattr(summary, name) for name in _COUNTS},
        "oldest_s": summary.oldest,
        **_seconds("staleness", summary.staleness),
        "area_least": area[0],
        "area_most": area[1],
        **({} if queue is None else {f"queue_{name}": getattr(queue, name) for name in _OF_QUEUE}),
        **_seconds("queue_staleness", None if queue is None else queue.staleness),
        "batch_s": _batch_s(summary, queue),
        "low_watermark": None if low is None else str(low),
        "complete_up_to": complete_up_to_us(low),
        "target": summary.target,
        "target_met": summary.target_met,
        "needed_rows_per_s": summary.needed_rows_per_s,
        "needed_budget": summary.needed_budget,
        **_of_maintenance(summary.maintained),
        **(
            {} if summary.sources is None else {f"total_{name}": getattr(summary.sources, name) for name in _OF_SOURCES}
        ),
    }


def _of_maintenance(done: Maintained | None) -> dict[str, Any]:
    if done is None:
        return {}
    return {"maintenance_s": done.seconds} | {f"maintenance_{name}": getattr(done, name) for name in _OF_MAINTENANCE}


def _seconds(name: str, figures: Staleness | None) -> dict[str, float]:
    return {} if figures is None else {f"{name}_{each}_s": getattr(figures, each) for each in _FIGURES}


def _batch_s(summary: CommitSummary, queue: QueueFigures | None) -> float | None:
    return None if queue is None else max(summary.committed_at_us - queue.clock_us, 0) / 1e6
