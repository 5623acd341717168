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
    from . import errors, testing
    from .api.job import source, sql
    from .api.queries import Queries, queries
    from .api.stream import UpdateStream, read
    from .conf.session import check_session, session
    from .core.rows.system_column import with_system_ddl
    from .core.watermark.choice import Watermark
    from .datasource.latest_stream import latest
    from .operators import aggregates
    from .operators.aggregates import (
        avg,
        count,
        max,  # noqa: A004 PySpark's names
        min,  # noqa: A004 PySpark's names
        sum,  # noqa: A004 PySpark's names
    )
    from .operators.joins.band import Interval
    from .operators.joins.plan import Shards
    from .operators.joins.release.choice import OrderedRelease
    from .operators.queue.shard import stalest_keys
    from .operators.windows.emission import Emission
    from .operators.windows.parse import Lateness, Windower
    from .sink.latest_table import LatestTable
    from .sink.write_batch import write_batch
    from .sink.write_latest import write_latest
    from .workbench import ui

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 in groups, for readers
    # What a job is made of.
    "LatestTable",
    "Queries",
    "UpdateStream",
    "Watermark",
    "errors",
    "latest",
    "queries",
    "read",
    "session",
    "source",
    "sql",
    "testing",
    "write_batch",
    "write_latest",
    # What windows and joins take.
    "Emission",
    "Interval",
    "Lateness",
    "OrderedRelease",
    "Shards",
    "Windower",
    # Aggregate functions; `aggregates` has all of them.
    "aggregates",
    "avg",
    "count",
    "max",
    "min",
    "sum",
    # What is needed now and then.
    "check_session",
    "stalest_keys",
    "ui",
    "with_system_ddl",
]

# Spark's worker processes import this package many times over; each name is fetched when somebody asks for it.
_HOMES = {
    "Emission": ".operators.windows.emission",
    "Interval": ".operators.joins.band",
    "LatestTable": ".sink.latest_table",
    "Queries": ".api.queries",
    "Lateness": ".operators.windows.parse",
    "OrderedRelease": ".operators.joins.release.choice",
    "Shards": ".operators.joins.plan",
    "UpdateStream": ".api.stream",
    "Watermark": ".core.watermark.choice",
    "Windower": ".operators.windows.parse",
    "latest": ".datasource.latest_stream",
    "queries": ".api.queries",
    "read": ".api.stream",
    "session": ".conf.session",
    "source": ".api.job",
    "sql": ".api.job",
    "write_batch": ".sink.write_batch",
    "write_latest": ".sink.write_latest",
    "check_session": ".conf.session",
    "ui": ".workbench",
    "stalest_keys": ".operators.queue.shard",
    "with_system_ddl": ".core.rows.system_column",
}

_MODULES = {"aggregates": ".operators.aggregates", "errors": ".errors", "testing": ".testing"}


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
