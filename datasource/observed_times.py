"""Observation of a batch's times: by the driver that plans the batch, or by the tasks that read it."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ..conf.errors import SchemaError
from ..core.feedback.checkpoint_layout import times_folder
from ..core.feedback.reports import batch_name, remove_values, reported_states, write_value
from ..core.rows.columns import column_at
from ..core.rows.event_times import NO_TIME, event_time_us
from ..core.rows.exact_integers import Int64s
from ..core.watermark.bounds import embedded_punctuation
from ..core.watermark.policies import FeedProgress, Policy
from ..storage.folder import TableFolder
from .connectors.contract import Chunk, Connector, Range
from .options import SourceOptions


def check_usable(connector: Connector, options: SourceOptions, ranges: Sequence[Range]) -> None:
    """Raise SchemaError if every row of a first batch is malformed; the query would end as if it had no input."""
    seen = _Unusable(options)
    columns = None if options.progress == "embedded" else seen.columns(connector.schema().names)
    for part in ranges if seen.judges else ():
        for chunk in connector.read(part, columns, seen):
            if seen.usable(chunk):
                return
    seen.refuse()


class _Unusable:
    """Rows that cannot be used, with a sample for the error."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._time = options.time if options.looks() else None
        self._null = dict.fromkeys(options.key, True)
        self._timed = False
        self._rows = self._lines = 0
        self._wrong = ""

    @property
    def judges(self) -> bool:
        return bool(self._options.key) or self._time is not None

    def columns(self, names: Sequence[str]) -> list[str]:
        wanted = self._options.key.columns(names)
        return list(dict.fromkeys([*wanted, *([] if self._time is None else [self._time])]))

    def usable(self, chunk: Chunk) -> bool:
        """Return whether any row has a key and a time, or is punctuation of the feed's own."""
        options, rows = self._options, chunk.rows
        good = np.ones(rows.num_rows, dtype=np.bool_)
        for name in options.key:
            column = column_at(rows, name)
            self._null[name] &= column.null_count == rows.num_rows
            if column.null_count:
                good &= column.is_valid().to_numpy()
        if self._time is not None:
            timed = event_time_us(rows.column(self._time), options.time_format, options.time_zone) != NO_TIME
            timed = timed if chunk.deleted is None else timed | chunk.deleted
            self._timed |= bool(timed.any())
            good &= timed
        if chunk.misfits is not None:
            good &= np.array([reason is None for reason in chunk.misfits])
            if not self._wrong and chunk.misfits[0] is not None:
                self._wrong = f"of the first one {chunk.misfits[0]}"
        if options.progress == "embedded":
            good |= embedded_punctuation(rows, options.key, options.time, chunk.deleted)
        if not self._wrong and rows.num_rows:
            self._wrong = f"the first reads {str(rows.slice(0, 1).to_pylist()[0])[:200]}"
        self._rows += rows.num_rows
        return bool(good.any())

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        if not self._wrong:
            where = place + (f", line {line}" if line is not None else "")
            self._wrong = f"the first, at {where}, reads {text[:200]!r}: {reason}"
        self._lines += 1

    def refuse(self) -> None:
        count = self._rows + self._lines
        if not count:
            return
        if not self._rows:
            raise SchemaError(
                f"none of the {count} rows of the first batch can be read; {self._wrong}",
                hint="correct the options of the data's format (`schema`, `fileFormat`, `sep`, `eventTime`), or wait "
                "for readable rows",
            )
        if self._time is not None and not self._timed:
            raise SchemaError(
                f"none of the {count} rows of the first batch has a time in the column {self._time!r} that can be "
                f"read; {self._wrong}",
                expected="times from the year 1 to 9999",
                hint="correct the option `eventTime`, or set its format with `timeFormat`",
            )
        null = [name for name, always in self._null.items() if always]
        where = f"in the column {', '.join(map(repr, null or self._options.key))}"
        both = "" if null or self._time is None else f" and a time in the column {self._time!r}"
        raise SchemaError(
            f"none of the {count} rows of the first batch has a key {where}{both}; {self._wrong}",
            expected="a value in each column of the key: a row without one updates nothing",
            hint="correct the option `key`, or the options of the data's format (`schema`, `select`, `header`, `sep`), "
            "or wait for rows with a key",
        )


