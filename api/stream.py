"""An update stream that can be written to a latest table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..conf.arguments import path_argument
from ..conf.errors import OptionError
from ..operators import stream as operators_stream
from ..sink.write_latest import write_latest

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["UpdateStream"]


class UpdateStream(operators_stream.UpdateStream):
    """Rows that update a key. Made by :func:`upstream.read`, or of a DataFrame.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Streaming, with the system column ``_upstream``, as ``spark.readStream.format("upstream")`` gives it.
    key : str or sequence of str
        The update key's column or columns.
    event_time : str, optional
        The column of the event time: a timestamp, a date or a number. It decides which of two rows of a key is newer,
        and which rows are late. Without it arrival does.

    Raises
    ------
    SchemaError
        A column is missing.

    Notes
    -----
    Each step gives a new stream; nothing runs until it is written. Punctuation and tombstones pass every step.

    Examples
    --------
    >>> rows = spark.readStream.format("upstream").options(key="vehicle_id", time="timestamp").load("feed/")
    >>> stream = us.UpdateStream(rows, key="vehicle_id", event_time="timestamp")
    """

    def write(
        self,
        table: str | os.PathLike[str],
        *,
        checkpoint: str | os.PathLike[str],
        key: str | Sequence[str] | None = None,
        event_time: str | None = None,
        buckets: int | None = None,
        expected_keys: int | None = None,
        target: str | None = None,
        metrics_location: str | os.PathLike[str] | None = None,
        delete_when: str | Column | None = None,
        **options: Any,
    ) -> DataStreamWriter:
        """Write the newest row of each key into a Delta table, exactly once.

        Parameters
        ----------
        table
            Its folder or address. The query makes it on first use.
        checkpoint
            Where the query keeps its state, and all operators report.
        key, event_time
            Other columns than the stream's own, such as the key and ``window_id`` for a table of every window.
        buckets, expected_keys
            How many parts a new table has, or how many keys it is to hold.
        target
            The bound that the staleness of each batch is to keep to, such as ``p99 < 10 s``.
        metrics_location
            Where a Delta table with a row of figures for each commit is kept.
        delete_when
            A condition: a row in which it is true deletes its key.
        **options
            More options of the sink, as they are named there.

        Returns
        -------
        pyspark.sql.streaming.DataStreamWriter
            To be given a trigger and a query name, and started.

        Raises
        ------
        OptionError
            An argument is wrong, or an option is unknown.
        SchemaError
            A column cannot be held by the table, or does not fit the one there is.
        TableError
            There is a table of another layout.
        CheckpointError
            The checkpoint belongs to another stream.

        Examples
        --------
        >>> query = stream.write("speeds", checkpoint="speeds_cp").trigger(availableNow=True).start()
        >>> query.awaitTermination()
        """
        twice = [name for name in options if name.lower() in ("checkpointlocation", "path")]
        if twice:
            raise OptionError(
                f"the option {twice[0]} is given beside table and checkpoint", expected="each once", hint="leave it out"
            )
        return write_latest(
            self,
            table,
            key=key,
            event_time=event_time,
            buckets=buckets,
            expectedKeys=expected_keys,
            target=target,
            metricsLocation=metrics_location,
            deleteWhen=delete_when,
            checkpointLocation=path_argument("checkpoint", checkpoint),
            **options,
        )
