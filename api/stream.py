"""The stream of updates that users write to a latest table, and the short way from a feed to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ..conf.errors import OptionError
from ..conf.locations import source_address
from ..conf.options import frame_argument, path_argument, python_options, text_argument, word_argument
from ..core.pushdown.at_source import refuse_preimages, source_options, with_checkpoint
from ..core.rows.key import Key, json_tree
from ..core.rows.system_column import DELETED, SYSTEM
from ..core.rows.text import check_collations
from ..core.watermark.choice import Watermark, check_watermark
from ..datasource.latest_stream import (
    checkpoint_option,
    event_time_of,
    latest_options,
    load_source,
    option_texts,
    update_key,
)
from ..datasource.schema import feed_time
from ..operators.compile import BoundStream, bind, in_stages, late_letters
from ..operators.describe import Description, live_places, source_feeds
from ..operators.ingest.dataframe import Idle, OnMalformed, intake, on_demand_watermark
from ..operators.ingest.plan import IntakePlan, policy_of
from ..operators.runtime.steps import arrow_step
from ..plan.explain import PlanText, draw_plan, explain_plan, fusable
from ..plan.fingerprint import late_step, number_along, places
from ..plan.nodes import InputRows, Node, TimeJoin, left_out_by_source, source_text, time_format_given
from ..plan.properties import check_columns, check_table_key
from ..plan.rewrites import rewritten
from ..sink.write_latest import write_latest
from .windows_and_joins import WindowsAndJoins

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType
    from typing_extensions import Self


class UpdateStream(WindowsAndJoins):
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
    time_format, time_zone : str, optional
        The unit of an event time of numbers, such as ``epoch_ms``, and the zone of local times [default: the options of
        the ``upstream`` source].

    Raises
    ------
    SchemaError
        A column is missing.

    Notes
    -----
    Each step gives a new stream; nothing runs until it is written. Punctuation and tombstones pass every step.

    Examples
    --------
    >>> rows = spark.readStream.format("upstream").options(key="vehicle_id", eventTime="timestamp").load("feed/")
    >>> stream = us.UpdateStream(rows, key="vehicle_id", event_time="timestamp")
    """

    def __init__(
        self,
        df: DataFrame,
        *,
        key: str | Sequence[str],
        event_time: str | None = None,
        time_format: str | None = None,
        time_zone: str | None = None,
    ) -> None:
        frame_argument("df", df)
        refuse_preimages(df, "an update stream")
        given = source_options(df)
        if text_argument("event_time", event_time) is not None:
            (event_time,) = spelt(Key.given(event_time), df.schema)
        self.plan = InputRows(
            spelt(Key.given(key), df.schema), event_time, df.schema,
            left_out_by_source(df), frame=df, source=source_text(given), ours=given is not None,
            given=time_format_given(given, event_time, time_format, time_zone),
        )  # fmt: skip
        check_columns(self.plan)
        check_collations(df.schema, names=self.plan.key)

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
        dead_letters: str | os.PathLike[str] | None = None,
        dead_letter_rows: Literal["late"] | None = None,
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
            The format and zone of the time, like the source's options, for all steps; text and local times become
            timestamps.
        on_malformed
            For a row without a key, a readable time or a partition: ``quarantine`` it, or ``fail`` the query.
        dead_letters
            The location of the dead-letter table [default: ``dead_letters`` below the checkpoint].
        dead_letter_rows
            With ``late``, the table also gets copies of late rows, which are counted and still take part.
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
            `df` is not a stream, or an argument is wrong.
        SchemaError
            A column is missing or not of a fitting type, or `df` has the system column already.

        Notes
        -----
        Guarantee: rows, their system column and punctuation are a function of a batch's rows in `df`, and of its time,
        which is their arrival. It takes a shuffle by `feed`.

        There is no ``onEnd``: windows that are open at the end of a bounded run stay open for the next one.

        Examples
        --------
        >>> rows = spark.readStream.format("rate").load()
        >>> late = us.Watermark.bounded("5 minutes")
        >>> stream = us.UpdateStream.from_dataframe(rows, key="value", event_time="timestamp", watermark=late)
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        frame_argument("df", df)
        policy = policy_of(watermark, event_time)
        plan = IntakePlan(
            name, Key.given(key), text_argument("event_time", event_time), time_format, time_zone, policy,
            word_argument("on_malformed", on_malformed, OnMalformed) == "fail", shards,
            to_arrow_schema(df.schema, timezone="UTC"), on_demand_watermark(policy, idle, ets_delay),
        )  # fmt: skip
        return cls._of(
            intake(
                df,
                plan,
                feed=feed,
                order=order,
                deleted=deleted,
                dead_letters=dead_letters,
                dead_letter_rows=dead_letter_rows,
            )
        )

    @property
    def df(self) -> DataFrame:
        """The stream as a DataFrame. If it has steps with state, use :meth:`dataframe`."""
        return self._bound(self.plan, None).df

    def dataframe(self, checkpoint: str | os.PathLike[str]) -> DataFrame:
        """Return the stream as a DataFrame, with the system column, for a query of your own.

        Parameters
        ----------
        checkpoint
            The one that the query will have: operators report below it.

        Returns
        -------
        pyspark.sql.DataFrame

        Examples
        --------
        >>> query = stream.queue().dataframe("cp").writeStream.format("noop").option("checkpointLocation", "cp")
        """
        place = path_argument("checkpoint", checkpoint)
        return with_checkpoint(self.bound(place).df, place)

    def bound(self, checkpoint: str | os.PathLike[str] | None, *, newest: bool = False) -> BoundStream:
        """Return the stream on Spark for the sink; `checkpoint` is the query's, None if no operator needs it.

        With `newest`, the consumer needs only the newest row of each key.
        """
        place = None if checkpoint is None else path_argument("checkpoint", checkpoint)
        return self._bound(self._rewritten_for_newest if newest else self._rewritten, place)

    def _bound(self, plan: Node, checkpoint: str | None) -> BoundStream:
        return bind(plan, checkpoint)

    def explain(
        self, form: Literal["text", "svg"] = "text", *, checkpoint: str | os.PathLike[str] | None = None
    ) -> str:
        """Return the steps of the stream, what is known of the rows after each, and what state each keeps and until
        when.

        Parameters
        ----------
        form
            Lines of text, the last step first; or a picture, in which rows go down.
        checkpoint
            The query's, to see where operators report, and which share a stage there.

        Returns
        -------
        str

        Raises
        ------
        OptionError
            There is no such form.
        CheckpointError
            The checkpoint belongs to other operators.

        Examples
        --------
        >>> print(stream.where("speed > 0").explain())
        where speed > 0
        │  key vehicle_id, event time timestamp
        │  every row, once
        │  runs where the rows are read, not in Spark: its condition means the same there
        └─ read files feed/
              key vehicle_id, event time timestamp
              every row, once
        """
        if form not in ("text", "svg"):
            raise OptionError(
                f"explain({form!r})", expected="'text' or 'svg'", hint="give a checkpoint as explain(checkpoint=…)"
            )
        if checkpoint is not None:
            checkpoint = path_argument("checkpoint", checkpoint)
        plan = self._rewritten
        folders = {} if checkpoint is None else places(plan, checkpoint)
        fused = in_stages(plan, folders, checkpoint)[0] if folders else fusable(plan)
        return PlanText((explain_plan if form == "text" else draw_plan)(plan, folders, fused))

    def _repr_html_(self) -> str:
        return self.explain("svg")

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
            if number_along(self.plan, "windows") and self.event_time == "window_time":  # the four go up together
                others = ("window_id", "window_start", "window_end")
                columns |= {name: "bounded" for name in others if not columns.get(name, "-")}
        kind = self.plan.time_type
        micros = kind is not None and pa.types.is_timestamp(kind)
        sources = [] if checkpoint is None else source_feeds(checkpoint)
        folders = () if checkpoint is None else tuple(places(self.plan, checkpoint).values())
        return Description(columns, [*sources, *live_places(folders, micros=micros)])

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
        sequence_by: str | Sequence[str] | None = None,
        **options: Any,
    ) -> DataStreamWriter:
        """Write the newest row of each key into a Delta table, exactly once.

        Parameters
        ----------
        table
            Its folder or address. The query makes it on first use.
        checkpoint
            Where the query keeps its state, malformed rows (in ``dead_letters``), and the reports of sources and
            operators.
        key, event_time
            Other columns than the stream's own, such as the key and ``window_id`` for a table of every window.
        buckets, expected_keys
            The number of parts of a new table, or the expected number of keys.
        target
            A bound on the staleness of each batch, such as ``p99 < 10 s``.
        metrics_location
            Where a Delta table with a row of figures for each commit is kept.
        delete_when
            A condition: a row in which it is true deletes its key.
        sequence_by
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
        twice = [name for name in python_options(options) if name.lower() in ("checkpointlocation", "path")]
        if twice:
            raise OptionError(
                f"the option {twice[0]} is given beside table and checkpoint", expected="each once", hint="leave it out"
            )
        keys = Key.optional(key)
        if keys is not None:
            check_table_key(self.plan, keys)
        return write_latest(
            self,
            table,
            key=keys,
            event_time=event_time,
            buckets=buckets,
            expected_keys=expected_keys,
            target=target,
            metrics_location=metrics_location,
            delete_when=delete_when,
            sequence_by=sequence_by,
            checkpoint=path_argument("checkpoint", checkpoint),
            **options,
        )

    def late_rows(
        self,
        checkpoint: str | os.PathLike[str],
        *,
        watermark: Watermark | None = None,
        name: str = "late",
        **options: object,
    ) -> UpdateStream:
        """Read the rows that came too late for the last step as a stream of their own, for another query.

        The step is a window, a merge, an ordered release, a distinct or an ordered join with ``dead_letters=True``. Its
        late rows go to the dead-letter table, and this stream follows that. Write it with a checkpoint of its own,
        beside the first query or after it.

        Parameters
        ----------
        checkpoint
            That of the query which writes this stream.
        watermark
            How far the late rows, which come in no order, are complete, such as ``Watermark.bounded("1 day")``.
        name
            The input's own name, as for :meth:`from_dataframe`.
        **options
            Any other option of the source, such as ``maxRowsPerTrigger=10_000``.

        Returns
        -------
        UpdateStream
            With the columns, the key and the event time that rows have before the step; of a join, those of its
            results.

        Raises
        ------
        OptionError
            No step before has ``dead_letters=True``, or an option is wrong.
        CheckpointError
            The checkpoint belongs to another job.

        Notes
        -----
        Guarantee: each late row comes once.

        Examples
        --------
        >>> lateness = us.Lateness(dead_letters=True)
        >>> means = stream.window("15 minutes", lateness=lateness).agg(speed=us.avg("speed"))
        >>> query = means.write("means", checkpoint="means_cp").trigger(availableNow=True).start()
        >>> late = means.late_rows("means_cp").write("late_speeds", checkpoint="late_speeds_cp")
        """
        from pyspark.sql import functions as F
        from pyspark.sql.types import BooleanType, StructField, StructType

        step, folder = late_step(self.plan, path_argument("checkpoint", checkpoint))
        rows = step if isinstance(step, TimeJoin) else step.inputs[0]
        fields = [each for each in rows.schema.fields if each.name != SYSTEM]
        schema = StructType([*fields, StructField(DELETED, BooleanType())])
        found = load_source(self.session, late_letters(step, checkpoint), {"connector": "latest"}, options)
        row = F.from_json("payload", schema, {"mode": "FAILFAST"}).alias("row")
        stream = UpdateStream.from_dataframe(
            found.where(F.col("origin") == folder).select(row).select("row.*"),
            key=rows.key, event_time=rows.time, watermark=watermark, deleted=DELETED,
            time_format=rows.time_format.format, time_zone=rows.time_format.zone, shards=1, name=name,
        )  # fmt: skip
        return stream.select(*[each.name for each in fields])

    @cached_property
    def _rewritten(self) -> Node:
        """The plan after all rules. It is always the same one, so that later steps find the DataFrame's columns."""
        return rewritten(self.plan, arrow_step)

    @cached_property
    def _rewritten_for_newest(self) -> Node:
        """The plan after all rules, for a consumer that needs only the newest row of each key."""
        return rewritten(self.plan, arrow_step, newest=True)