State = Mapping[str, Any]
Promises = Mapping[str, Mapping[str, int | None]]
"""Feeds whose rows of a batch are not observed yet, with the low-watermarks promised before these rows."""


class Observation(ABC):
    """Updates feeds' progress by the times of their rows.

    If a range is cheap to read twice, the driver looks before the batch runs. Otherwise (a broker) the tasks look, and
    leave reports below the checkpoint for the offset of the *next* batch.

    Guarantee: both produce the same progress, the second one batch later. See docs/decisions/0002.
    """

    @abstractmethod
    def observe(
        self, start: Mapping[str, Any], ranges: Sequence[Range], progress: MutableMapping[str, FeedProgress]
    ) -> Promises:
        """Update `progress` when the batch after `start` is planned, and return the new offset's ``unseen``.

        The ``unseen`` of the journaled offset `start` names feeds whose rows up to there are not observed yet.
        """

    def forget(self, end: Mapping[str, Any]) -> None:
        """Forget what is no longer needed after the commit of the batch that ended at `end`."""
        del end


class DriverLooks(Observation):
    """The driver reads the time column of all ranges."""

    def __init__(self, connector: Connector, options: SourceOptions) -> None:
        self._connector = connector
        self._options = options
        self._policy = options.policy()

    def observe(
        self, start: Mapping[str, Any], ranges: Sequence[Range], progress: MutableMapping[str, FeedProgress]
    ) -> Promises:
        self.catch_up(start, start.get("unseen", {}), progress)
        self.check_first(start, ranges)
        self._look(ranges, progress)
        return {}

    def check_first(self, start: Mapping[str, Any], ranges: Sequence[Range]) -> None:
        """Refuse the first batch of a query if no row of it can be used."""
        if start.get("batch") == 0:
            check_usable(self._connector, self._options, ranges)

    def catch_up(self, start: Mapping[str, Any], unseen: Promises, progress: MutableMapping[str, FeedProgress]) -> None:
        """Observe the rows of `unseen` feeds in the batch that ended at `start`."""
        if not unseen:
            return
        now = {feed: _promised(progress[feed]) for feed in unseen}
        for feed, before in unseen.items():
            progress[feed] = FeedProgress(self._policy, {**progress[feed].snapshot(), **before})
        ranges = [Range.from_json(value) for value in start["ranges"]]
        self._look([part for part in ranges if part.feed in unseen], progress)
        for feed, promise in now.items():
            progress[feed] = _closed(self._policy, {**progress[feed].snapshot(), **promise}, start)

    def _look(self, ranges: Sequence[Range], progress: Mapping[str, FeedProgress]) -> None:
        if not self._options.looks():
            return
        with ThreadPoolExecutor(self._options.tasks()) as pool:
            looks: deque[tuple[str, Future[list[tuple[Chunk, Int64s]]]]] = deque()
            # A few ranges ahead, not all: the times of a long backlog do not fit in memory.
            for part in [*ranges, None]:
                if part is not None:
                    looks.append((part.feed, pool.submit(lambda each=part: list(self._times(each)))))
                while looks and (part is None or len(looks) > 2 * self._options.tasks()):
                    feed, look = looks.popleft()
                    for chunk, times in look.result():
                        _take(progress[feed], chunk, times, self._options)

    def _times(self, part: Range) -> Iterator[tuple[Chunk, Int64s]]:
        options = self._options
        assert options.time is not None
        columns = None if self._policy.name == "embedded" else [options.time]
        for chunk in self._connector.read(part, columns, SilentReceiver()):
            times = event_time_us(chunk.rows.column(options.time), options.time_format, options.time_zone)
            # All that is kept of the rows is what shows embedded punctuation.
            yield chunk if columns is None else dataclasses.replace(chunk, rows=chunk.rows.select([])), times


class SilentReceiver:
    """Ignores malformed rows: the task that delivers the rows reports them."""

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        """Ignore the row."""


