"""The public entry point: write a DataFrame to a table of the newest row per key."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..conf.column_names import quoted
from ..conf.errors import OptionError, SchemaError
from ..conf.locations import Place, absolute_location, check_apart, path_on_server, real_location
from ..conf.options import path_argument, python_options, text_argument, whole_argument
from ..conf.session import register_data_source
from ..core.pushdown.at_source import (
    at_source,
    check_coalesced,
    paths_read,
    reads_coalesced,
    refuse_preimages,
    with_checkpoint,
)
from ..core.rows.key import Key
from ..core.rows.system_column import SYSTEM
from ..storage.folder import TableFolder
from .commit.lease import keep_lease
from .commit.metrics_table import offer_figures
from .figures.summary import CommitSummary, last_summary
from .frames import ROWS_OPTION, FrameStep, to_buckets
from .frames import observed as framed_metrics
from .spec.history import History, keeps_all
from .spec.key_names import DELETED, with_deletions
from .spec.layout import buckets_for
from .spec.options import parse_sink_options
from .table.table import recorded_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType
    from typing_extensions import Self

    from ..core.pushdown.source_steps import ArrowStep
    from .spec.layout import Layout
    from .spec.options import SinkTarget


METRICS = "upstream"
"""The name of the observed metrics in Spark's query progress."""

_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


class KeyedStream(Protocol):
    """A stream with an update key, such as :class:`~upstream.UpdateStream`."""

    @property
    def session(self) -> SparkSession: ...
    @property
    def key(self) -> Key: ...
    @property
    def event_time(self) -> str | None: ...
    def bound(self, checkpoint: str | os.PathLike[str] | None, *, newest: bool = False) -> CheckpointStream: ...


class CheckpointStream(Protocol):
    """A stream on Spark, with the query's checkpoint."""

    @property
    def df(self) -> DataFrame: ...
    @property
    def schema(self) -> StructType: ...
    @property
    def key(self) -> Key: ...
    @property
    def time(self) -> str | None: ...
    @property
    def shards(self) -> int | None: ...
    @property
    def inputs(self) -> tuple[Place, ...]: ...
    @property
    def aside(self) -> tuple[Place, ...]: ...
    def without_single_keys(self) -> Self: ...
    def check_every_row(self, otherwise: str) -> None: ...
    def record(self, checkpoint: str) -> None: ...
    def in_arrow(self, step: ArrowStep, schema: StructType) -> DataFrame | None: ...