def read(
    spark: SparkSession,
    path: str | os.PathLike[str] | None = None,
    *,
    key: str | Sequence[str] | None = None,
    event_time: str | None = None,
    watermark: Watermark | None = None,
    watermark_delay: str | None = None,
    coalesce: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: object,
) -> UpdateStream:
    """Read a feed as a stream of updates.

    Parameters
    ----------
    spark
        Any session.
    path
        File, directory or pattern; ``kafka://HOST:PORT/TOPIC``; ``latest:`` and a table; None for another connector.
    key
        The update key's column or columns.
    event_time
        The column of the event time: it decides which of two rows of a key is newer, and moves the watermark. Without
        it arrival decides, or the position of change events.
    watermark
        How far each input partition is complete, such as ``Watermark.adaptive(late=0.001)``.
    watermark_delay
        Short for ``Watermark.bounded(…)``: how far a row may be behind the newest.
    coalesce
        Let only the newest row of each key leave a task in each batch. Right for a table or a queue; windows need every
        row, and refuse it.
    checkpoint
        The checkpoint of the query that will write the stream. The source then keeps the inferred columns there, for
        the life of the checkpoint.
    **options
        Options of the source (docs/options.md), such as ``connector="kafka"``, ``time_format="epoch_ms"``.
        Latest tables and change events (``file_format="debezium"``) need no `key`.

    Returns
    -------
    UpdateStream
        To be filtered, windowed, and written.

    Raises
    ------
    OptionError
        An argument or an option is wrong.
    SchemaError
        A column is missing or has an unfit type, or the data has no schema.

    Examples
    --------
    >>> stream = us.read(spark, "feed/", key="vehicle_id", event_time="timestamp", watermark_delay="5 minutes")
    """
    time = event_time_of(text_argument("event_time", event_time), options)
    place = None if path is None else path_argument("path", path)
    asked = _asked(place, key, time, watermark, watermark_delay, coalesce, options) | checkpoint_option(checkpoint)
    df = load_source(spark, place, asked, options)
    return UpdateStream(df, key=update_key(df, key), event_time=time if time is not None else feed_time(df.schema))


