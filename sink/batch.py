"""``df.write.format("upstream")``: a batch DataFrame into a table of the newest row per key, by the code of the stream.

Guarantee: all of it or nothing, in one commit. A write that names itself (`txnAppId` and `txnVersion`) is applied exactly once, however often
it is repeated. One without a name may be repeated too: it changes nothing but what is newer, and rows of one key and time replace each other.
"""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..conf.errors import OptionError
from ..conf.options import documented, option, parse_options, text, whole
from ..conf.session import make_known
from ..frames.latest_table import BUCKETS_PROPERTY, KEEP_PROPERTY, KEY_PROPERTY, TIME_PROPERTY
from .deleting import with_deletions
from .keeping import keeps_all
from .options import SPARKS_OWN, STORAGE_PREFIX, SinkOptions, SinkTarget, parse_sink_options
from .placing import key_option, to_buckets
from .spark_batch import batch_of
from .table import load_table
from .writer import LatestStreamWriter, check_sink, writer_for

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["BatchOptions", "LatestBatchWriter", "batch_writer", "write_batch"]


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """What names a write, so that it is recognised when it is repeated. By the names that Delta has for them."""

    txn_app_id: str | None = option(
        "txnAppId",
        text(),
        None,
        "Who writes, such as the name of a job: with `txnVersion` it names a write. Of each writer the table remembers the last number.",
    )
    txn_version: int | None = option(
        "txnVersion",
        whole(),
        None,
        "The number of the write: one that is not above the last of this `txnAppId` is taken for a repeat, and changes nothing.",
    )
    batch_id: int | None = option(
        "batchId", whole(), None, "The same as `txnVersion`, by the name that `foreachBatch` has for it."
    )

    @property
    def number(self) -> int | None:
        """By either name."""
        return self.txn_version if self.batch_id is None else self.batch_id


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> LatestBatchWriter:
    """The writer for ``df.write``.

    Parameters
    ----------
    options
        Those of :class:`~upstream.sink.options.SinkOptions` and of :class:`BatchOptions`.
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
    partitions
        How many tasks write; unless given as many as there are cores, at most ``spark.sql.shuffle.partitions``.
    deleteWhen
        As for :func:`~upstream.sink.latest.write_latest`.
    **options
        More options of the sink. `txnAppId` and `txnVersion` name the write, so that it is done once however often it is repeated; inside
        ``foreachBatch`` they are the query's id and the batch's number unless given. ``batchId`` is another name for `txnVersion`.

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
    given = {"path": os.fspath(path)} | {name: str(value) for name, value in options.items()}
    given |= _name_of_batch(df.sparkSession, given)
    if str(options.get("engine", "")).lower() == "merge":
        _merge(df, given, key, time, {"buckets": buckets, "partitions": partitions})
        return
    chosen = {"key": None if key is None else key_option(key), "time": time, "buckets": buckets}
    given |= {name: str(value) for name, value in (_of_table(given) | _those(chosen)).items()}
    if deleteWhen is not None:
        df, given["deleteWhen"] = with_deletions(df, deleteWhen)
    if "key" not in given and not keeps_all(given):
        raise OptionError(
            "the DataFrame comes without an update key, and there is no table yet that has one",
            expected="the name of one of its columns, or several",
            hint='add key="…"',
        )
    make_known(df.sparkSession)
    layout = check_sink(_others(given), df.schema)
    rows = to_buckets(df, layout.key, layout.buckets, partitions) if layout.key else df
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


def _merge(
    df: DataFrame, given: Mapping[str, str], key: str | Sequence[str] | None, time: str | None, parts: Mapping[str, Any]
) -> None:
    from .delta_merge import check_merge

    if key is None:
        raise OptionError("the DataFrame comes without an update key", hint='add key="…"')
    names = {doc.name.lower() for doc in documented(BatchOptions)}
    own = {name: value for name, value in given.items() if name.lower() in names}
    app_id, number = _name(parse_options(own, [BatchOptions])[0])
    others = {name: value for name, value in _others(given).items() if name not in ("path", "engine")}
    merge = check_merge(df, given["path"], [key] if isinstance(key, str) else key, time, others | _those(parts))
    merge.merge(df, app_id, number)


def _parse(given: Mapping[str, str]) -> tuple[SinkTarget, int]:
    groups: list[type[Any]] = [BatchOptions, SinkOptions]
    named: BatchOptions = parse_options(given, groups, ignored=SPARKS_OWN, ignored_prefixes=(STORAGE_PREFIX,))[0]
    app_id, number = _name(named)
    target = parse_sink_options(_others(given), started=False)
    if target.checkpoint:
        raise OptionError(
            "checkpointLocation is set on a batch",
            expected="txnAppId and txnVersion, if the write is to be recognised when it is repeated",
            hint="leave checkpointLocation out: it belongs to a stream",
        )
    if app_id is None or number is None:
        return dataclasses.replace(target, application=f"batch-{uuid.uuid4()}", repeatable=False), 0
    return dataclasses.replace(target, application=app_id), number


def _name(named: BatchOptions) -> tuple[str | None, int | None]:
    """The name of the write, if it is given one."""
    if named.txn_version is not None and named.batch_id is not None and named.txn_version != named.batch_id:
        raise OptionError(
            f"txnVersion is {named.txn_version}, batchId is {named.batch_id}",
            expected="one of them: they are two names of one thing",
            hint="leave one out",
        )
    if (named.txn_app_id is None) != (named.number is None):
        raise OptionError(
            f"the write is given {'a number' if named.txn_app_id is None else 'an application id'} alone",
            expected="both txnAppId and txnVersion (or batchId), which together name a write; or neither",
            hint="give .option(\"txnAppId\", …), such as the job's name; a stream's own id is query.id"
            if named.txn_app_id is None
            else 'give .option("txnVersion", …), a number that grows from write to write',
        )
    return named.txn_app_id, named.number


def _others(given: Mapping[str, str]) -> dict[str, str]:
    """The options that do not name the write."""
    names = {doc.name.lower() for doc in documented(BatchOptions)}
    return {name: value for name, value in given.items() if name.lower() not in names}


def _name_of_batch(session: SparkSession, given: Mapping[str, str]) -> dict[str, str]:
    """Inside a ``foreachBatch`` its query and its number; elsewhere, or where the write has a name, nothing."""
    lowered = {name.lower() for name in given}
    batch = None if "txnappid" in lowered else batch_of(session)
    if batch is None:
        return {}
    named = {"txnAppId": batch[0], "txnVersion": str(batch[1])}
    return {"txnAppId": batch[0]} if lowered & {"txnversion", "batchid"} else named


def _of_table(given: Mapping[str, str]) -> dict[str, Any]:
    """The key, the time and the buckets of the table, if it is there and one of ours."""
    # Any key will do to parse the place and the storage options.
    table = load_table(parse_sink_options({**_others(given), "key": "k"}, started=False))
    found = {} if table is None else table.metadata().configuration
    if KEY_PROPERTY not in found:
        return {}
    known = {
        "key": key_option(json.loads(found[KEY_PROPERTY])) or None,
        "keep": found.get(KEEP_PROPERTY),
        "time": found.get(TIME_PROPERTY),
        "buckets": found.get(BUCKETS_PROPERTY),
    }
    return _those(known)


def _those(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
