"""The fluent update stream: steps on rows that have an update key, ending in a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ..conf.arguments import path_argument, text_argument
from ..core.watermark.policies import PolicyName
from ..plan.places import needs_checkpoint, places
from .combining import Combining
from .describe import Description, live_places, source_feeds
from .intake.dataframe import OnMalformed, plan_intake, policy_of
from .keyed import checkpoint_argument, key_argument
from .stateful import Stateful
from .stateless import Stateless

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from typing_extensions import Self

__all__ = ["UpdateStream"]


class UpdateStream(Stateless, Stateful, Combining):
    """Rows that update a key.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Streaming, with the system column ``_upstream``, as ``spark.readStream.format("upstream")`` gives it.
    key : str or sequence of str
        The update key's column or columns.
    time : str, optional
        The column that says which of two rows of a key is newer: a timestamp, a date or a number. Without it, arrival does.

    Raises
    ------
    SchemaError
        A column is missing.

    Notes
    -----
    Each step gives a new stream; nothing runs until it is written, by :func:`~upstream.sink.write_latest.write_latest` or as the DataFrame
    :attr:`df`. Punctuation and tombstones pass every step.
    """

    @classmethod
    def from_dataframe(
        cls,
        df: DataFrame,
        *,
        key: str | Sequence[str],
        time: str | None = None,
        checkpoint_location: str | os.PathLike[str] | None = None,
        feed: str | Column | None = None,
        order: str | Column | None = None,
        deleted: str | Column | None = None,
        progress: PolicyName | None = None,
        delay: str = "10 minutes",
        target_late: float = 0.001,
        displacement: int = 1000,
        max_jump: str = "1 hour",
        confirmations: int = 5,
        time_format: str | None = None,
        time_zone: str = "UTC",
        on_malformed: OnMalformed = "quarantine",
        quarantine_location: str | os.PathLike[str] | None = None,
        late_location: str | os.PathLike[str] | None = None,
        shards: int = 16,
        name: str = "rows",
    ) -> Self:
        """An update stream of any streaming DataFrame: Spark's own Kafka source, a Delta table's change feed, files, another query's rows.

        Parameters
        ----------
        df : pyspark.sql.DataFrame
            Streaming, without the system column.
        key, time
            As for the class. With ``progress="heartbeat"`` `time` is a new column, in which rows are stamped on entry.
        checkpoint_location
            A folder below the query's checkpoint, or that checkpoint itself, for what is known of each feed. Leave it out: the query's is used.
        feed
            A column or SQL expression that names the independent feed of a row, whose progress is its own: a partition, a file, a region;
            tens or hundreds, not one for each key. Unless given, topic and partition where `df` has the columns ``topic``, ``partition`` and
            ``offset`` of Spark's Kafka source, else there is one feed.
        order
            A column or SQL expression that says in which order the rows of a feed came, within a batch; Kafka's ``offset`` in the case above.
            Without it, the order of Spark's tasks counts, and in each the order of its rows. It matters for rows of one key with one time,
            for the policy ``displaced``, and for the outlier guard.
        deleted
            A column or SQL condition: where it is true the row is a tombstone, which takes its key out of the table.
        progress
            How far each feed is complete: ``ordered``, ``bounded``, ``adaptive``, ``displaced``, ``embedded``, ``heartbeat``, ``latent``, as the source's
            option of this name. Without it ``bounded`` if there is a time, else ``latent``.
        delay
            For ``bounded``: how far behind the largest time a row may come; for ``adaptive`` until a feed's own disorder is known.
        target_late
            For ``adaptive``: the share of rows that may be late.
        displacement
            For ``displaced``: by how many rows a row may be out of its place.
        max_jump, confirmations
            The outlier guard: a row further than this beyond the largest confirmed time does not move progress, until so many in succession
            lie there.
        time_format, time_zone
            How the time is read, as the source's options; text and local times become timestamps.
        on_malformed
            What becomes of a row without a key, a readable time or a feed: ``quarantine`` puts it aside, ``fail`` ends the query.
        quarantine_location
            A folder for such rows, as Parquet files with a reason; unless given, ``quarantine`` below the checkpoint.
        late_location
            A folder for a copy of rows below the low-watermark that their feed had promised, as Parquet files. They are counted in any case,
            and take part: a row of a key whose newest row is older is welcome whenever it comes.
        shards
            Into how many parts feeds are divided; fixed for the life of a checkpoint. A feed is in one of them.
        name
            The input's own, if a query has several: reports and files put aside are named by it, and so is the one feed.

        Raises
        ------
        OptionError
            `df` does not stream, or an option is wrong.
        SchemaError
            A column is missing or not of a fitting type, or `df` has the system column already.

        Notes
        -----
        Guarantee: rows, their system column and punctuation are a function of what Spark journaled: the rows that `df` gives for a batch, and
        the batch's time, which is their arrival. It takes a shuffle by feed, in which the rows of one feed meet in one task.
        """
        intake = plan_intake(
            df,
            key=key_argument(key),
            time=text_argument("time", time),
            feed=feed,
            order=order,
            deleted=deleted,
            policy=policy_of(progress, time, delay, target_late, displacement, max_jump, confirmations),
            time_format=time_format,
            time_zone=time_zone,
            on_malformed=on_malformed,
            quarantine_location=quarantine_location,
            late_location=late_location,
            checkpoint_location=checkpoint_argument(checkpoint_location),
            shards=shards,
            name=name,
        )
        return cls._of(intake)

    def describe(self, checkpoint_location: str | os.PathLike[str] | None = None) -> Description:
        """What is known of the stream's columns, and how far its feeds are, as the last batch left them.

        Parameters
        ----------
        checkpoint_location
            The query's: what its ``upstream`` sources and its operators have reported there. Without it only operators with a place of their own
            are looked up.

        Returns
        -------
        Description
            To be read, or printed. Of feeds it knows what the query has said by now: nothing, if it has never run.
        """
        if checkpoint_location is not None:
            checkpoint_location = path_argument("checkpoint_location", checkpoint_location)
        columns = dict.fromkeys(self.schema.names, "") | dict.fromkeys(self.key, "update key")
        if self.time is not None:
            columns[self.time] = "ordered" if self.plan.in_order else "bounded"
            if self.windows and self.time == "window_time":  # the four go up together
                others = ("window_id", "window_start", "window_end")
                columns |= {name: "bounded" for name in others if not columns.get(name, "-")}
        kind = self._time_type()
        micros = kind is not None and pa.types.is_timestamp(kind)
        sources = [] if checkpoint_location is None else source_feeds(checkpoint_location)
        known = checkpoint_location is not None or not needs_checkpoint(self.plan)
        folders = tuple(places(self.plan, checkpoint_location).values()) if known else ()
        return Description(columns, [*sources, *live_places(folders, micros=micros)])
