"""What names a batch that is written, so that it is recognised when it is repeated: who writes, and the number of the write."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..conf.errors import OptionError
from ..conf.options import documented, option, parse_options, text, whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BatchName", "BatchOptions", "name_in", "running_batch"]

# What Spark tells the thread that runs a foreachBatch.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class BatchName(NamedTuple):
    """A write's name.

    Attributes
    ----------
    application : str
        Who writes.
    number : int
        Grows from write to write.
    """

    application: str
    number: int

    def options(self) -> dict[str, str]:
        """As a writer is given it. By Delta's names: a session with Delta refuses one of them without the other on any write."""
        return {"txnAppId": self.application, "txnVersion": str(self.number)}


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """The name by options: by Delta's words, or by those of ``foreachBatch``."""

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
    query_id: str | None = option(
        "queryId",
        text(),
        None,
        "The same as `txnAppId`, by the name that suits a `foreachBatch`; it goes with `batchId`.",
    )
    batch_id: int | None = option("batchId", whole(), None, "The same as `txnVersion`; it goes with `queryId`.")


def name_in(given: Mapping[str, str], running: BatchName | None = None) -> tuple[BatchName | None, dict[str, str]]:
    """The name that options give a write, and the other options.

    Parameters
    ----------
    given
        All options, with names in any case.
    running
        Of the batch inside of whose ``foreachBatch`` this is: stands for what the options do not say.

    Raises
    ------
    OptionError
        A value is mistyped, one half of the name is missing, or a half is given twice.
    """
    names = {doc.name.lower() for doc in documented(BatchOptions)}
    own = {name: value for name, value in given.items() if name.lower() in names}
    others = {name: value for name, value in given.items() if name not in own}
    (told,) = parse_options(own, [BatchOptions])
    twice = [
        f"{one} is {first}, {other} is {second}"
        for one, first, other, second in (
            ("txnAppId", told.txn_app_id, "queryId", told.query_id),
            ("txnVersion", told.txn_version, "batchId", told.batch_id),
        )
        if None not in (first, second) and first != second
    ]
    if twice:
        raise OptionError(
            "; ".join(twice), expected="one of them: they are two names of one thing", hint="leave one out"
        )
    application = told.query_id if told.txn_app_id is None else told.txn_app_id
    number = told.batch_id if told.txn_version is None else told.txn_version
    if running is not None and application in (None, running.application):
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
    return BatchName(application, number), others


def running_batch(session: SparkSession) -> BatchName | None:
    """The query's id, which its checkpoint has, and the batch's number; None outside of a ``foreachBatch``."""
    context = getattr(session, "_sc", None)
    if context is None:
        return None
    query, number = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    return None if query is None or number is None else BatchName(query, int(number))
