"""Update streams of which only the newest row per key is wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..conf.locations import path_on_server
from ..conf.options import path_argument, python_options, text_argument
from ..conf.session import register_data_source
from ..core.rows.key import Key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def latest(
    spark: SparkSession,
    path: str | None = None,
    *,
    key: str | Sequence[str],
    event_time: str | None = None,
    sequence_by: str | Sequence[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: object,
) -> DataFrame:
    """Read a feed as a DataFrame, coalesced where it is read: per batch and task only the newest row of each key
    leaves.

    For :func:`~upstream.write_latest`, or anything else that wants nothing but the newest row per key. For counts and
    windows, which need every row, use :func:`~upstream.read` or ``spark.readStream.format("upstream")`` instead.

    Parameters
    ----------
    spark
        Any session.
    path
        File, directory or pattern; None for a connector that needs none.
    key
        The update key's column or columns.
    event_time
        The event time's column; without it arrival decides what is newest.
    sequence_by
        The columns that decide instead, if they are no event times: as for :func:`~upstream.write_latest`.
    checkpoint
        As for :func:`~upstream.read`.
    **options
        Any option of the source, see docs/options.md, for example ``time_format="epoch_ms"``,
        ``max_rows_per_trigger=100_000``.

    Returns
    -------
    pyspark.sql.DataFrame
        Streaming; the feed's columns and `_upstream`.

    Raises
    ------
    OptionError, SchemaError
        As a Spark exception whose message ends in theirs, since Spark asks a process of its own.

    Examples
    --------
    >>> updates = us.latest(spark, "feed/", key="vehicle_id", event_time="timestamp", where="speed > 0")
    >>> updates.columns
    ['vehicle_id', 'timestamp', 'speed', '_upstream']
    """
    asked = latest_options(key, event_time, sequence_by) | checkpoint_option(checkpoint)
    return load_source(spark, path, asked, options)


def load_source(
    spark: SparkSession, path: str | None, asked: Mapping[str, str], options: Mapping[str, object]
) -> DataFrame:
    """Return the DataFrame of a source; `options`, as people write them in Python, override those in `asked`."""
    named = python_options(options)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in named.items()}
    register_data_source(spark)
    reader = spark.readStream.format("upstream").options(**{**asked, **texts})
    return reader.load(path_on_server(spark, path)) if path is not None else reader.load()


def checkpoint_option(checkpoint: str | os.PathLike[str] | None) -> dict[str, str]:
    """Return the option with which a source uses its query's checkpoint."""
    return {} if checkpoint is None else {"checkpointLocation": path_argument("checkpoint", checkpoint)}


def latest_options(
    key: str | Sequence[str], time: str | None, sequence: str | Sequence[str] | None = None
) -> dict[str, str]:
    """Return the options with which a source reads the newest row of each key."""
    time, order = text_argument("event_time", time), Key.optional(sequence, "sequence_by")
    given = {"coalesce": "true", "key": Key.given(key).text}
    return given | ({} if time is None else {"eventTime": time}) | ({} if order is None else {"sequenceBy": order.text})
