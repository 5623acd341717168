"""The name of a write, by which a repeat is recognised: the writer and the number of the write."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import NamedTuple

from ...conf.errors import OptionError
from ...conf.options import documented, internal_option, option, parse_options, text, whole
from .batch_identity import call_application

__all__ = ["WRITE_OPTION", "BatchName", "BatchOptions", "name_in"]

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
        """Return the name as options of a writer.

        They are Delta's txnAppId and txnVersion: a session with Delta refuses either without the other.
        """
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
        "repeat. An earlier number is an error: Spark never repeats one, so the query's checkpoint was put "
        "back.",
    )


def name_in(given: Mapping[str, str], running: BatchName | None = None) -> tuple[BatchName | None, dict[str, str]]:
    """Return the name that options give a write, and the other options; half a name is an OptionError.

    `running` is the batch whose ``foreachBatch`` runs; it supplies the halves that the options leave out.
    """
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
