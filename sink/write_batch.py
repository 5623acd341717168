"""``df.write.format("upstream")``: write a batch DataFrame by the code of the stream."""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..conf.errors import OptionError
from ..conf.locations import absolute_location, path_on_server
from ..conf.options import parse_options, path_argument, python_options, text_argument, whole_argument
from ..conf.session import register_data_source
from ..core.rows.key import Key
from .commit.batch_name import WRITE_OPTION, BatchName, BatchOptions, name_in, named_write
from .foreign.delta_merge import check_merge
from .frames import to_buckets
from .spark_writer import LatestStreamWriter, check_sink, writer_for
from .spec.history import keeps_all
from .spec.key_names import with_deletions
from .spec.layout import buckets_for
from .spec.options import LATE, SPARKS_OWN, STORAGE_PREFIX, SinkOptions, SinkTarget, parse_sink_options
from .table.table import recorded_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> LatestBatchWriter:
    """Return the writer for ``df.write``; the mode overwrite is an OptionError."""
    if overwrite:
        raise OptionError(
            "the mode is overwrite",
            expected="append: rows are added to the table, and replace the older rows of their keys",
            hint='write with .mode("append"); to start over, delete the table\'s folder before',
        )
    target, number = _parse(options)
    return LatestBatchWriter(writer_for(target, schema), number)


def write_batch(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    key: str | Sequence[str] | None = None,
    event_time: str | None = None,
    sequence_by: str | Sequence[str] | None = None,
    buckets: int | None = None,
    expected_keys: int | None = None,
    partitions: int | None = None,
    delete_when: str | Column | None = None,
    **options: Any,
) -> None:
    """Write a batch DataFrame into a Delta table that holds the newest row of each key.

    Use it for an initial load, a backfill, or inside a ``foreachBatch``.

    Like ``df.write.format("upstream")``, after a shuffle, so that each bucket is merged once. A task's memory is
    bounded.

    Parameters
    ----------
    df
        A batch DataFrame, with or without the system column ``_upstream``.
    path
        The table's folder or address. It is made on first use.
    key, event_time, sequence_by, buckets
        As for :func:`~upstream.sink.write_latest.write_latest`. Where the table exists, its own unless given.
    expected_keys, partitions, delete_when
        As for `write_latest`.
    **options
        More options of the sink. `txn_app_id` and `txn_version` name the write, so that a repetition of
        it changes nothing. Inside ``foreachBatch`` it has a name; `query_id` and `batch_id` give it another one.

    Raises
    ------
    OptionError
        `df` streams, no key is known, or an option is unknown or mistyped.
    SchemaError
        A column cannot be held by the table, or does not fit the one there is.
    TableError
        The path holds a table of another layout, another writer has changed the same buckets meanwhile, or the query's
        checkpoint is an older copy.

    Notes
    -----
    Guarantee: all or nothing; exactly once if the write has a name. A batch that is repeated has to make its writes to
    one table in the same order.

    Examples
    --------
    >>> rows = spark.createDataFrame([(1, 10, 0.5)], "vehicle_id BIGINT, second BIGINT, speed DOUBLE")
    >>> us.write_batch(rows, "archive", key="vehicle_id", event_time="second")
    >>> us.LatestTable("archive").scan().collect().rows()
    [(1, 10, 0.5)]
    """
    path = path_argument("path", path)
    key, time = Key.optional(key), text_argument("event_time", event_time)
    buckets, partitions = whole_argument("buckets", buckets), whole_argument("partitions", partitions)
    expected_keys = whole_argument("expected_keys", expected_keys)
    if df.isStreaming:
        raise OptionError(
            "the DataFrame is a stream", expected="a batch DataFrame", hint="write a stream with upstream.write_latest"
        )
    path = path_on_server(df.sparkSession, path)
    said = {name: str(value) for name, value in python_options(options).items()}
    chosen: dict[str, Any] = {"key": key, "eventTime": time, "buckets": buckets}
    chosen["sequenceBy"] = Key.optional(sequence_by, "sequence_by")
    with named_write(df.sparkSession, said, absolute_location(path)) as (name, given):
        _write(df, path, name, given, chosen, expected_keys, partitions, delete_when)


