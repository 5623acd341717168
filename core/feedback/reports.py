"""Small JSON files below a query's checkpoint: operators' reports to the next batch's planner and the sink's commit."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from typing_extensions import Self

from ...conf.errors import UpstreamError
from ...storage.atomic_write import write_whole
from ...storage.folder import TableFolder, folder_at
from .ages import Ages
from .checkpoint_layout import SAMPLES, Kind, queue_folder

if TYPE_CHECKING:
    import pyarrow as pa


@dataclasses.dataclass(frozen=True)
class ShardReport:
    """A shard's or a task's report on its last batch.

    It must be a function of the batch, so that a task that is retried writes the same.
    """

    shard: int

    prefix: ClassVar[str] = "shard-"
    """The prefix of the files' names."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the report that :meth:`to_json` described, or a base class's part of it."""
        return cls(**{field.name: value[field.name] for field in dataclasses.fields(cls) if field.name in value})


_NO_WINDOW = -(1 << 63)

BATCH_PROPERTY, QUERY_PROPERTY = "streaming.sql.batchId", "sql.streaming.queryId"
"""Spark's names of a streaming query's batch and id in its tasks."""


def task_property(name: str) -> str | None:
    """Return a property of this Spark task; None where Spark does not set it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


ReportT = TypeVar("ReportT", bound=ShardReport)


def write_report(folder: str | TableFolder, report: ShardReport) -> None:
    """Replace a shard's last report by this one."""
    write_value(folder, f"{report.prefix}{report.shard}.json", report.to_json())


def read_reports(folder: str | TableFolder, kind: type[ReportT]) -> list[ReportT]:
    """Return the last report of each shard that has made one, in the order of the files' names."""
    return [kind.from_json(value) for value in read_values(folder, kind.prefix)]


def read_report(folder: str | TableFolder, kind: type[ReportT], shard: int) -> ReportT | None:
    """Return the last report of a shard; None if it has made none."""
    try:
        return kind.from_json(json.loads(folder_at(folder).read(f"{kind.prefix}{shard}.json")))
    except FileNotFoundError:
        return None


