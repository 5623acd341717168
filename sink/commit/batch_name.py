"""The name of a write, by which a repeat is recognised: the writer and the number of the write."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import threading
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...conf.errors import OptionError
from ...conf.options import documented, internal_option, option, parse_options, text, whole
from .batch_identity import call_application, offsets_digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WRITE_OPTION = "upstreamWrite"
"""What else there is to a name; not for users."""


class BatchName(NamedTuple):
    """A write's name."""

    application: str  # the writer
    number: int  # grows from write to write
    of_query: bool = False  # True if Spark numbers the writes: then only the last one is ever repeated
    call: int = 0  # index, from 0, among the query's writes of this batch to this table
    offsets: str | None = None  # a digest of the batch's offsets
    numbered_by: str | None = None  # the query whose input numbers the rows, if it is not the writer

    @property
    def writer(self) -> str:
        return call_application(self.application, self.call)

    def options(self) -> dict[str, str]:
        """Return the name as Delta's two options, txnAppId and txnVersion: a session with Delta refuses one alone."""
        named = {"txnAppId": self.writer, "txnVersion": str(self.number)}
        return named | (
            {WRITE_OPTION: json.dumps({"offsets": self.offsets, "query": self.numbered_by or self.application})}
            if self.of_query
            else {}
        )


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """The options that name a write, in Delta's words or in those of ``foreachBatch``."""

    txn_app_id: str | None = option(
        "txnAppId",
        text(),
        None,
        "Name the writer, for example the name of a job. Together with `txnVersion`, it names a write. The "
        "table records the last number of each writer.",
    )
    txn_version: int | None = option(
        "txnVersion",
        whole(),
        None,
        "Set the number of the write. A number that is not above the last one of this `txnAppId` counts as a "
        "repeat, and changes nothing.",
    )
    query_id: str | None = option(
        "queryId",
        text(),
        None,
        "Name the writer as `txnAppId` does, in the terms of a `foreachBatch`. Give it together with `batchId`.",
    )
    batch_id: int | None = option(
        "batchId",
        whole(),
        None,
        "Set Spark's number of a query's batch. Give it together with `queryId`. The last number again is a "
        "repeat. An earlier number is an error: Spark never repeats one, so the checkpoint is an older "
        "copy.",
    )


def name_in(given: Mapping[str, str], running: BatchName | None = None) -> tuple[BatchName | None, dict[str, str]]:
    """Return the name of a write by its options and the `running` batch, and the other options; refuse half a name."""
    write, given = internal_option(given, WRITE_OPTION, json.loads, "the writer is told which write of a batch it is")
    names = {doc.name.lower() for doc in documented(BatchOptions)}
    own = {name: value for name, value in given.items() if name.lower() in names}
    others = {name: value for name, value in given.items() if name not in own}
    (said,) = parse_options(own, [BatchOptions])
    twice = [
        f"{one} is {first}, {other} is {second}"
        for one, first, other, second in (
            ("txnAppId", said.txn_app_id, "queryId", said.query_id),
            ("txnVersion", said.txn_version, "batchId", said.batch_id),
        )
        if None not in (first, second) and first != second
    ]
    if twice:
        raise OptionError(
            "; ".join(twice), expected="one of them: they are two names of one thing", hint="leave one out"
        )
    application = said.query_id if said.txn_app_id is None else said.txn_app_id
    number = said.batch_id if said.txn_version is None else said.txn_version
    of_query = write is not None or said.batch_id is not None
    if running is not None and application in (None, running.application):
        of_query = of_query or number in (None, running.number)
        application, number = running.application, running.number if number is None else number
    if application is None and number is None:
        return None, others
    if application is None or number is None:
        raise OptionError(
            f"the write is given {'a number' if application is None else 'an application id'} alone",
            expected="both txnAppId and txnVersion (or queryId and batchId), which together name a write; or neither",
            hint='give .option("txnAppId", …), such as the name of the job; a stream has query.id'
            if application is None
            else 'give .option("txnVersion", …), a number that grows from write to write',
        )
    offsets, query = (None, None) if write is None else (write["offsets"], write.get("query"))
    if running is not None and of_query and number == running.number:
        # Also where each write of the batch has a name of its own.
        offsets, query = running.offsets, running.application
    return BatchName(
        application, number, of_query, offsets=offsets, numbered_by=None if query == application else query
    ), others


