"""Update streams of which only the newest row per key is wanted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..conf.errors import OptionError, inner_error
from ..conf.locations import path_on_server, source_address
from ..conf.options import path_argument, python_options, text_argument
from ..conf.session import register_data_source
from ..core.rows.key import Key
from .options import POSITION, names_its_key, reads_changes
from .schema import feed_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def latest(
    spark: SparkSession,
    path: str | None = None,
    *,
    key: str | Sequence[str] | None = None,
    event_time: str | None = None,
    sequence_by: str | Sequence[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: object,
) -> DataFrame:
    """Read a feed as a DataFrame, coalesced where it is read: per batch and task only the newest row of each key
    leaves.

    For :func:`~upstream.write_latest`, or anything else that needs only the newest row per key. For counts and windows,
    which need every row, use :func:`~upstream.read` or ``spark.readStream.format("upstream")`` instead.

    Parameters
    ----------
    spark
        Any session.
    path
        File, directory or pattern; ``kafka://HOST:PORT/TOPIC``; ``latest:`` and a table; None for another connector.
    key
        The update key's column or columns.
    event_time
        The event time's column; without it arrival decides what is newest, or the position of change events.
    sequence_by
        The columns that decide instead, if they are not event times: as for :func:`~upstream.write_latest`.
    checkpoint
        As for :func:`~upstream.read`.
    **options
        Options of the source (docs/options.md), such as ``time_format="epoch_ms"``,
        ``max_rows_per_trigger=100_000``. Latest tables and change events (``file_format="debezium"``) need no `key`.

    Returns
    -------
    pyspark.sql.DataFrame
        Streaming; the feed's columns and `_upstream`.

    Raises
    ------
    OptionError
        An argument or an option is wrong.
    SchemaError
        A column is missing or has an unfit type, or the data has no schema.

    Examples
    --------
    >>> updates = us.latest(spark, "feed/", key="vehicle_id", event_time="timestamp", where="speed > 0")
    >>> updates.columns
    ['vehicle_id', 'timestamp', 'speed', '_upstream']
    """
    more = {**options, **source_address(path)[1]}
    asked = latest_options(key, event_time_of(event_time, options), sequence_by, more) | checkpoint_option(checkpoint)
    return load_source(spark, path, asked, options)


def load_source(
    spark: SparkSession, path: str | None, asked: Mapping[str, str], options: Mapping[str, object]
) -> DataFrame:
    """Return the DataFrame of a source; `options`, as people write them in Python, override those in `asked`."""
    from pyspark.errors import PySparkException

    register_data_source(spark)
    path, implied = source_address(path)
    reader = spark.readStream.format("upstream").options(**{**asked, **implied, **option_texts(options)})
    try:
        return reader.load(path_on_server(spark, path)) if path is not None else reader.load()
    except PySparkException as error:
        ours = inner_error(error)  # from the process in which Spark starts the source
        if ours is None:
            raise
        raise ours from None


def option_texts(options: Mapping[str, object]) -> dict[str, str]:
    """Return the source's options from Python arguments."""
    named = python_options(options).items()
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in named}


def checkpoint_option(checkpoint: str | os.PathLike[str] | None) -> dict[str, str]:
    """Return the option with which a source uses its query's checkpoint."""
    return {} if checkpoint is None else {"checkpointLocation": path_argument("checkpoint", checkpoint)}


def latest_options(
    key: str | Sequence[str] | None,
    time: str | None,
    sequence: str | Sequence[str] | None = None,
    more: Mapping[str, object] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the options with which a source reads the newest row of each key, beside `more` of the source."""
    time, order = text_argument("event_time", time), Key.optional(sequence, "sequence_by")
    given = {"coalesce": "true"}
    if key or not names_its_key(more):
        given["key"] = Key.given(key).text
    given |= {"timeFormat": "epoch_us"} if time == POSITION else {}
    return given | ({} if time is None else {"eventTime": time}) | ({} if order is None else {"sequenceBy": order.text})


def update_key(df: DataFrame, key: str | Sequence[str] | None) -> Key:
    """Return the update key: the user's, or that of the messages that the source has read."""
    found = Key.given(key) if key else feed_key(df.schema)
    if not found:
        raise OptionError(
            "the change events come without a key",
            expected="messages with a key, or lines with the member `key`",
            hint="name the columns of the primary key with the option `key`",
        )
    return found


def event_time_of(event_time: str | None, options: Mapping[str, object]) -> str | None:
    """Return the column that orders rows: the user's, or the position of change events; None for arrival."""
    return POSITION if event_time is None and reads_changes(options) else event_time
