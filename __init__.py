"""UpStream for Spark: the freshest answer per key, however much arrives.

``spark.readStream.format("upstream")`` and ``df.writeStream.format("upstream")`` need no import of this package. What is
exported here makes the common jobs short: :func:`session`, :func:`latest`, :func:`write_latest`, :func:`write_batch`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import testing as testing
    from .api.read import read as read
    from .api.stream import UpdateStream as UpdateStream
    from .conf.errors import UpstreamError as UpstreamError
    from .conf.session import check_session as check_session
    from .conf.session import session as session
    from .core.rows.system_column import SYSTEM as SYSTEM
    from .core.rows.system_column import with_system_ddl as with_system_ddl
    from .core.watermark.choice import Watermark as Watermark
    from .datasource.latest_stream import latest as latest
    from .operators import aggregates as aggregates
    from .operators.queue.most_stale import most_stale as most_stale
    from .sink.admin.check import check_table as check_table
    from .sink.admin.erase import Erasure as Erasure
    from .sink.admin.erase import erase_key as erase_key
    from .sink.admin.history_change import change_keep as change_keep
    from .sink.admin.key_bucket import key_bucket as key_bucket
    from .sink.admin.rebucket import rebucket_table as rebucket_table
    from .sink.admin.repair import repair_table as repair_table
    from .sink.figures.run import run_staleness as run_staleness
    from .sink.figures.summary import CommitSummary as CommitSummary
    from .sink.figures.summary import read_summaries as read_summaries
    from .sink.latest_table import LatestTable as LatestTable
    from .sink.write_batch import write_batch as write_batch
    from .sink.write_latest import batch_metrics as batch_metrics
    from .sink.write_latest import write_latest as write_latest

__version__ = "0.1.0"

# Spark's worker processes import this package many times over; each name is fetched when somebody asks for it.
_HOMES = {
    "SYSTEM": ".core.rows.system_column",
    "CommitSummary": ".sink.figures.summary",
    "Erasure": ".sink.admin.erase",
    "LatestTable": ".sink.latest_table",
    "UpdateStream": ".api.stream",
    "UpstreamError": ".conf.errors",
    "batch_metrics": ".sink.write_latest",
    "change_keep": ".sink.admin.history_change",
    "check_session": ".conf.session",
    "check_table": ".sink.admin.check",
    "erase_key": ".sink.admin.erase",
    "key_bucket": ".sink.admin.key_bucket",
    "latest": ".datasource.latest_stream",
    "most_stale": ".operators.queue.most_stale",
    "Watermark": ".core.watermark.choice",
    "read": ".api.read",
    "read_summaries": ".sink.figures.summary",
    "rebucket_table": ".sink.admin.rebucket",
    "repair_table": ".sink.admin.repair",
    "run_staleness": ".sink.figures.run",
    "session": ".conf.session",
    "with_system_ddl": ".core.rows.system_column",
    "write_batch": ".sink.write_batch",
    "write_latest": ".sink.write_latest",
}

_MODULES = {"aggregates": ".operators.aggregates", "testing": ".testing"}

__all__ = [
    "SYSTEM",
    "CommitSummary",
    "Erasure",
    "LatestTable",
    "UpdateStream",
    "UpstreamError",
    "Watermark",
    "aggregates",
    "batch_metrics",
    "change_keep",
    "check_session",
    "check_table",
    "erase_key",
    "key_bucket",
    "latest",
    "most_stale",
    "read",
    "read_summaries",
    "rebucket_table",
    "repair_table",
    "run_staleness",
    "session",
    "testing",
    "with_system_ddl",
    "write_batch",
    "write_latest",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(_MODULES[name], __name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)