def write_value(folder: str | TableFolder, name: str, value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Replace the last JSON value of that name by this one, as a whole or not at all."""
    text = json.dumps(value).encode()
    write_whole(folder, name, lambda stream: stream.write(text))


def read_values(folder: str | TableFolder, prefix: str) -> list[dict[str, Any]]:
    """Return the values whose name begins with `prefix`, in the order of names; none if there is no such folder."""
    place = folder_at(folder)
    names = sorted(name for name in place.names("") if name.startswith(prefix))
    return [json.loads(value) for value in place.each(place.read, names)]


def remove_values(folder: str | TableFolder, prefix: str, below: str) -> None:
    """Remove the values whose names begin with `prefix` and come before `below`; missing ones are ignored."""
    place = folder_at(folder)
    place.remove(name for name in place.names("") if name.startswith(prefix) and name < below)


@dataclasses.dataclass(frozen=True)
class OperatorReport(ShardReport):
    """A shard's work, and its state after the batch. Counts are since the checkpoint began, unless stated otherwise."""

    batch_id: int = -1  # Spark's number of the batch; -1 if unknown
    now_us: int = 0  # the clock: the arrival of the last row or punctuation, or the time of the tick
    state_bytes: int = 0  # the bytes written in this batch
    # the least low-watermark (µs) that would release a result or a row; None if none would
    needs: int | None = None
    due: int = 0  # rows or results that the low-watermark has passed: the next batch may release them
    # by input partition, in the order of the time column; 2^63 - 1 for an ended one
    bounds: Mapping[str, int] = dataclasses.field(default_factory=dict)

    place: ClassVar[str] = ""
    """The operator's name in descriptions of a stream."""
    in_micros: ClassVar[bool] = False
    """Whether :attr:`progress` is in microseconds; else in the unit of the time column."""

    @property
    def progress(self) -> Mapping[str, int]:
        """The bounds that a description shows."""
        return self.bounds

    @property
    def kept(self) -> int:
        """The rows in the state."""
        return 0

    @property
    def unreleased(self) -> int:
        """The rows and results that wait to be released. State that no answer waits for does not count."""
        return 0 if self.needs is None else self.kept

    @property
    def incomplete(self) -> Mapping[str, int]:
        """The numbers of rows without all of their results, by reason."""
        return {}


@dataclasses.dataclass(frozen=True)
class FeedReport:
    """The progress of a feed, and its row counts since the checkpoint began."""

    feed: str
    bound: int | None  # the low-watermark, in microseconds; None before there is one
    newest: int | None  # the largest time that the outlier guard believes
    arrival_us: int  # the arrival of its last rows
    rows: int
    late: int  # rows below the low-watermark reached before; they are processed all the same
    suspects: int  # rows that the outlier guard keeps from moving the watermark; they are processed too
    malformed: int  # rows without a key or a readable time, which are quarantined
    # the snapshot of its progress, if on-demand timestamps are computed from it
    progress: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class FeedReports(OperatorReport):
    """The reports of one shard of feeds."""

    feeds: Sequence[FeedReport] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return super().from_json({**value, "feeds": [FeedReport(**feed) for feed in value["feeds"]]})


def read_feed_reports(folder: str) -> list[FeedReport]:
    """Return the last report on each feed, by name."""
    found = [feed for each in read_reports(folder, FeedReports) for feed in each.feeds]
    return sorted(found, key=lambda report: report.feed)


@dataclasses.dataclass(frozen=True)
class JoinReport(OperatorReport):
    """The report of a join by time."""

    place: ClassVar[str] = "join"

    left_rows: int = 0
    right_rows: int = 0
    results: int = 0
    unmatched: int = 0  # the results without a partner, as in outer joins
    left_late: int = 0  # rows below their own side's low-watermark; they still meet the rows that are kept
    right_late: int = 0
    without_key: int = 0  # rows with a null in a column of `on`: no result has them, not even of an outer join
    left_kept: int = 0
    right_kept: int = 0
    left_superseded: int = 0  # dropped before their time, since the key's newest pair does not need them
    right_superseded: int = 0
    left_shed: int = 0  # dropped for lack of space, although they might still have met others
    right_shed: int = 0
    left_unsure: int = 0  # came without a partner when one may have been shed: never emitted as unmatched
    right_unsure: int = 0
    promised: int | None = None  # the low-watermark of the results
    release: str | None = None  # ``sync`` or ``filter``: how results are put in the order of time; None if they are not
    queued: int = 0  # rows that wait to enter the join
    held: int = 0  # results that wait to leave the join
    late_results: int = 0  # results below the low-watermark released before, which go to the late rows
    rates: list[float] = dataclasses.field(default_factory=list)  # rows a second of the left and the right
    comparisons: int = 0  # new rows times the other side's kept rows, of this batch; `spent_s` for comparing them
    spent_s: float = 0.0

    @property
    def kept(self) -> int:
        return self.left_kept + self.right_kept

    @property
    def unreleased(self) -> int:
        return self.queued + self.held or super().unreleased

    @property
    def incomplete(self) -> Mapping[str, int]:
        return {"shed": self.left_shed + self.right_shed, "unsure": self.left_unsure + self.right_unsure}


@dataclasses.dataclass(frozen=True)
class LatestJoinReport(OperatorReport):
    """The report of a join or a grouping of newest rows.

    A shard that only finds one side's newest rows, before the join, reports them as the left, for one batch alone.
    A shard of groups reports its input as the left, and keeps one row for each group.
    """

    place: ClassVar[str] = "newest rows"

    left_rows: int = 0
    right_rows: int = 0
    results: int = 0
    retracted: int = 0  # the results that are tombstones
    left_kept: int = 0  # one row for each key
    right_kept: int = 0
    left_expired: int = 0  # includes rows that had expired when they came
    right_expired: int = 0
    without_key: int = 0  # rows with a null in a column of the group
    late: int = 0  # rows of windows that were final
    outside: int = 0  # rows that are in no window

    @property
    def kept(self) -> int:
        return self.left_kept + self.right_kept

    @property
    def incomplete(self) -> Mapping[str, int]:
        return {"expired": self.left_expired + self.right_expired}


@dataclasses.dataclass(frozen=True)
class NumberingReport(OperatorReport):
    """The row numbers given so far. The step has one task, so the shard is always 0."""

    rows: int = 0  # rows numbered in this batch
    counted: int = 0  # rows numbered in all batches


@dataclasses.dataclass(frozen=True)
class QueueReport(OperatorReport):
    """A shard's work in a batch, and the rows that wait afterwards."""

    arrived: int = 0  # in this batch, as are the counts up to `shed`
    applied: int = 0
    superseded: int = 0
    older: int = 0
    conflicts: int = 0
    shed: int = 0
    waiting: int = 0  # rows that wait
    ready_at_us: int | None = None  # when the first of them may be served
    oldest_us: int | None = None  # the oldest first arrival among them
    # pairs of a place and how many rows wait up to it; increasing, for some places
    places: list[list[int]] = dataclasses.field(default_factory=list)
    used: int = 0  # locations in use; `allocated` are those of all pages
    allocated: int = 0
    pages_read: int = 0  # pages of rows, in this batch
    pages_written: int = 0
    # queue staleness of applied rows: first arrival to the batch's clock
    ages: Ages = dataclasses.field(default_factory=Ages)
    stalest_keys: str | None = None  # the keys that wait longest, an Arrow stream in base64; None unless requested
    outdated: int = 0  # superseded updates older than an applied row of their key: no later row represents them

    def to_json(self) -> dict[str, Any]:
        return {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "ages": self.ages.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return super().from_json({**value, "ages": Ages.from_json(value["ages"])})


@dataclasses.dataclass(frozen=True)
class ServiceReport(ShardReport):
    """The rows that one task passed on after the queue in a batch, and the time that this took."""

    prefix: ClassVar[str] = "served-"

    rows: int  # punctuation included
    began_us: int  # when the first row was passed on
    ended_us: int  # when the next step asked for more after the last row


def read_queues(checkpoint: TableFolder) -> list[list[QueueReport]]:
    """Return the last reports of each queue's shards, by the queue's number."""
    found: list[list[QueueReport]] = []
    while reports := read_reports(
        TableFolder(queue_folder(checkpoint.location, len(found)), checkpoint.storage), QueueReport
    ):
        found.append(reports)
    return found


@dataclasses.dataclass(frozen=True)
class ReorderReport(OperatorReport):
    """The report of a union, a merge, an ordered release or a distinct.

    Each row that came is released, held, or counted as a repeat, superseded or refused.
    """

    place: ClassVar[str] = "reordering"

    rows: int = 0
    released: int = 0
    held: int = 0  # rows that wait for the low-watermark, or for their turn
    repeats: int = 0  # rows dropped because an equal row was released
    late: int = 0  # rows below the low-watermark emitted before
    refused: int = 0  # late rows that were not released
    remembered: int = 0  # released rows whose key and time are kept until punctuation passes them
    promised: int | None = None  # the shard's own low-watermark
    superseded: int = 0  # rows dropped because a newer row of their key had passed

    @property
    def kept(self) -> int:
        return self.held

    @property
    def unreleased(self) -> int:
        return self.held


@dataclasses.dataclass(frozen=True)
class StageReport(ShardReport):
    """The rows that a shard holds after a batch."""

    # the least low-watermark (µs) that would change a result or admit a row; None if nothing is held
    needs: int | None = None
    held_since_us: int | None = None  # arrival of the newest row of the batch in which holding began
    behind: bool = False  # a query lags behind the low-watermark: the next batch continues even without rows


def batch_name(end: Mapping[str, Any]) -> str:
    """Return the name of the batch that ended at an offset, the prefix of its tasks' files."""
    return f"{end['id']}-{end['batch']:08d}"


def reported_states(folder: TableFolder, end: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the progress snapshot of each feed of a batch, from the reports of its tasks."""
    states: dict[str, Mapping[str, Any]] = {}
    for value in read_values(folder, batch_name(end) + "-"):
        states.update(value)
    return states


@dataclasses.dataclass(frozen=True)
class WindowReport(OperatorReport):
    """The report of windows. Counts are of the batch, and `bounds` below `needs` hold results back."""

    place: ClassVar[str] = "windows"
    in_micros: ClassVar[bool] = True

    bound: int | None = None  # the low-watermark, in microseconds; None before the first punctuation
    closed: int = _NO_WINDOW  # the greatest complete window-id; -2^63 for none, as for `final` and `ahead`
    final: int = _NO_WINDOW  # the greatest window-id that can no longer be corrected
    ahead: int = _NO_WINDOW  # the greatest window-id that per-key punctuation closed for some key
    results: int = 0  # of closed windows; `partial`: of open ones; `corrected`: re-emitted
    partial: int = 0
    corrected: int = 0
    late: int = 0  # rows whose window was final
    superseded: int = 0  # rows in windows that eager emission skips
    outside: int = 0  # rows between two windows
    tombstones: int = 0  # tombstones dropped, in all batches of the checkpoint
    entries: int = 0  # partial aggregates kept; with `rows` the thesis's measure of memory (§6.3.2)
    rows: int = 0
    running: int = 0  # keys whose last window is kept
    runs_read: int = 0  # pages of entries
    runs_written: int = 0
    # the settings to which the checkpoint is bound
    plan: Mapping[str, str] = dataclasses.field(default_factory=dict)
    aggregates: str = ""  # in words
    # names and types of the state columns of the aggregates
    state: Mapping[str, str] = dataclasses.field(default_factory=dict)
    held: int = 0  # entries and rows of windows that have not closed
    held_since_us: int | None = None  # when the oldest of them arrived, to a batch; None if nothing is held
    waiting: int = 0  # results of closed windows that have not left

    @property
    def progress(self) -> Mapping[str, int]:
        return {} if self.bound is None else {"all feeds": self.bound}

    @property
    def kept(self) -> int:
        return self.entries + self.rows

    @property
    def unreleased(self) -> int:
        return self.held + self.waiting


_SAMPLED = 20
_CELL = 1000


@dataclasses.dataclass(frozen=True)
class RowSample(ShardReport):
    """The first rows that a task passed on in a batch that a control named. The next sample replaces it."""

    prefix: ClassVar[str] = "sample-"

    version: int  # that of the control that asked for it
    batch: int  # Spark's number of the batch; -1 if unknown
    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]  # texts, cut at 1,000 characters

    @staticmethod
    def share(part: int, parts: int) -> int:
        """Return how many rows one of some tasks samples, so that there are 20 together."""
        return _SAMPLED // parts + (part < _SAMPLED % parts)

    @classmethod
    def of(cls, part: int, version: int, batch: int, table: pa.Table, count: int) -> RowSample:
        """Return the first rows of a table, without the package's own columns and punctuation."""
        from ..rows.system_column import SYSTEM, punctuation_mask
        from ..rows.text import readable

        own = [name for name in table.column_names if name.startswith(SYSTEM)]
        if SYSTEM in own:
            import pyarrow.compute as pc

            table = table.filter(pc.invert(punctuation_mask(table)))
        rows = readable(table.drop_columns(own).slice(0, count))
        cells = [[_cell(value) for value in column.to_pylist()] for column in rows.columns]
        return cls(part, version, batch, rows.column_names, list(zip(*cells, strict=True)))


def _cell(value: object) -> str | None:
    if value is None:
        return None
    text = f"0x{value[:_CELL].hex()}" if isinstance(value, bytes) else str(value)
    return text if len(text) <= _CELL else f"{text[:_CELL]}…"


def sample_folder(checkpoint: TableFolder, entity: str) -> TableFolder:
    """Return the folder for the samples of a source's or a queue's output, or of the sink's input."""
    kind, _, number = entity.partition("/")
    if kind == "queue":
        return TableFolder(queue_folder(checkpoint.location, int(number)), checkpoint.storage)
    return checkpoint.below(f"{SAMPLES}/{entity.replace('/', '-')}")


REPORTS: Mapping[Kind, type[OperatorReport]] = {
    "queue": QueueReport,
    "windows": WindowReport,
    "reorder": ReorderReport,
    "joins": JoinReport,
    "latest": LatestJoinReport,
    "numbering": NumberingReport,
}
"""The reports of each kind of operator."""


_KEEP = 0.7
_DIGITS = 6


def faded(before: float | None, now: float) -> float:
    """Return a fading average of seconds; restart it if it is off by more than a factor of two.

    The first batch of a process takes many times as long as the next ones, and must not count for long.
    """
    if before is None or not before / 2 <= now <= before * 2:
        return round(now, _DIGITS)
    return round(_KEEP * before + (1 - _KEEP) * now, _DIGITS)


class LeftOutFigures:
    """A counter of failed writes in a row, which logs a warning at the first one and when writing works again.

    `what` names the figures in the warnings, such as "the report of the queries".
    """

    def __init__(self, what: str, folder: TableFolder, log: logging.Logger) -> None:
        self.count = 0
        self._what = what
        self._folder = folder
        self._log = log

    def attempt(self, write: Callable[[], object]) -> bool:
        """Call `write`, and return whether it succeeded."""
        try:
            write()
        except (OSError, UpstreamError) as error:
            if not self.count:
                self._log.warning(
                    "%s cannot be written at %s: %s The job continues, and "
                    "catches up when this is put right; until then "
                    "further failures are counted alone",
                    self._what,
                    self._folder.location,
                    _sentence(self._folder.masked(error)),
                )
            self.count += 1
            return False
        if self.count:
            self._log.warning(
                "%s is written again at %s. It was left out %d times; the job has caught up",
                self._what,
                self._folder.location,
                self.count,
            )
        self.count = 0
        return True


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
