"""The workbench: what is on storage about tables, queries and their progress, for a browser and for Prometheus."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..conf.errors import OptionError
from ..conf.locations import absolute_location, is_remote

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from ..api.queries import Queries
    from ..sink.latest_table import LatestTable
    from .processes import Workbench

__all__ = ["ui"]

_PATIENCE_S = 10.0


def ui(
    shown: StreamingQuery | LatestTable | Queries | str | os.PathLike[str], *, port: int = 0, read_only: bool = False
) -> Workbench:
    """Start the workbench beside a query, and return at once. It serves until ``stop()``, or until this process ends.

    A process of its own serves: clients cannot take memory or descriptors from the query.

    Parameters
    ----------
    shown
        A streaming query that was started in this process, the continuous queries of a checkpoint, or a table. A path
        names a table, a checkpoint, or a folder of tables.
    port
        The port, on this machine alone; 0 takes a free one.
    read_only
        Whether the pages can change settings and queries [default: they can].

    Returns
    -------
    Workbench
        Its ``address`` has a token. In a notebook, it shows itself as a link.

    Raises
    ------
    EnvironmentMissingError
        The packages of the extra ``ui`` are not installed.
    OptionError
        The port is taken, or the query does not write a table of UpStream.
    TableError
        There is no such path.

    Examples
    --------
    >>> with us.ui("latest") as workbench:
    ...     print(workbench.address.partition("?token=")[0])  # doctest: +ELLIPSIS
    http://127.0.0.1:.../
    """
    from ..sink.latest_table import LatestTable
    from .processes import Workbench

    places = places_of(shown)
    storage = shown._storage if isinstance(shown, LatestTable) else {}
    return Workbench(places, storage, port=port, control=not read_only)


def places_of(shown: Any) -> list[str]:
    """Return the locations of a table, a path, a query, or a job's queries."""
    from ..api.queries import Queries
    from ..sink.commit.metrics_table import record_times
    from ..sink.latest_table import LatestTable

    if isinstance(shown, LatestTable):
        return [shown.path]
    if isinstance(shown, Queries):
        return made(_hosted(shown.checkpoint))
    if isinstance(shown, (str, os.PathLike)):
        return [os.fspath(shown)]
    java = getattr(shown, "_jsq", None)
    if java is None:
        raise OptionError(
            f"us.ui got {type(shown).__name__}",
            expected="a query that was started in this process, a table, or a path",
            hint="give the path of the query's table",
        )
    execution = java.streamingQuery()
    record_times(execution.sparkSession())
    checkpoint = absolute_location(str(execution.resolvedCheckpointRoot()))
    return made(_hosted(checkpoint) or [_written(execution, checkpoint)])


def made(places: Sequence[str]) -> list[str]:
    """Return the locations, and make the folders that the query would make with its first commit."""
    for each in places:
        if not is_remote(each):
            os.makedirs(absolute_location(each), exist_ok=True)
    return [*places]


def _hosted(checkpoint: str) -> list[str]:
    """Return the places of a job of continuous queries; none for another checkpoint."""
    from ..hosting.journal import Journal

    settings = Journal(checkpoint).settings()
    return [] if settings is None else [settings.to, checkpoint]


def _written(execution: Any, checkpoint: str) -> str:
    """Return the table that a streaming query writes, from the options of Spark's own plan."""
    from py4j.protocol import Py4JError, Py4JJavaError

    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            path = execution.logicalPlan().writeOptions().get("path")
        except Py4JJavaError:  # Spark refuses until the query's thread has made its plan
            if time.monotonic() > end or not execution.isActive():
                break
            time.sleep(0.1)
            continue
        except Py4JError:  # another kind of sink, whose plan has no options
            break
        if path.isDefined():
            return str(path.get())
        break
    raise OptionError(
        f"the table of the query with the checkpoint {checkpoint} is not known",
        expected="a query that writes format('upstream')",
        hint="give the table's path: us.ui('latest')",
    )
