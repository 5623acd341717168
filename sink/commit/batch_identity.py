"""The identity of a batch: the writer, the number, and a fingerprint that distinguishes batches of one number."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ...conf.errors import CheckpointError, TableError
from ..figures.summary import APP_PREFIX

if TYPE_CHECKING:
    from ...storage.folder import TableFolder
    from ..merge.task import TaskResult
    from ..spec.options import SinkTarget


Transaction = Callable[[str], int | None]
"""The last version of an application's transactions in a table."""

FINGERPRINT_PREFIX = "upstream.fingerprint-"
"""Begins the application of a fingerprint's transaction; a writer's own begins with ``upstream-``."""

# Together 63 bits, as many as a transaction's version has.
_BATCH_BITS, _OFFSETS_BITS, _COLUMNS_BITS = 16, 27, 20


class Fingerprint(NamedTuple):
    """A hash that distinguishes a batch from another one of the same number.

    It is recorded as a transaction's version, which stays when entries of the log are removed.
    """

    batch: int  # low bits of the number: a write that records none leaves an earlier one behind
    offsets: int  # hash of the batch's offsets; 0 if they are unknown
    columns: int  # hash of the columns written, and of the one that marks deletions

    @classmethod
    def of(cls, batch_id: int, offsets: str | None, columns: str) -> Fingerprint:
        """Return the fingerprint of a batch, from a digest of its offsets and a description of its columns."""
        read = 0 if offsets is None else 1 + _hashed(offsets) % ((1 << _OFFSETS_BITS) - 1)
        return cls(batch_id % (1 << _BATCH_BITS), read, _hashed(columns) % (1 << _COLUMNS_BITS))

    @classmethod
    def of_number(cls, number: int) -> Fingerprint:
        rest, columns = divmod(number, 1 << _COLUMNS_BITS)
        return cls(*divmod(rest, 1 << _OFFSETS_BITS), columns)

    @property
    def number(self) -> int:
        """Return the fingerprint as a transaction's version; the inverse of :meth:`of_number`."""
        return ((self.batch << _OFFSETS_BITS) + self.offsets << _COLUMNS_BITS) + self.columns

    def of_batch(self, batch_id: int) -> bool:
        """Return True if it can be the fingerprint of a batch."""
        return self.batch == batch_id % (1 << _BATCH_BITS)


@dataclasses.dataclass(frozen=True)
class BatchIdentity:
    """The identity of a writer's batch for a table, wherever the table keeps numbers and fingerprints.

    Spark repeats a query's last batch only, with the offsets in its checkpoint. So an earlier number, or the same
    number with other offsets, is not a repeat. The checkpoint is then an older copy, and to skip the batch would lose
    its rows.
    """

    location: str
    writer: str  # its name in summaries and transactions
    number: int
    fingerprint: Fingerprint
    of_query: bool  # True if Spark numbers the writes: then only the last one is ever repeated
    one_of_several: bool  # True if a batch of the query may write to the table several times
    every_row: bool = False  # True if the table keeps every row, so that a row written twice is there twice
    repeatable: bool = True  # False if the table is not to remember the batch

    @classmethod
    def of(cls, target: SinkTarget, writer: str, number: int, offsets: str | None, columns: str) -> BatchIdentity:
        """Return the identity of a batch, from a digest of its offsets and a description of its columns."""
        return cls(
            target.location,
            writer,
            number,
            Fingerprint.of(number, offsets, columns),
            target.of_query,
            target.application is not None,
            target.options.history.count is None,
            target.repeatable,
        )

    def is_in(self, transaction: Transaction) -> bool:
        """Return True if a table has the batch, by the versions of its transactions; errors as of :meth:`repeats`."""

        def fingerprint_of(writer: str) -> Fingerprint | None:
            number = transaction(FINGERPRINT_PREFIX + writer)
            return None if number is None else Fingerprint.of_number(number)

        return self.repeatable and self.repeats(transaction(self.application), fingerprint_of)

    def transactions(self) -> dict[str, int]:
        """Return the transaction versions that go with the commit, by application."""
        if not self.repeatable:
            return {}
        numbers = {self.application: self.number}
        return numbers | ({FINGERPRINT_PREFIX + self.writer: self.fingerprint.number} if self.of_query else {})

    @property
    def application(self) -> str:
        return APP_PREFIX + self.writer

    def repeats(self, recorded: int | None, fingerprint_of: Callable[[str], Fingerprint | None]) -> bool:
        """Return True if the table has the write; raise a TableError if it has its number or a later one, but not it.

        `recorded` is the writer's last number in the table. `fingerprint_of` returns the fingerprint of a writer's
        last write.
        """
        if recorded is None or recorded < self.number:
            return False
        if not self.of_query:
            return True  # Delta's rule of txnVersion
        if recorded > self.number:
            raise self._overtaken(
                f"batch {self.number} comes after batch {recorded} of the same query, which the table at "
                f"{self.location} has",
                recorded,
            )
        known = fingerprint_of(self.writer)
        if known is None or not known.of_batch(self.number):
            return True
        if 0 not in (known.offsets, self.fingerprint.offsets) and known.offsets != self.fingerprint.offsets:
            raise self._overtaken(
                f"batch {self.number} of this query is in the table at {self.location} with other input than it has "
                "now",
                recorded,
            )
        if known.columns != self.fingerprint.columns and self._is_another_call(fingerprint_of):
            raise TableError(
                f"batch {self.number} is repeated, and writes to the table at {self.location} in another order than "
                "before",
                expected="the same writes in the same order whenever foreachBatch is called for a batch",
                hint="write in a fixed order; or give each write a queryId of its own, with the batch's number as "
                "batchId",
            )
        return True

    def _is_another_call(self, fingerprint_of: Callable[[str], Fingerprint | None]) -> bool:
        """Return True if another write of the query's batches has these columns; else the program was changed."""
        if not self.one_of_several:
            return False
        first = _first_application(self.writer)
        for call in count():
            writer = call_application(first, call)
            found = fingerprint_of(writer)
            if found is None:
                return False
            if writer != self.writer and found.columns == self.fingerprint.columns:
                return True
        raise AssertionError("unreachable: some call has never been made")

    def _overtaken(self, problem: str, recorded: int) -> TableError:
        again = (
            "a new table"
            if self.every_row
            else "a new checkpointLocation, so that it reads its input from the beginning"
        )
        unchanged = "" if self.every_row else ": rows that the table has, or has newer, change nothing"
        return TableError(
            problem,
            expected="the checkpoint as this query left it: Spark repeats only a query's last batch, and to skip this "
            "one would lose its rows",
            hint=f"restore the checkpoint to its state after batch {recorded}; or start the query with "
            f"{again}{unchanged}",
        )