# What Spark tells the thread that runs a foreachBatch.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
# The program that calls the function of a client of Spark Connect, in a process beside the server.
_CLIENT_BATCHES = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"


@dataclasses.dataclass(frozen=True)
class RunningBatch:
    """A batch whose ``foreachBatch`` is running."""

    name: BatchName  # the name of its first write
    run: str  # the query's run id, another one after each start


class Calls:
    """A count of the writes of each batch to each table, in this process.

    A repeat of the batch makes the same writes in the same order. So a write's number, from 0, names it, and each is
    applied once wherever a process dies between two of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # One entry for each query and table that this process has met.
        self._made: dict[tuple[str, str], tuple[tuple[str, int], int]] = {}
        self._busy: set[tuple[str, str]] = set()

    @contextlib.contextmanager
    def call(self, batch: RunningBatch, location: str) -> Generator[int]:
        """Yield the number of the block's write, which counts if it succeeds; refuse two writes of a batch at once."""
        place, now = (batch.name.application, location), (batch.run, batch.name.number)
        with self._lock:
            if place in self._busy:
                raise OptionError(
                    f"two writes of batch {batch.name.number} to the table at {location} at once",
                    expected="one after the other, in the same order whenever foreachBatch is called for a batch: the "
                    "order names them",
                    hint="write one after the other; or give each write a queryId of its own, with the batch's number "
                    "as batchId",
                )
            self._busy.add(place)
            seen, made = self._made.get(place, (now, 0))
        made = made if seen == now else 0
        try:
            yield made
            self._made[place] = now, made + 1
        finally:
            with self._lock:
                self._busy.discard(place)


_CALLS = Calls()


@contextlib.contextmanager
def named_write(
    session: SparkSession, given: Mapping[str, str], location: str
) -> Generator[tuple[BatchName | None, dict[str, str]]]:
    """Yield the name of the write that the block makes, and other options. On Spark Connect, options must name it."""
    running = running_batch(session)
    name, others = name_in(given, None if running is None else running.name)
    if name is None and _in_client_batch():
        raise OptionError(
            "a write without a name inside a foreachBatch of Spark Connect, which has no name for the batch",
            expected="a name, by which a repeat of the batch is recognised",
            hint='add queryId="…", another one for each write of a batch to one table, and batchId=batch_id',
        )
    if running is None or name is None or name != running.name:
        yield name, others
        return
    with _CALLS.call(running, location) as call:
        yield name._replace(call=call), others


def _in_client_batch() -> bool:
    """Return True if this process runs a ``foreachBatch`` for a client of Spark Connect."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _CLIENT_BATCHES


def running_batch(session: SparkSession) -> RunningBatch | None:
    """Return the batch whose ``foreachBatch`` this thread runs; None outside of one."""
    context = getattr(session, "_sc", None)
    if context is None:
        return None
    query_id, number = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if query_id is None or number is None:
        return None
    query = _active_query(session, query_id)
    offsets = _offsets_digest(session, query, int(number))
    return RunningBatch(BatchName(query_id, int(number), of_query=True, offsets=offsets), str(query.runId()))


def _active_query(session: SparkSession, query_id: str) -> Any:
    """Return Spark's own object of a query. The copied session of a foreachBatch does not list its queries."""
    jvm: Any = session._jvm  # pyright: ignore[reportPrivateUsage] the only way there
    java_session: Any = session._jsparkSession  # pyright: ignore[reportPrivateUsage]
    queries = java_session.sharedState().activeStreamingQueries()
    return queries.get(jvm.java.util.UUID.fromString(query_id))


def _offsets_digest(session: SparkSession, query: Any, batch_id: int) -> str | None:
    """Return a digest of the batch's file of offsets; Spark reads it, wherever the checkpoint is."""
    jvm: Any = session._jvm  # pyright: ignore[reportPrivateUsage]
    java_context: Any = session.sparkContext._jsc  # pyright: ignore[reportPrivateUsage]
    path = jvm.org.apache.hadoop.fs.Path(f"{query.resolvedCheckpointRoot()}/offsets/{batch_id}")
    files = path.getFileSystem(java_context.hadoopConfiguration())
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return offsets_digest(bytes(stream.readAllBytes()))
    finally:
        stream.close()
