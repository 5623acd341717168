"""UpStream for Spark: the freshest answer per key, however much arrives.

::

    import upstream as us

    stream = us.read(spark, "feed/", key="vehicle_id", event_time="timestamp", watermark_delay="5 minutes")
    means = stream.where("speed > 0").window("15 minutes", slide="1 minute").agg(speed=us.avg("speed"))
    query = means.write("speeds", checkpoint="cp").start()
    table = us.LatestTable("speeds")

The names, in groups: what a job is made of; the aggregate functions; what is needed now and then.
``spark.readStream.format("upstream")`` and ``df.writeStream.format("upstream")`` need no import of this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import errors as errors
    from . import testing as testing
    from .api.queries import Queries as Queries
    from .api.queries import queries as queries
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
    from .operators.aggregates import aggregate as aggregate
    from .operators.aggregates import any_value as any_value
    from .operators.aggregates import approx_count_distinct as approx_count_distinct
    from .operators.aggregates import avg as avg
    from .operators.aggregates import collect as collect
    from .operators.aggregates import count as count
    from .operators.aggregates import first as first
    from .operators.aggregates import heavy_hitters as heavy_hitters
    from .operators.aggregates import last as last
    from .operators.aggregates import max as max  # noqa: A004 PySpark's names
    from .operators.aggregates import max_ as max_
    from .operators.aggregates import median as median
    from .operators.aggregates import min as min  # noqa: A004 PySpark's names
    from .operators.aggregates import min_ as min_
    from .operators.aggregates import quantile as quantile
    from .operators.aggregates import stddev_pop as stddev_pop
    from .operators.aggregates import stddev_samp as stddev_samp
    from .operators.aggregates import sum as sum  # noqa: A004 PySpark's names
    from .operators.aggregates import sum_ as sum_
    from .operators.aggregates import var_pop as var_pop
    from .operators.aggregates import var_samp as var_samp
    from .operators.joins.within import interval as interval
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

__all__ = [  # noqa: RUF022 in groups, for readers
    # What a job is made of.
    "LatestTable",
    "Queries",
    "UpdateStream",
    "Watermark",
    "errors",
    "interval",
    "latest",
    "queries",
    "read",
    "session",
    "testing",
    "write_batch",
    "write_latest",
    # Aggregate functions; `aggregates` has them too.
    "aggregate",
    "aggregates",
    "any_value",
    "approx_count_distinct",
    "avg",
    "collect",
    "count",
    "first",
    "heavy_hitters",
    "last",
    "max",
    "max_",
    "median",
    "min",
    "min_",
    "quantile",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "sum_",
    "var_pop",
    "var_samp",
    # What is needed now and then.
    "SYSTEM",
    "CommitSummary",
    "Erasure",
    "UpstreamError",
    "batch_metrics",
    "check_session",
    "most_stale",
    "with_system_ddl",
]

# Spark's worker processes import this package many times over; each name is fetched when somebody asks for it.
_HOMES = {
    "LatestTable": ".sink.latest_table",
    "Queries": ".api.queries",
    "UpdateStream": ".api.stream",
    "Watermark": ".core.watermark.choice",
    "interval": ".operators.joins.within",
    "latest": ".datasource.latest_stream",
    "read": ".api.read",
    "session": ".conf.session",
    "write_batch": ".sink.write_batch",
    "write_latest": ".sink.write_latest",
    "SYSTEM": ".core.rows.system_column",
    "CommitSummary": ".sink.figures.summary",
    "Erasure": ".sink.admin.erase",
    "UpstreamError": ".conf.errors",
    "batch_metrics": ".sink.write_latest",
    "check_session": ".conf.session",
    "most_stale": ".operators.queue.most_stale",
    "with_system_ddl": ".core.rows.system_column",
}

_MODULES = {"aggregates": ".operators.aggregates", "errors": ".errors", "queries": ".queries", "testing": ".testing"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(_MODULES[name], __name__)
    home = _HOMES.get(name)
    if home is None and name in __all__:  # the functions
        home = ".operators.aggregates"
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