BASE_PREFIX = "upstream.base-"
"""Begins the application of the transaction that holds a query's base."""
HIGHEST = "upstream.highest"
"""The application of the transaction that holds one more than the highest number in the table."""


@dataclasses.dataclass(frozen=True)
class RowNumberOffset:
    """The offset of a writer's row numbers in a table.

    A query's base is one above the highest number that the table had at the query's first commit. So of two
    rows of one key and time, the later query's row is the later one. Base and highest number are transaction
    versions in the table's commits: a repeat and a restart find the same base.
    """

    base: int = 0  # added to the numbers of the writer's rows
    # the query whose base it is; None for a batch of no query, which takes a new base each time
    query: str | None = None

    @classmethod
    def of(cls, target: SinkTarget, writer: str, transaction: Transaction) -> RowNumberOffset:
        query = (target.numbered_by or writer) if target.of_query and target.repeatable else None
        known = None if query is None else transaction(BASE_PREFIX + query)
        return cls((transaction(HIGHEST) or 0) if known is None else known, query)

    def transactions(self) -> dict[str, int]:
        """Return the transaction version that goes with a commit.

        A query whose first batch met that of another one takes the current base. Its rows so far are in buckets that
        the other one has not changed, and its further rows are later.
        """
        return {} if self.query is None else {BASE_PREFIX + self.query: self.base}


def highest_number(transaction: Transaction, results: Sequence[TaskResult]) -> int:
    """Return one more than the highest number in a table after a commit."""
    return max([transaction(HIGHEST) or 0, *(result.highest + 1 for result in results)])


def call_application(query_id: str, call: int) -> str:
    """Return the writer's name of one of several writes of a ``foreachBatch`` to one table; `call` counts from 0."""
    return query_id if call == 0 else f"{query_id}/{call + 1}"


def _first_application(application: str) -> str:
    query_id, _, call = application.rpartition("/")
    return query_id if query_id and call.isdecimal() else application


def offsets_digest(noted: bytes | None) -> str | None:
    """Return a digest of Spark's file of a batch's offsets, byte by byte; None without a file."""
    return None if noted is None else hashlib.sha256(noted).hexdigest()


def read_offsets(checkpoint: TableFolder, batch_id: int) -> bytes | None:
    """Return Spark's file of a batch's offsets; None if there is no file."""
    place = f"offsets/{batch_id}"
    try:
        return checkpoint.read(place)
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        raise CheckpointError(
            f"the plan of batch {batch_id} cannot be read from {checkpoint.location}/{place}: "
            f"{checkpoint.masked(error)}",
            expected="the file that Spark writes before each batch, readable for the driver",
            hint="check its permissions; the restarted query repeats the batch",
        ) from (error if checkpoint.is_local else None)


def _hashed(content: str) -> int:
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:8], "big")