class TasksReport(Observation):
    """The tasks look, each at the feeds that it reads whole; the next batch's offset takes up their reports.

    The driver reads whatever is missing: an unfinished task, a feed that several tasks share, a lost file.
    """

    def __init__(self, connector: Connector, options: SourceOptions, folder: TableFolder) -> None:
        self._looks = DriverLooks(connector, options)
        self._policy = options.policy()
        self._watched = options.looks()
        self._folder = folder

    def observe(
        self, start: Mapping[str, Any], ranges: Sequence[Range], progress: MutableMapping[str, FeedProgress]
    ) -> Promises:
        unseen: Promises = start.get("unseen", {})
        self._looks.check_first(start, ranges)
        promised = {feed: _promised(state) for feed, state in progress.items()}
        if unseen:
            reported = reported_states(self._folder, start)
            for feed in unseen.keys() & reported.keys():
                progress[feed] = _closed(self._policy, {**reported[feed], **promised[feed]}, start)
            missing = {feed: before for feed, before in unseen.items() if feed not in reported}
            self._looks.catch_up(start, missing, progress)
        return {part.feed: promised[part.feed] for part in ranges} if self._watched else {}

    def forget(self, end: Mapping[str, Any]) -> None:
        # Those of `end` itself stay until the offset that follows it has surely been journaled.
        if end.get("unseen"):
            remove_values(self._folder, f"{end['id']}-", batch_name(end))


class TaskLook:
    """A task's progress of the feeds that it reads whole. `states` is that before the batch."""

    def __init__(self, options: SourceOptions, states: Mapping[str, State]) -> None:
        self._options = options
        self._progress = {feed: FeedProgress(options.policy(), state) for feed, state in states.items()}

    def see(self, feed: str, chunk: Chunk, times_us: Int64s | None) -> None:
        """Observe further rows of a feed with their times, as read, before any condition."""
        if feed in self._progress and times_us is not None:
            _take(self._progress[feed], chunk, times_us, self._options)

    def report(self, folder: TableFolder, name: str) -> None:
        """Write the progress for the planner of the next batch."""
        if self._progress:
            write_value(folder, name, {feed: progress.snapshot() for feed, progress in self._progress.items()})


def observation_of(connector: Connector, options: SourceOptions) -> Observation:
    """Return observation by tasks if reading twice is expensive and reports have a place, else by the driver."""
    if connector.tasks_report and options.checkpoint is not None:
        return TasksReport(connector, options, times_folder(options.checkpoint))
    return DriverLooks(connector, options)


def task_states(end: Mapping[str, Any], groups: Sequence[Sequence[Range]]) -> list[dict[str, State]]:
    """Return, for each task, the feeds that no other task reads, with their progress before the batch."""
    unseen: Promises = end.get("unseen", {})
    readers: dict[str, set[int]] = {}
    for number, group in enumerate(groups):
        for part in group:
            readers.setdefault(part.feed, set()).add(number)
    return [
        {feed: {**end["progress"][feed], **before} for feed, before in unseen.items() if readers.get(feed) == {number}}
        for number in range(len(groups))
    ]


def _seen(chunk: Chunk, times: Int64s, options: SourceOptions) -> tuple[Int64s, Int64s]:
    """Return the times of rows, and the feed-wide times of embedded punctuation."""
    if options.progress != "embedded":
        return times, times[:0]
    marks = embedded_punctuation(chunk.rows, options.key, options.time, chunk.deleted)
    feed_wide = marks.copy()
    for name in options.key:
        feed_wide &= chunk.rows.column(name).is_null().to_numpy()
    return times[~marks], times[feed_wide]


def _take(progress: FeedProgress, chunk: Chunk, times: Int64s, options: SourceOptions) -> None:
    """Observe a chunk's rows; tombstones without a time of the feed's own only count as received."""
    if chunk.deleted is not None:
        progress.received += int(np.count_nonzero(chunk.deleted & (times == NO_TIME)))
    times, claims = _seen(chunk, times, options)
    progress.observe(times)
    if len(claims):
        progress.observe_punctuation(int(claims.max()))


def _promised(progress: FeedProgress) -> dict[str, int | None]:
    """Return the parts of a state that decide whether a row is late, and that depend on promises alone."""
    state = progress.snapshot()
    return {name: state[name] for name in ("bound", "own")}


def _closed(policy: Policy, state: State, start: Mapping[str, Any]) -> FeedProgress:
    """Return the progress at the end of the batch that ended at `start`, by that batch's clock."""
    progress = FeedProgress(policy, state)
    progress.close_batch(int(start["now_us"]))
    return progress