def write_latest(
    updates: DataFrame | KeyedStream,
    path: str | os.PathLike[str],
    *,
    key: str | Sequence[str] | None = None,
    event_time: str | None = None,
    sequence_by: str | Sequence[str] | None = None,
    buckets: int | None = None,
    expected_keys: int | None = None,
    partitions: int | None = None,
    target: str | None = None,
    metrics_location: str | os.PathLike[str] | None = None,
    delete_when: str | Column | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: Any,
) -> DataStreamWriter:
    """Write a stream into a Delta table that holds the newest row of each key.

    Each task gets whole buckets of keys, so a batch is one shuffle and one commit. After a queue with as many shards as
    there are buckets, it needs no shuffle. For the figures of each batch, see :meth:`LatestTable.batch_metrics` and
    :meth:`~upstream.LatestTable.commits`.

    Parameters
    ----------
    updates
        An :class:`~upstream.UpdateStream`, or a streaming DataFrame with or without the system column
        ``_upstream``. Punctuation rows pass.
    path
        The table's folder or address. It is made on first use.
    key
        The update key's column or columns [default: the stream's own].
    event_time
        The column that decides which of two rows of a key is newer; without it, the later arrival is. If no key is
        given, it is the stream's own.
    sequence_by
        The columns, or fields of structs, that decide instead if they are not event times, compared in their order:
        ``("source.file", "source.pos")``. An event time then only moves the low-watermark.
    buckets
        The number of parts of a new table [default: by `expected_keys`, the stream's number of shards, or 16]. Later,
        `upstream rebucket` changes it.
    expected_keys
        The number of keys of a new table: it gets a bucket for each 500,000, and 16 at least.
    partitions
        The number of tasks that write, at most that of the buckets [default: that of the cores, at most
        ``spark.sql.shuffle.partitions``].
    target
        A bound on the staleness of each batch, such as ``p99 < 10 s``.
    metrics_location
        The location of a Delta table with a row of figures for each commit.
    delete_when
        A boolean column, which the table does not get, an SQL condition or a column expression. A row for which it is
        true deletes its key, from its time on.
    checkpoint
        The query's checkpoint [default: a folder named after the table below Spark's
        ``spark.sql.streaming.checkpointLocation``, if that is set].
    **options
        More options of the sink, such as ``engine="merge"`` for a table that another program has made, or
        ``**{"storage.region": …}``.

    Returns
    -------
    pyspark.sql.streaming.DataStreamWriter
        The writer; give it a trigger and a query name, and start it.

    Raises
    ------
    OptionError
        `updates` is not a stream, a DataFrame has no key, or an option is unknown or mistyped.
    SchemaError
        A column cannot be held by the table, or does not fit the one there is.
    TableError
        The path holds a table of another layout.

    Notes
    -----
    Guarantee: exactly once, given a source that replays its batches.

    Examples
    --------
    >>> updates = us.latest(spark, "feed/", key="vehicle_id", event_time="timestamp")
    >>> writer = us.write_latest(
    ...     updates, "newest", key="vehicle_id", event_time="timestamp", checkpoint="newest_checkpoint"
    ... )
    >>> writer.trigger(availableNow=True).start().awaitTermination()
    """
    from pyspark.sql import DataFrame

    from .spark_writer import check_sink

    path = path_argument("path", path)
    key, time = Key.optional(key), text_argument("event_time", event_time)
    sequence = Key.optional(sequence_by, "sequence_by")
    target = text_argument("target", target)
    buckets, partitions = whole_argument("buckets", buckets), whole_argument("partitions", partitions)
    expected_keys = whole_argument("expected_keys", expected_keys)
    session = updates.sparkSession if isinstance(updates, DataFrame) else updates.session
    path, options = path_on_server(session, path), python_options(options)
    if checkpoint is not None:
        options["checkpointLocation"] = path_argument("checkpoint", checkpoint)
    checkpoint = _checkpoint(session, path, options)
    checkpoint = None if checkpoint is None else path_on_server(session, checkpoint)
    placed: int | None = None
    recorded: Mapping[str, str] | None = None
    if isinstance(updates, DataFrame):
        stream: DataFrame | CheckpointStream = updates
        _check_streaming(updates)
        refuse_preimages(updates, "a latest table")
        known = [("the source", each) for each in paths_read(updates)]
    else:
        recorded = recorded_options({"path": path} | {name: str(value) for name, value in options.items()})
        newest = sequence is None and time in (None, updates.event_time) and _keeps_newest(options, recorded)
        stream = _bound(updates, checkpoint, key, newest)
        placed = stream.shards
        known = [*stream.inputs, *stream.aside]
        if key is None:
            key, time = stream.key, time or stream.time
        elif key != stream.key:
            placed = None
    if sequence is not None:
        check_coalesced(_on_spark(stream), sequence.text)
    if key is None and not keeps_all(options):
        raise OptionError(
            "the DataFrame has no update key",
            expected="the name of one of its columns, or several",
            hint='add key="…", or write an UpdateStream, which has a key',
        )
    if str(options.get("engine", "")).lower() == "merge":
        check_apart([("path", path)], [*known, *(() if checkpoint is None else (("the checkpoint", checkpoint),))])
        given = {"buckets": buckets, "partitions": partitions, "target": target, "metricsLocation": metrics_location}
        given |= {"sequenceBy": sequence}
        _record(stream, checkpoint)
        return _merged(_on_spark(stream), path, key, time, {**options, **given}, delete_when, checkpoint)
    if not isinstance(stream, DataFrame):
        letters, others = _dead_letters(stream.aside, options)
        known, options = [*stream.inputs, *others], options | letters
    given = {"path": path} | {name: str(value) for name, value in options.items() if not _is_checkpoint(name)}
    given |= {} if checkpoint is None else {"checkpointLocation": checkpoint}
    buckets = buckets or _buckets(recorded_options(given) if recorded is None else recorded, expected_keys, placed)
    given |= {"buckets": str(buckets)} | ({} if expected_keys is None else {"expectedKeys": str(expected_keys)})
    if key is not None:
        given["key"] = key.text
    rows = stream
    if delete_when is not None:
        df, given["deleteWhen"] = with_deletions(_on_spark(stream), delete_when)
        if given["deleteWhen"] == DELETED:  # from here on Spark holds the rows
            rows = df
    named = {"eventTime": time, "sequenceBy": None if sequence is None else sequence.text, "target": target}
    given |= {name: value for name, value in named.items() if value is not None}
    if metrics_location is not None:
        given["metricsLocation"] = path_on_server(session, path_argument("metrics_location", metrics_location))
    register_data_source(session)
    place = parse_sink_options(given, started=False)
    check_apart(place.tables, known)
    _check_every_row(stream, place)
    layout = check_sink(given, rows.schema)
    keep_lease(session, place.folder, place.options.lease_us)
    offer_figures(session, place.folder)
    parted = bool(layout.key) and (placed != buckets or partitions is not None)
    frames = _in_frames(rows, layout, parted=parted)
    stamped = layout.progress_time
    if frames is None:
        observed = _observed(_on_spark(rows), stamped)
    else:
        observed, given[ROWS_OPTION] = frames.observe(METRICS, *framed_metrics(stamped)), rows.schema.json()
    _check_streaming(observed)
    if parted:
        observed = to_buckets(observed, layout.key, buckets, partitions, None if frames is None else frames["bucket"])
    observed = with_checkpoint(observed, checkpoint, place.storage)
    _record(stream, checkpoint)
    return observed.writeStream.format("upstream").outputMode("append").options(**given)


