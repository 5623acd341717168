"""An update stream that can be written to a latest table, and the short way from a feed to it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..conf.errors import OptionError
from ..conf.options import names_argument, path_argument, text_argument
from ..core.watermark.choice import Watermark, check_watermark
from ..datasource.latest_stream import latest_options, load_source
from ..operators import stream as operators_stream
from ..operators.keyed_stream import key_argument
from ..operators.late_rows import late_feed
from ..sink.write_latest import write_latest

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


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
        sequence: str | Sequence[str] | None = None,
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
            A bound on the staleness of each batch, such as ``p99 < 10 s``.
        metrics_location
            Where a Delta table with a row of figures for each commit is kept.
        delete_when
            A condition: a row in which it is true deletes its key.
        sequence
            Columns that order the rows of a key in place of the event time, such as a log position, or
            ``("source.file", "source.pos")``, compared in that order.
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
        names = names_argument("key", key)
        if names is not None:
            self._check_table_key([names] if isinstance(names, str) else names)
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
            sequence=sequence,
            checkpointLocation=path_argument("checkpoint", checkpoint),
            **options,
        )

    def late_rows(self, *, watermark: Watermark | None = None, **options: object) -> UpdateStream:
        """Read the rows that came too late for the last step as a stream of their own, for another query.

        The step is a window, a merge, an ordered release or a distinct with ``late_location``. It writes its late rows
        there, and this stream reads them. Write it with a checkpoint of its own, beside the first query or after it.

        Parameters
        ----------
        watermark
            How far the late rows, which come in no order, are complete, such as ``Watermark.bounded("1 day")``.
        **options
            Any other option of the source, such as ``maxRowsPerTrigger=10_000``.

        Returns
        -------
        UpdateStream
            With the columns, the key and the event time that rows have before the step.

        Raises
        ------
        OptionError
            No step before has a ``late_location``, or an option is wrong.

        Notes
        -----
        Guarantee: each late row comes once.

        Examples
        --------
        >>> means = stream.window("15 minutes", late_location="late/").agg(speed=us.avg("speed"))
        >>> late = means.late_rows().write("late_speeds", key=["vehicle_id", "timestamp"], checkpoint="late_speeds_cp")
        """
        feed = late_feed(self.plan)
        policy = check_watermark(watermark)
        asked = {**latest_options(feed.key, feed.event_time), "coalesce": "false", "fileFormat": "parquet"}
        asked |= {"schema": feed.schema} | ({} if policy is None else policy.options())
        if feed.time_format is not None:
            asked["timeFormat"] = feed.time_format
        return UpdateStream(
            load_source(self.session, feed.pattern, asked, options), key=feed.key, event_time=feed.event_time
        )


def read(
    spark: SparkSession,
    path: str | os.PathLike[str] | None = None,
    *,
    key: str | Sequence[str],
    event_time: str | None = None,
    watermark: Watermark | None = None,
    watermark_delay: str | None = None,
    coalesce: bool = False,
    **options: object,
) -> UpdateStream:
    """Read a feed as a stream of updates.

    Parameters
    ----------
    spark
        Any session.
    path
        File, directory or pattern; None for a connector that needs none.
    key
        The update key's column or columns.
    event_time
        The column of the event time: it decides which of two rows of a key is newer, and moves the watermark. Without
        it arrival decides.
    watermark
        How far each input partition is complete, such as ``Watermark.adaptive(late=0.001)``.
    watermark_delay
        Short for ``Watermark.bounded(…)``: how far a row may be behind the newest.
    coalesce
        Let only the newest row of each key leave a task in each batch. Right for a table or a queue; windows need every
        row, and refuse it.
    **options
        Any option of the source, see docs/options.md, for example ``connector="kafka"``, ``timeFormat="epoch_ms"``.

    Returns
    -------
    UpdateStream
        To be filtered, windowed, and written.

    Raises
    ------
    OptionError
        An argument is wrong. A wrong option of the source raises a Spark exception whose message ends in UpStream's,
        since Spark starts the source in a process of its own.

    Examples
    --------
    >>> stream = us.read(spark, "feed/", key="vehicle_id", event_time="timestamp", watermark_delay="5 minutes")
    """
    keys = key_argument(key)
    time = text_argument("event_time", event_time)
    spelt = next((name for name in options if name.lower() == "time"), None)
    if spelt is not None:
        raise OptionError(
            f"{spelt}={options[spelt]!r}",
            expected="event_time",
            hint=f"write event_time={options[spelt]!r}: all steps use it",
        )
    if watermark is not None and watermark_delay is not None:
        raise OptionError(
            "both watermark and watermark_delay are given", expected="one of them", hint="leave watermark_delay out"
        )
    policy = Watermark.bounded(watermark_delay) if watermark_delay is not None else check_watermark(watermark)
    asked = {**latest_options(key, time), "coalesce": str(bool(coalesce)).lower()}
    asked |= {} if policy is None else policy.options()
    df = load_source(spark, None if path is None else path_argument("path", path), asked, options)
    return UpdateStream(df, key=keys, event_time=time)
