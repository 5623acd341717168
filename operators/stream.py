"""The fluent update stream: steps on rows that have an update key, ending in a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ..conf.options import path_argument, text_argument
from ..plan.fingerprint import places
from .combination import CombinationSteps
from .describe import Description, live_places, source_feeds
from .group_by import GroupSteps
from .ingest.dataframe import Idle, OnMalformed, plan_intake
from .ingest.plan import policy_of
from .keyed_stream import key_argument
from .latest_joins import LatestJoinSteps
from .session_windows import InSessions
from .stateless import Stateless
from .table_joins import TableJoinSteps
from .time_joins import TimeJoinSteps

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from typing_extensions import Self

    from ..core.watermark.choice import Watermark


class UpdateStream(Stateless, InSessions, CombinationSteps, TimeJoinSteps, LatestJoinSteps, TableJoinSteps, GroupSteps):
    """Rows that update a key.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Streaming, with the system column ``_upstream``, as ``spark.readStream.format("upstream")`` gives it.
    key : str or sequence of str
        The update key's column or columns.
    event_time : str, optional
        The column that decides which of two rows of a key is newer: a timestamp, a date or a number. Without it,
        arrival does.

    Raises
    ------
    SchemaError
        A column is missing.

    Notes
    -----
    Each step gives a new stream; nothing runs until it is written, by :func:`~upstream.sink.write_latest.write_latest`
    or as the DataFrame :attr:`df`. Punctuation and tombstones pass every step.
    """

    @classmethod
    def from_dataframe(
        cls,
        df: DataFrame,
        *,
        key: str | Sequence[str],
        event_time: str | None = None,
        watermark: Watermark | None = None,
        idle: Idle = "wait",
        ets_delay: str | None = None,
        feed: str | Column | None = None,
        order: str | Column | None = None,
        deleted: str | Column | None = None,
        time_format: str | None = None,
        time_zone: str = "UTC",
        on_malformed: OnMalformed = "quarantine",
        quarantine_location: str | os.PathLike[str] | None = None,
        late_location: str | os.PathLike[str] | None = None,
        shards: int = 16,
        name: str = "rows",
    ) -> Self:
        """Make an update stream of any streaming DataFrame.

        The DataFrame may read Spark's own Kafka source, a Delta table's change feed, files, or another query's rows.

        Parameters
        ----------
        df : pyspark.sql.DataFrame
            A streaming DataFrame without the system column.
        key, event_time
            As for the class. With ``Watermark.arrival()``, `event_time` is a new column that receives each row's time
            of arrival.
        watermark
            How far each input partition is complete [default: ten minutes behind the newest row].
        idle
            For a silent input partition that a step waits for: ``wait``, or advance its watermark by the clock less
            `ets_delay` (``ets``). It is fixed for the life of a checkpoint.
        ets_delay
            With ``ets``: the most by which a row's time may be behind its arrival, such as ``"200 ms"`` [default: as
            measured].
        feed, order
            Columns or SQL expressions. `feed` names a row's input partition, which has a watermark of its own: tens or
            hundreds of them, not one for each key. `order` is the order in which its rows came within a batch [default:
            that of Spark's tasks]. If `df` has the columns ``topic``, ``partition`` and ``offset`` of Spark's Kafka
            source, these are the defaults; otherwise there is one input partition.
        deleted
            A column or SQL condition: if it is true, the row is a tombstone, which takes its key out of the table.
        time_format, time_zone
            The format and zone of the time, like the source's options; text and local times become timestamps.
        on_malformed
            For a row without a key, a readable time or a partition: ``quarantine`` it, or ``fail`` the query.
        quarantine_location, late_location
            Folders for Parquet files: of malformed rows with a reason [default: ``quarantine`` below the checkpoint],
            and of copies of late rows [default: none], which are counted and still take part.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.
        name
            The input's own name, if a query has several inputs: its reports and files carry it.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            `df` does not stream, or an argument is wrong.
        SchemaError
            A column is missing or not of a fitting type, or `df` has the system column already.

        Notes
        -----
        Guarantee: rows, their system column and punctuation are a function of the rows that `df` gives for a batch, and
        of the batch's time, which is their arrival. It takes a shuffle by `feed`.

        There is no ``atEnd``: windows that are open at the end of a bounded run stay open for the next one.

        Examples
        --------
        >>> rows = spark.readStream.format("rate").load()
        >>> late = us.Watermark.bounded("5 minutes")
        >>> stream = us.UpdateStream.from_dataframe(rows, key="value", event_time="timestamp", watermark=late)
        """
        intake = plan_intake(
            df,
            key=key_argument(key),
            time=text_argument("event_time", event_time),
            feed=feed,
            order=order,
            deleted=deleted,
            policy=policy_of(watermark, event_time),
            idle=idle,
            ets_delay=ets_delay,
            time_format=time_format,
            time_zone=time_zone,
            on_malformed=on_malformed,
            quarantine_location=quarantine_location,
            late_location=late_location,
            shards=shards,
            name=name,
        )
        return cls._of(intake)

    def describe(self, checkpoint: str | os.PathLike[str] | None = None) -> Description:
        """Return what is known of the stream's columns, and how far its feeds are, as the last batch left them.

        Parameters
        ----------
        checkpoint
            The query's, to which its ``upstream`` sources and its operators report; without it, there are only columns.

        Returns
        -------
        Description
            To be read, or printed. It has those feeds that the query has reported by now: nothing, if it has never run.

        Examples
        --------
        >>> stream.describe().columns["timestamp"]
        'bounded'
        """
        if checkpoint is not None:
            checkpoint = path_argument("checkpoint", checkpoint)
        columns = dict.fromkeys(self.schema.names, "") | dict.fromkeys(self.key, "update key")
        if self.event_time is not None:
            columns[self.event_time] = "ordered" if self.plan.in_order else "bounded"
            if self.windows and self.event_time == "window_time":  # the four go up together
                others = ("window_id", "window_start", "window_end")
                columns |= {name: "bounded" for name in others if not columns.get(name, "-")}
        kind = self._time_type()
        micros = kind is not None and pa.types.is_timestamp(kind)
        sources = [] if checkpoint is None else source_feeds(checkpoint)
        folders = () if checkpoint is None else tuple(places(self.plan, checkpoint).values())
        return Description(columns, [*sources, *live_places(folders, micros=micros)])
