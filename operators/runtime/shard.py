"""The base of all shards: one batch over a store, with its head, clock, counts and report."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from ...core.feedback.reports import QUERY_PROPERTY, OperatorReport, RowSample, task_property, write_report
from ...core.rows.system_column import DELETED, SYSTEM, system_field
from ...core.rows.text import readable
from ...delta_format.append_table import DeadLetterWriter, letters_of
from ...storage.folder import folder_at
from ..state.runs import of_worker
from ..state.store import CountingStore, check_head, read_head, write_head
from .pack import micros
from .shard_processor import ShardProcessor, batch_id

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

    from ...core.rows.exact_integers import Int64s
    from ...plan.nodes import Specification
    from ..state.runs import RunFiles
    from ..state.store import Store


PlanT = TypeVar("PlanT", bound="Specification")
ReportT = TypeVar("ReportT", bound=OperatorReport)


REASON = "__upstream_reason"
"""The column with the reason for which a row is malformed."""


class DeadLetters(NamedTuple):
    """The table of dead letters, for the malformed or the late rows of an operator."""

    location: str
    origin: str  # the input's name, or the folder of the operator's reports
    kind: str  # "malformed" or "late"

    def write(self, batch_id: int, shard: int, rows: pa.Table) -> None:
        """Append one shard's rows of one batch, with their reasons, unless an earlier attempt has."""
        reason: Any = self.kind
        if REASON in rows.column_names:
            reason, rows = rows.column(REASON), rows.drop_columns(REASON)
        if SYSTEM in rows.column_names:
            marks = {f"{SYSTEM}_source": system_field(rows, "source"), DELETED: system_field(rows, "deleted")}
            rows = rows.drop_columns(SYSTEM)
            for name, column in marks.items():
                rows = rows.append_column(name, column)
        writer = f"{task_property(QUERY_PROPERTY)}-{self.origin}-{self.kind}-{shard}"
        table = DeadLetterWriter(folder_at(self.location), writer, batch_id)
        table.write(letters_of(readable(rows), batch=batch_id, origin=self.origin, reason=reason))
        table.commit()


class ShardInput(NamedTuple):
    """A batch of one shard."""

    left: Sequence[bytes]  # the frames of the only input, or of the first
    right: Sequence[bytes] = ()
    control: str | None = None  # the tick planner's message
    batch_id: int = -1


class Shard(abc.ABC, Generic[PlanT, ReportT]):
    """One batch of one shard of an operator, as pure logic over the store.

    The constructor raises CheckpointError for state of another plan or version. Run files only save time.
    """

    began: str
    """The beginning of that error, such as ``the windows of this checkpoint were begun``."""
    same: str
    """The settings that must stay, in words."""
    report: type[ReportT]
    counted: ClassVar[tuple[str, ...]] = ()
    """The fields of the report that count since the checkpoint began."""

    late: pa.Table | None = None
    """After :meth:`run`: the batch's late rows, as the operator defines them."""
    malformed: pa.Table | None = None
    """After :meth:`run`: the batch's unusable rows."""
    sample: RowSample | None = None
    """After :meth:`run`: the sample that a control asked for."""

    def __init__(self, number: int, plan: PlanT, store: Store, files: RunFiles | None = None) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        self._files = files
        self._head = self._read_head()
        self._check(self._head)
        self._now_us = int(self._head.get("now_us", 0))
        self._seq = int(self._head.get("seq", 0))
        self._counts: dict[str, int] = {name: int(self._head.get(name, 0)) for name in self.counted}

    def run(
        self,
        left: Sequence[bytes] = (),
        right: Sequence[bytes] = (),
        batch_id: int = -1,
        control: str | None = None,
    ) -> tuple[pa.Table | None, ReportT]:
        """Process the batch, save the state, and return the rows to send on (None for none) and the report."""
        result, figures = self.step(ShardInput(left, right, control, batch_id))
        figures |= self._counts
        self._save()
        report = self.report(
            shard=self._number,
            batch_id=batch_id,
            now_us=self._now_us,
            state_bytes=self._store.written,
            **figures,
        )
        return (result if result is not None and result.num_rows else None), report

    @abc.abstractmethod
    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Process the batch, and return the rows to send on and the report's own fields."""

    def saved(self) -> dict[str, Any]:
        """Write the state, and return the operator's members of the head."""
        return {}

    def _read_head(self) -> dict[str, Any]:
        return read_head(self._store)

    def _check(self, head: Mapping[str, Any]) -> None:
        check_head(head, self._plan.identity(), self.began, self.same)

    def _save(self) -> None:
        own = {"now_us": self._now_us, "seq": self._seq}
        write_head(self._store, self._plan.identity(), {**self.saved(), **self._counts, **own})

    def _advance_clock(self, tables: Iterable[pa.Table]) -> None:
        """Raise the clock to the arrival of the last of some rows."""
        for table in tables:
            self._now_us = max(self._now_us, int(micros(table, "arrival").max(initial=0)))

    def _sequence(self, n: int) -> Int64s:
        """Return the next `n` sequence numbers of the shard's output."""
        self._seq += n
        return np.arange(self._seq - n, self._seq, dtype=np.int64)


class OperatorProcessor(ShardProcessor):
    """The Spark adapter of all shards, which report to `folder`; late and malformed rows are counted or also written.

    Spark keeps the state of a batch with the batch. So a rerun starts from the same state, gives the same rows, and
    appends no row twice.
    """

    state = "upstream_state"

    def __init__(
        self,
        shard: type[Shard[Any, Any]],
        plan: Specification,
        folder: str,
        late: DeadLetters | None = None,
        malformed: DeadLetters | None = None,
    ) -> None:
        self._shard = shard
        self._plan = plan
        self._folder = folder
        self._late = late
        self._malformed = malformed

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        left: list[bytes] = []
        right: list[bytes] = []
        control: str | None = None
        for row in rows:
            if row.frame is None:
                control = row.control
            else:
                (right if row.control == "right" else left).append(bytes(row.frame))
        operator, batch = self._shard(shard, self._plan, store, of_worker()), batch_id()
        result, report = operator.run(left, right, batch, control)
        for place, found in ((self._late, operator.late), (self._malformed, operator.malformed)):
            if place is not None and found is not None:
                place.write(batch, shard, found)
        if operator.sample is not None:
            write_report(self._folder, operator.sample)
        write_report(self._folder, report)
        return result