def _on_spark(stream: DataFrame | CheckpointStream) -> DataFrame:
    """Return the rows in Spark's own form, which costs 75 calls of the JVM if a step has to unpack them for it."""
    from pyspark.sql import DataFrame

    return stream if isinstance(stream, DataFrame) else stream.df


def _check_streaming(df: DataFrame) -> None:
    if not df.isStreaming:
        raise OptionError(
            "the DataFrame is not a stream",
            expected="a DataFrame made by readStream",
            hint="read it with spark.readStream",
        )


def _record(stream: DataFrame | CheckpointStream, checkpoint: str | None) -> None:
    """Record the steps of a stream that has them below the query's checkpoint."""
    from pyspark.sql import DataFrame

    if checkpoint is not None and not isinstance(stream, DataFrame):
        stream.record(checkpoint)


def _bound(updates: KeyedStream, checkpoint: str | None, key: Key | None, newest: bool) -> CheckpointStream:
    """Return the stream on Spark, without punctuation of single keys if the table has another key.

    Otherwise the table would take it for punctuation of all keys. With `newest`, the table keeps only the newest row of
    each of its keys.
    """
    names = updates.key if key is None else key
    bound = updates.bound(checkpoint, newest=newest and names == updates.key)
    return bound if set(bound.key) <= set(names) else bound.without_single_keys()


def _dead_letters(aside: Sequence[Place], options: Mapping[str, Any]) -> tuple[dict[str, str], list[Place]]:
    """Return the option for the sink's dead letters, which go to the table of the inputs', and the other places."""
    given = [str(value) for name, value in options.items() if name.lower() == "deadletters"]
    named = given or [place for _, place in aside]
    shared = set(map(real_location, named[:1]))
    others = [each for each in aside if real_location(each[1]) not in shared]
    return ({} if given or not named else {"deadLetters": named[0]}), others


def _keeps_newest(given: Mapping[str, Any], recorded: Mapping[str, str]) -> bool:
    """Return True if our own sink keeps one row of each key, the newest by its time."""
    named = {name.lower(): str(value) for name, value in given.items()}
    history = named.get("history", recorded.get("history", "latest"))
    others = {name.lower() for name in (*recorded, *given)} & {"sequenceby", "nullmeans", "columngroups"}
    return not others and History.parse(history).latest and named.get("engine", "").lower() != "merge"


def _check_every_row(updates: DataFrame | CheckpointStream, target: SinkTarget) -> None:
    """Refuse partial updates of a stream that lacks rows: they may have values that newer rows lack."""
    from pyspark.sql import DataFrame

    if not target.options.partial:
        return
    otherwise = "nullMeans and columnGroups would miss values here"
    if not isinstance(updates, DataFrame):
        updates.check_every_row(otherwise)
    elif reads_coalesced(updates):
        raise SchemaError(
            f"{otherwise}: the source coalesces", expected="every row, once", hint="read without the option coalesce"
        )


def _buckets(recorded: Mapping[str, str], expected_keys: int | None, placed: int | None) -> int:
    """Return the table's own number of buckets; for a new table, the stream's shards or the number for its keys."""
    own = recorded.get("buckets")
    if own is not None:
        return int(own)
    return placed if placed is not None and expected_keys is None else buckets_for(expected_keys)