def _write(
    df: DataFrame,
    path: str,
    name: BatchName | None,
    given: dict[str, str],
    chosen: dict[str, Any],
    expected_keys: int | None,
    partitions: int | None,
    delete_when: str | Column | None,
) -> None:
    key = chosen["key"]
    if given.get("engine", "").lower() == "merge":
        others = given | _those({**chosen, "key": None, "eventTime": None, "partitions": partitions})
        df, merge = check_merge(df, path, key, chosen["eventTime"], others, delete_when)
        merge.merge(df, name)
        return
    if name is None:
        _check_unnamed(given)
    given["path"] = path
    chosen |= {name: chosen[name].text for name in ("key", "sequenceBy") if chosen[name] is not None}
    first = {} if expected_keys is None else {"buckets": buckets_for(expected_keys), "expectedKeys": expected_keys}
    given |= _texts(_those(chosen))
    given |= _texts(completed(given, first | recorded_options(given)))
    if delete_when is not None:
        df, given["deleteWhen"] = with_deletions(df, delete_when)
    if "key" not in given and not keeps_all(given):
        raise OptionError(
            "the DataFrame has no update key, and no table with one exists yet",
            expected="the name of one of its columns, or several",
            hint='add key="…"',
        )
    register_data_source(df.sparkSession)
    layout = check_sink(given, df.schema)
    rows = to_buckets(df, layout.key, layout.buckets, partitions) if layout.key else df
    given |= {} if name is None else name.options()
    rows.write.format("upstream").mode("append").options(**given).save()


def completed(given: Mapping[str, str], by: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not given: the sink refuses a given one that differs from the table's record."""
    names = {name.lower() for name in given}
    return {name: value for name, value in by.items() if name.lower() not in names}


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}


class LatestBatchWriter(DataSourceArrowWriter):
    """One batch, written as a stream writes its batches: all or nothing, in one commit that records `number`.

    A named write (`txnAppId` and `txnVersion`) is applied exactly once. A write without a name may also be repeated: it
    changes only keys of which it has newer rows.
    """

    def __init__(self, writer: LatestStreamWriter, number: int) -> None:
        self._writer = writer
        self._number = number

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] Spark gives any sequence
        self._writer.commit(messages, self._number)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] Spark gives any sequence
        self._writer.abort(messages, self._number)


def _parse(given: Mapping[str, str]) -> tuple[SinkTarget, int]:
    # All of them at once, so that a misspelt name is told from which it is.
    groups: list[type[Any]] = [BatchOptions, SinkOptions]
    parse_options(given, groups, ignored=(*SPARKS_OWN, WRITE_OPTION), ignored_prefixes=(STORAGE_PREFIX,))
    name, others = name_in(given)
    target = parse_sink_options(others, started=False)
    if target.checkpoint:
        raise OptionError(
            "checkpointLocation is set on a batch",
            expected="txnAppId and txnVersion, by which UpStream recognizes a repeated write",
            hint="leave checkpointLocation out: it belongs to a stream",
        )
    if target.dead_letter_rows and not target.dead_letters:
        raise OptionError("deadLetterRows without deadLetters", expected="the location of the table for these rows")
    if name is None:
        _check_unnamed(others)
        return dataclasses.replace(target, application=f"batch-{uuid.uuid4()}", repeatable=False), 0
    target = dataclasses.replace(target, application=name.writer, of_query=name.of_query, offsets=name.offsets)
    target = dataclasses.replace(target, numbered_by=name.numbered_by)
    return target, name.number


def _check_unnamed(given: Mapping[str, str]) -> None:
    """Refuse options that need earlier batches: a write without a name has no low-watermark for late rows."""
    if any(name.lower() == "deadletterrows" and LATE in value.lower() for name, value in given.items()):
        raise OptionError(
            "deadLetterRows=late is set on a write without a name",
            expected="a write whose earlier batches have committed low-watermarks: of a query, or named by txnAppId "
            "and txnVersion",
            hint="give txnAppId and txnVersion, the same txnAppId in each write of a job; or leave late out",
        )


def _those(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
