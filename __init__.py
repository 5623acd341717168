"""UpStream for Spark: the freshest answer per key, however much arrives.

``spark.readStream.format("upstream")`` and ``df.writeStream.format("upstream")`` need no import of this package. What is
exported here makes the common jobs short: :func:`session`, :func:`latest`, :func:`write_latest`, :func:`write_batch`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conf.errors import UpstreamError as UpstreamError
    from .conf.session import check_session as check_session
    from .conf.session import session as session
    from .datasource.latest import latest as latest
    from .frames.system import SYSTEM as SYSTEM
    from .frames.system import with_system_ddl as with_system_ddl
    from .operators import aggregates as aggregates
    from .operators.shards.most_stale import most_stale as most_stale
    from .operators.stream import UpdateStream as UpdateStream
    from .sink.batch import write_batch as write_batch
    from .sink.checking import check_table as check_table
    from .sink.erasing import Erasure as Erasure
    from .sink.erasing import erase_key as erase_key
    from .sink.keep_change import change_keep as change_keep
    from .sink.key_bucket import key_bucket as key_bucket
    from .sink.latest import batch_metrics as batch_metrics
    from .sink.latest import write_latest as write_latest
    from .sink.rebucketing import rebucket_table as rebucket_table
    from .sink.repairing import repair_table as repair_table
    from .sink.run import run_staleness as run_staleness
    from .sink.summary import CommitSummary as CommitSummary
    from .sink.summary import read_summaries as read_summaries

__version__ = "0.1.0"

# Spark's worker processes import this package many times over; each name is fetched when somebody asks for it.
_HOMES = {
    "SYSTEM": ".frames.system",
    "CommitSummary": ".sink.summary",
    "Erasure": ".sink.erasing",
    "UpdateStream": ".operators.stream",
    "UpstreamError": ".conf.errors",
    "batch_metrics": ".sink.latest",
    "change_keep": ".sink.keep_change",
    "check_session": ".conf.session",
    "check_table": ".sink.checking",
    "erase_key": ".sink.erasing",
    "key_bucket": ".sink.key_bucket",
    "latest": ".datasource.latest",
    "most_stale": ".operators.shards.most_stale",
    "read_summaries": ".sink.summary",
    "rebucket_table": ".sink.rebucketing",
    "repair_table": ".sink.repairing",
    "run_staleness": ".sink.run",
    "session": ".conf.session",
    "with_system_ddl": ".frames.system",
    "write_batch": ".sink.batch",
    "write_latest": ".sink.latest",
}

_MODULES = {"aggregates": ".operators.aggregates"}

__all__ = [
    "SYSTEM",
    "CommitSummary",
    "Erasure",
    "UpdateStream",
    "UpstreamError",
    "aggregates",
    "batch_metrics",
    "change_keep",
    "check_session",
    "check_table",
    "erase_key",
    "key_bucket",
    "latest",
    "most_stale",
    "read_summaries",
    "rebucket_table",
    "repair_table",
    "run_staleness",
    "session",
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