def _merged(
    df: DataFrame,
    path: str,
    key: Key | None,
    time: str | None,
    given: Mapping[str, Any],
    deletes: str | Column | None,
    checkpoint: str | None,
) -> DataStreamWriter:
    """Return the writer for a table that another program has laid out."""
    from .foreign.delta_merge import check_merge

    named = {name: str(value) for name, value in given.items() if value is not None}
    others = {name: value for name, value in named.items() if not _is_checkpoint(name)}
    df, merge = check_merge(df, path, key, time, others, deletes)
    place = {} if checkpoint is None else {"checkpointLocation": checkpoint}
    return with_checkpoint(_observed(df, time), checkpoint).writeStream.foreachBatch(merge).options(**place)


@dataclasses.dataclass(frozen=True)
class BatchMetrics:
    """Figures of one batch that Spark observed before the sink."""

    batch_id: int
    rows: int  # without punctuation
    updates: int  # the updates that the rows represent
    oldest_arrival_us: int | None  # arrival of the oldest update, epoch microseconds; None without arrival times
    # least and greatest punctuation of the batch: numbers, or times as Spark prints them
    bounds: tuple[Any, Any] | None
    duration_s: float  # the whole batch, from planning to commit
    commit: CommitSummary | None = None  # the commit's own summary; None if the batch committed nothing


def batch_metrics(progress: StreamingQueryProgress, path: str, storage: Mapping[str, str]) -> BatchMetrics | None:
    """Return the figures of a batch that wrote the table at `path`; None if the progress has none."""
    seen = progress.observedMetrics.get(METRICS)
    if seen is None:
        return None
    found = seen.asDict()
    low, high = found.get("bound_low"), found.get("bound_high")
    return BatchMetrics(
        batch_id=progress.batchId,
        rows=found.get("rows") or 0,
        updates=found.get("updates") or 0,
        oldest_arrival_us=found.get("oldest_arrival_us"),
        bounds=None if low is None else (low, high),
        duration_s=progress.durationMs.get("triggerExecution", 0) / 1e3,
        commit=_commit_of(progress, path, storage),
    )


def _commit_of(progress: StreamingQueryProgress, path: str, storage: Mapping[str, str]) -> CommitSummary | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    location = absolute_location(path)
    with TableFolder(location, storage).guarded():
        try:
            table = DeltaTable(location, storage_options=dict(storage) or None)
        except TableNotFoundError:
            return None
        return last_summary(table, str(progress.id), progress.batchId)


def _in_frames(rows: DataFrame | CheckpointStream, layout: Layout, *, parted: bool) -> DataFrame | None:
    """Return the stream as frames of rows; None if Spark has converted the rows before."""
    from pyspark.sql import DataFrame

    framing, schema = FrameStep.of(layout, rows.schema, parted=parted)
    if isinstance(rows, DataFrame):
        return at_source(rows, framing, schema)
    return rows.in_arrow(framing, schema)


def _observed(df: DataFrame, time: str | None) -> DataFrame:
    """Observe counts, and least and greatest values only: percentiles would triple the cost of observing a row."""
    from pyspark.sql import functions as F

    if SYSTEM not in df.columns:
        return df.observe(METRICS, F.count("*").alias("rows"), F.count("*").alias("updates"))
    mark = F.coalesce(F.col(f"{SYSTEM}.punctuation"), F.lit(False))
    metrics: list[Column] = [
        F.count_if(~mark).alias("rows"),
        F.sum(F.when(~mark, F.coalesce(F.col(f"{SYSTEM}.covered"), F.lit(1)))).alias("updates"),
        F.min(F.when(~mark, F.unix_micros(F.col(f"{SYSTEM}.first_arrival")))).alias("oldest_arrival_us"),
    ]
    if time is not None:
        bound = F.when(mark, F.col(quoted(time)))
        metrics += [F.min(bound).alias("bound_low"), F.max(bound).alias("bound_high")]
    return df.observe(METRICS, *metrics)


def _is_checkpoint(option: str) -> bool:
    return option.lower() == "checkpointlocation"


def _checkpoint(session: SparkSession, path: str, options: Mapping[str, Any]) -> str | None:
    """Return the checkpoint, by default a folder named after the table below Spark's root for them, or None."""
    given = next((value for name, value in options.items() if _is_checkpoint(name)), None)
    if given is not None:
        return str(given)
    root = session.conf.get(_CHECKPOINTS, None)
    if not root:
        return None
    location = absolute_location(path)
    name = f"{os.path.basename(location)}-{hashlib.sha256(location.encode()).hexdigest()[:8]}"
    return f"{root.rstrip('/')}/{name}"