def feed_columns(
    path: str | None,
    *,
    key: Sequence[str] | None,
    event_time: str | None = None,
    watermark_delay: str | None = None,
    coalesce: bool = False,
    checkpoint: str | None = None,
    **options: object,
) -> StructType | None:
    """Return the columns of the stream that :func:`read` would give, without a session, or raise its error.

    None means that only Spark has one of the types. In the checkpoint of a query that has not begun, they replace those
    that are recorded.
    """
    from ..datasource.spark_reader import check_source

    time = event_time_of(event_time, options)
    asked = _asked(path, key, time, None, watermark_delay, coalesce, options) | checkpoint_option(checkpoint)
    return check_source({**asked, **option_texts(options), **({} if path is None else {"path": path})})


def _asked(
    path: str | None,
    key: str | Sequence[str] | None,
    time: str | None,
    watermark: Watermark | None,
    watermark_delay: str | None,
    coalesce: bool,
    options: Mapping[str, object],
) -> dict[str, str]:
    """Return the source's options for the arguments of :func:`read`."""
    named = next((name for name in options if name.lower() == "eventtime"), None)
    if named is not None:
        raise OptionError(
            f"{named}={options[named]!r}",
            expected="event_time",
            hint=f"write event_time={options[named]!r}: all steps use it",
        )
    if watermark is not None and watermark_delay is not None:
        raise OptionError(
            "both watermark and watermark_delay are given", expected="one of them", hint="leave watermark_delay out"
        )
    policy = Watermark.bounded(watermark_delay) if watermark_delay is not None else check_watermark(watermark)
    more = {**options, **source_address(path)[1]}
    asked = {**latest_options(key, time, more=more), "coalesce": str(bool(coalesce)).lower()}
    return asked | ({} if policy is None else policy.options())


def spelt(key: Key, schema: StructType) -> Key:
    """Return a key as a schema spells it; :func:`check_columns` reports what is absent."""
    tree = json_tree(schema.jsonValue()["fields"])
    return key if key.absent(tree) else key.resolved(tree)
