"""``df.write.format("upstream")``: a batch DataFrame into a table of the newest row per key, by the code of the stream.

Guarantee: all of it or nothing, in one commit. A write that names itself (`txnAppId` and `txnVersion`) is applied exactly once, however often
it is repeated. One without a name may be repeated too: it changes nothing but what is newer, and rows of one key and time replace each other.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..conf.errors import OptionError
from ..conf.options import parse_options
from ..conf.session import make_known
from .batch_name import BatchOptions, name_in, running_batch
from .deleting import with_deletions
from .delta_merge import check_merge
from .keeping import keeps_all
from .options import SPARKS_OWN, STORAGE_PREFIX, SinkOptions, SinkTarget, parse_sink_options
from .placing import buckets_for, key_option, to_buckets
from .recorded import recorded_options
from .writer import LatestStreamWriter, check_sink, writer_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["LatestBatchWriter", "batch_writer", "write_batch"]


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> LatestBatchWriter:
    """The writer for ``df.write``.

    Parameters
    ----------
    options
        Those of :class:`~upstream.sink.options.SinkOptions` and of :class:`~upstream.sink.batch_name.BatchOptions`.
    schema
        Of the DataFrame, with or without the system column.
    overwrite
        True in the mode of that name, which is refused.

    Raises
    ------
    OptionError
        Something is missing, unknown or mistyped.
    SchemaError
        A column cannot be held by the table, or does not fit the one there is.
    TableError
        The path holds a table of another layout.
    """
    if overwrite:
        raise OptionError(
            "the mode is overwrite",
            expected="append: rows are added to the table, and replace the older rows of their keys",
            hint='write with .mode("append"); to begin anew, delete the table\'s folder before',
        )
    target, number = _parse(options)
    return LatestBatchWriter(writer_for(target, schema), number)


def write_batch(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    key: str | Sequence[str] | None = None,
    time: str | None = None,
    buckets: int | None = None,
    expectedKeys: int | None = None,  # noqa: N803 as Spark spells names
    partitions: int | None = None,
    deleteWhen: str | Column | None = None,  # noqa: N803 as the option
    **options: Any,
) -> None:
    """Write a batch DataFrame into a Delta table that holds the newest row of each key: an initial load, a backfill, or a ``foreachBatch``.

    As ``df.write.format("upstream")``, after each row has been brought to the task of its bucket, so that each bucket is merged once. A task holds a bounded
    number of rows, and puts others aside on its local disk; of the table it reads the buckets that get rows.

    Parameters
    ----------
    df
        A batch DataFrame, with or without the system column ``_upstream``.
    path
        The table's folder or address. It is made on first use.
    key, time, buckets
        As for :func:`~upstream.sink.latest.write_latest`. Where the table exists, its own unless given.
    expectedKeys
        How many keys a new table is to hold: it gets a bucket for each 500,000, and 16 at least.
    partitions
        How many tasks write; unless given as many as there are cores, at most ``spark.sql.shuffle.partitions``.
    deleteWhen
        As for :func:`~upstream.sink.latest.write_latest`.
    **options
        More options of the sink. `txnAppId` and `txnVersion` name the write, so that it is done once however often it is repeated; inside
        ``foreachBatch`` they are the query's id and the batch's number unless given. ``queryId`` and ``batchId`` are other names for them.

    Raises
    ------
    OptionError
        `df` streams, no key is known, or an option is unknown or mistyped.
    SchemaError
        A column cannot be held by the table, or does not fit the one there is.
    TableError
        The path holds a table of another layout, or somebody else has changed the same buckets meanwhile.

    Notes
    -----
    Guarantee: all or nothing; exactly once if the write is named, which it is inside ``foreachBatch``.
    """
    if df.isStreaming:
        raise OptionError(
            "the DataFrame streams", expected="a batch DataFrame", hint="write a stream with upstream.write_latest"
        )
    name, given = name_in({name: str(value) for name, value in options.items()}, running_batch(df.sparkSession))
    if given.get("engine", "").lower() == "merge":
        others = given | _those({"buckets": buckets, "partitions": partitions})
        df, merge = check_merge(df, os.fspath(path), key, time, others, deleteWhen)
        merge.merge(df, name)
        return
    given["path"] = os.fspath(path)
    chosen = {"key": None if key is None else key_option(key), "time": time, "buckets": buckets}
    first = {} if expectedKeys is None else {"buckets": buckets_for(expectedKeys)}
    given |= {name: str(value) for name, value in (first | recorded_options(given) | _those(chosen)).items()}
    if deleteWhen is not None:
        df, given["deleteWhen"] = with_deletions(df, deleteWhen)
    if "key" not in given and not keeps_all(given):
        raise OptionError(
            "the DataFrame comes without an update key, and there is no table yet that has one",
            expected="the name of one of its columns, or several",
            hint='add key="…"',
        )
    make_known(df.sparkSession)
    layout = check_sink(given, df.schema)
    rows = to_buckets(df, layout.key, layout.buckets, partitions) if layout.key else df
    given |= {} if name is None else name.options()
    rows.write.format("upstream").mode("append").options(**given).save()


class LatestBatchWriter(DataSourceArrowWriter):
    """One batch, written as a stream writes its batches.

    Parameters
    ----------
    writer
        Writes it.
    number
        What the commit records as the batch's number.
    """

    def __init__(self, writer: LatestStreamWriter, number: int) -> None:
        self._writer = writer
        self._number = number

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Merge a task's rows and stage the files (in a task)."""
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] Spark gives any sequence
        """Commit the batch (beside the driver)."""
        self._writer.commit(messages, self._number)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] Spark gives any sequence
        """Remove what was staged (beside the driver)."""
        self._writer.abort(messages, self._number)


def _parse(given: Mapping[str, str]) -> tuple[SinkTarget, int]:
    # All of them at once, so that a misspelt name is told from which it is.
    groups: list[type[Any]] = [BatchOptions, SinkOptions]
    parse_options(given, groups, ignored=SPARKS_OWN, ignored_prefixes=(STORAGE_PREFIX,))
    name, others = name_in(given)
    target = parse_sink_options(others, started=False)
    if target.checkpoint:
        raise OptionError(
            "checkpointLocation is set on a batch",
            expected="txnAppId and txnVersion, if the write is to be recognised when it is repeated",
            hint="leave checkpointLocation out: it belongs to a stream",
        )
    if name is None:
        return dataclasses.replace(target, application=f"batch-{uuid.uuid4()}", repeatable=False), 0
    return dataclasses.replace(target, application=name.application), name.number


def _those(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
