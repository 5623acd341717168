"""Planning: from one journaled offset to the next."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..conf.errors import CheckpointError
from ..conf.units import format_duration_us, parse_duration_us
from ..core.feedback.control import CONTROL, NO_LIMIT, SAMPLE, ControlReader, ControlRecord
from ..core.feedback.lanes import LANE_FIGURES, Lane, LaneReader, StreamLanes
from ..core.feedback.reports import RowSample, batch_name
from ..core.watermark.bounds import AFTER_ALL, is_finite
from ..core.watermark.policies import FeedProgress, Policy
from .connectors.contract import Connector, Limit, Range
from .lanes import Intake, intake_of, is_held_back, span_of, with_lanes
from .observed_times import observation_of, task_states
from .options import SourceOptions, heard_now
from .schema import FeedShape

_log = logging.getLogger("upstream.source")

Offset = dict[str, Any]

OFFSET_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Task:
    """One Spark task of a batch."""

    batch: str  # identifies the batch of this checkpoint, and so the files of malformed rows
    number: int
    ranges: Sequence[tuple[int, Range]]  # with their first sequence numbers, in arrival order
    punctuation: Mapping[str, int]  # low-watermarks in microseconds of the feeds whose punctuation the task appends
    clock_us: int  # the batch's clock: the arrival of its punctuation rows
    # progress before the batch, of the feeds whose times the task observes
    states: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    # the least stamp, by the first sequence number of a range whose rows are stamped on entry
    entered: Mapping[int, int] = dataclasses.field(default_factory=dict)
    sample: tuple[int, int] | None = None  # the version that asks for a sample, and how many rows
    lane: Lane = "both"  # the readers that get the rows


class BatchPlanner:
    """A planner of one stream's batches.

    :meth:`plan` may use clocks, listings and limits. All that it finds goes into the end offset, which Spark journals
    before the batch runs: ranges, sequence numbers, arrivals, progress, punctuation. A replay reads the end offset
    alone, and so produces the same rows.

    `clock` returns microseconds since the epoch. `new_id` names a new stream; the first batch journals the name.
    `lanes` reads the report of the host whose steps run in the tasks, and send the rows by :attr:`Task.lane`.
    """

    def __init__(
        self,
        connector: Connector,
        options: SourceOptions,
        shape: FeedShape,
        *,
        clock: Callable[[], int],
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex[:12],
        lanes: LaneReader | None = None,
    ) -> None:
        self._connector = connector
        self._options = options
        self._shape = shape
        self._policy: Policy = options.policy()
        self._idle = options.idle_rule()
        self._idle_after_us = self._idle.after_us
        self._controls = None if options.checkpoint is None else ControlReader(options.checkpoint)
        self._observation = observation_of(connector, options)
        self._clock = clock
        self._lanes = lanes
        self._frozen_us: int | None = None
        self._removed: frozenset[str] | None = None
        self._new_id = new_id
        self._schema = json.dumps([[field.name, str(field.type)] for field in shape.rows])

    @staticmethod
    def initial() -> Offset:
        """Return the offset before the first batch. It is constant, since Spark does not journal it."""
        return {"version": OFFSET_VERSION, "batch": 0}

    def freeze(self) -> None:
        """Read only what is there now (`Trigger.AvailableNow`, batch reads)."""
        self._frozen_us = self._clock()
        self._connector.freeze(self._frozen_us)
        self._idle.stop()

    def plan(self, start: Offset, limit: Limit, *, all_at_once: bool = False) -> Offset:
        """Return the next batch's end (`start` if there is no input); raise CheckpointError if `start` does not fit.

        With `all_at_once`, the host's budgets do not count.
        """
        self.check(start)
        lanes = None if self._lanes is None or all_at_once else self._lanes()
        end = self._planned(start, limit, lanes)
        if self._lanes is None:
            return end
        return with_lanes(start, end, self._lanes.stream, lanes, joins=self._connector.joins_ranges)

    def _planned(self, start: Offset, limit: Limit, lanes: StreamLanes | None) -> Offset:
        """Return the end by the input that is new."""
        position: Mapping[str, Any] | None = start.get("position")
        now = max(self._clock(), int(start.get("now_us", 0)))
        limit, control = self._controlled(start, now, limit)
        changed = control != start.get(CONTROL)
        step = self._connector.advance(position, now, _paced(start, limit, lanes))
        known: Mapping[str, Any] = start.get("progress", {})
        ended = set(start.get("ended", ()))
        removed = self._no_longer_read(step.position, known)
        closing = self._frozen_us is not None and self._options.on_end == "close" and not step.waiting
        quiet = not step.ranges and step.ended <= ended and not start.get("unseen")
        quiet = quiet and not (closing and known.keys() - ended)
        heard: Mapping[str, int] = start.get("heard", {})
        if quiet and not removed and not changed and not self._idle.asked(known, heard, ended, now):
            return start
        before = {feed: FeedProgress(self._policy, state) for feed, state in known.items()}
        for feed in self._connector.feeds(step.position):
            before.setdefault(feed, FeedProgress(self._policy))
        bounds = {feed: progress.bound for feed, progress in before.items()}
        unseen = self._observation.observe(start, step.ranges, before)
        for feed, bound in step.promised.items():
            before[feed].observe_punctuation(bound)
        over = set(before if closing else step.ended)
        over -= unseen.keys()  # a feed has ended when its last rows have been looked at
        came = {part.feed for part in step.ranges}
        self._say_what_came_after_the_end(came, bounds)
        ended = (ended - came) | over
        for feed, progress in before.items():
            if not quiet:
                progress.close_batch(now, self._oldest_us(step.waiting.get(feed)))
            if feed in unseen or feed in step.waiting:
                progress.begin()  # it has rows, whatever they are
        heard = heard_now(heard, before, step, now)
        hidden = unseen.keys() | step.waiting.keys()
        empty = {feed for feed, progress in before.items() if progress.empty and feed not in hidden}
        begun = {feed for feed, progress in before.items() if progress.bound is not None and feed not in empty}
        if before.keys() <= begun | ended | removed | self._idle.silent(heard, ended, now):
            # Before, a feed may still begin, with rows that are not late yet.
            for feed in ended & before.keys():
                before[feed].close()
        self._idle.apply(before, heard, removed | empty, ended, now)
        if quiet and not changed and all(progress.bound == bounds.get(feed) for feed, progress in before.items()):
            return start
        seq = int(start.get("seq", 0))
        return {
            "version": OFFSET_VERSION,
            "batch": int(start["batch"]) + 1,
            "id": start.get("id") or self._new_id(),
            "connector": self._connector.name,
            "schema": self._schema,
            "now_us": now,
            "seq": seq + sum(part.span for part in step.ranges),
            "first_seq": seq,
            "position": step.position,
            "progress": {feed: progress.snapshot() for feed, progress in before.items()},
            "heard": heard,
            "looked": self._options.looks(),
            "ended": sorted(ended),
            **({} if self._controls is None else {"limits": self._limits(limit)}),
            **({} if control is None else {CONTROL: control, **_sampled(start, control, step.ranges)}),
            **({"unseen": unseen} if unseen else {}),
            **({"entered": self._entered(step.ranges, bounds)} if self._shape.stamped else {}),
            "punctuation": {
                feed: progress.bound
                for feed, progress in before.items()
                if progress.bound is not None and progress.bound != bounds[feed]
            },
            "tasks": self._divide(step.ranges),
            "ranges": [part.to_json() for part in step.ranges],
        }

    def _controlled(self, start: Offset, now_us: int, limit: Limit) -> tuple[Limit, ControlRecord | None]:
        """Return the limit of the next batch, and the record of the controls that it has; adapt the idle rule."""
        if self._controls is None:
            return limit, None
        record = self._controls.record(f"source/{start.get('id')}", start.get(CONTROL), now_us)
        settings: Mapping[str, Any] = {} if record is None else record["settings"]
        if self._idle_after_us is not None:
            after = settings.get("idleAfter")
            self._idle.after_us = self._idle_after_us if after is None else parse_duration_us(str(after))
        rows, most = settings.get("maxRowsPerTrigger", limit.rows), settings.get("maxBytesPerTrigger", limit.bytes)
        return dataclasses.replace(
            limit,
            rows=None if rows in (None, NO_LIMIT) else int(rows),
            bytes=None if most in (None, NO_LIMIT) else int(most),
        ), record

    def _limits(self, limit: Limit) -> dict[str, Any]:
        """Return the limits of a batch under the names of their options, for people."""
        after = None if self._idle.after_us is None else format_duration_us(self._idle.after_us)
        named = {"maxRowsPerTrigger": limit.rows, "maxBytesPerTrigger": limit.bytes, "maxFilesPerTrigger": limit.files}
        return {name: value for name, value in {**named, "idleAfter": after}.items() if value is not None}

    def _no_longer_read(self, position: Mapping[str, Any], known: Mapping[str, Any]) -> frozenset[str]:
        """Return the feeds that only an earlier run read: paths removed from the options."""
        if self._removed is None:
            self._removed = frozenset(known.keys() - set(self._connector.feeds(position)))
        return self._removed & known.keys()

    @staticmethod
    def _say_what_came_after_the_end(came: Collection[str], bounds: Mapping[str, int | None]) -> None:
        again = sorted(feed for feed in came if bounds.get(feed) == AFTER_ALL)
        if again:
            _log.warning(
                "rows have come after the end of %s, which has closed every window: they are late and counted, and "
                "windows take none of them; to start over, start with a new checkpoint",
                ", ".join(again[:5]) + (f" and {len(again) - 5} more feeds" if len(again) > 5 else ""),
            )

    def _oldest_us(self, waiting_us: int | None) -> int | None:
        """Return the arrival of a feed's oldest undelivered row, as far as it is known to be in the past."""
        known = [each for each in (waiting_us, self._frozen_us) if each is not None]
        return min(known, default=None)

    @staticmethod
    def _entered(ranges: Sequence[Range], bounds: Mapping[str, int | None]) -> dict[str, int]:
        """Return by feed the least stamp for rows stamped on entry: the low-watermark promised before."""
        promised = {part.feed: bounds.get(part.feed) for part in ranges}
        return {feed: bound for feed, bound in promised.items() if bound is not None and is_finite(bound)}

    def tasks(self, start: Offset, end: Offset) -> list[Task]:
        """Return the tasks of the batch that ends at `end`: a function of `end` alone.

        Raise CheckpointError if it does not follow `start`, or if this source cannot continue from `end`.
        """
        if end["batch"] == start["batch"]:
            return []
        self.check(end)
        if end["batch"] != start["batch"] + 1:
            raise CheckpointError(
                f"batch {end['batch']} was requested from batch {start['batch']}",
                expected="the batch that follows",
                hint="the checkpoint's offsets have a gap; restore it, or start with a new checkpoint",
            )
        given: Intake | None = end.get("given")
        if given is None:
            return self._tasks_of(end, intake_of(end), end["first_seq"], "both")
        if self._lanes is None:
            raise _without_lanes()
        tasks = self._tasks_of(end, {**intake_of(end), "punctuation": {}}, end["first_seq"], "newest")
        return tasks + self._tasks_of(end, given, end["seq"] - span_of(given), "every", len(tasks))

    def _tasks_of(self, end: Offset, intake: Intake, seq: int, lane: Lane, number: int = 0) -> list[Task]:
        """Return the tasks of a lane; rows that others have had are not looked at or sampled again."""
        ranges = [Range.from_json(value) for value in intake["ranges"]]
        firsts = np.cumsum([0] + [part.span for part in ranges]) + seq
        numbered = [(int(first), part) for first, part in zip(firsts, ranges, strict=False)]
        entered = {
            first: value["entered"]
            for (first, part), value in zip(numbered, intake["ranges"], strict=True)
            if "entered" in value and part.span
        }
        punctuation: Mapping[str, int] = intake["punctuation"] if self._options.punctuation else {}
        borders = self._divide(ranges) if lane == "every" else end["tasks"]
        divided = [numbered[low:high] for low, high in borders] or ([[]] if punctuation else [])
        states = task_states({} if lane == "every" else end, [[part for _, part in group] for group in divided])
        sample = None if lane == "every" else end.get(SAMPLE)
        version = sample["version"] if sample is not None and sample["batch"] == end["batch"] else None
        return [
            Task(
                batch_name(end),
                number + at,
                group,
                punctuation if at == len(divided) - 1 else {},
                intake["now_us"],
                seen,
                {first: entered[first] for first, _ in group if first in entered},
                None if version is None else (version, RowSample.share(at, len(divided))),
                lane,
            )
            for at, (group, seen) in enumerate(zip(divided, states, strict=True))
        ]

    def backlog(self, start: Offset) -> dict[str, Any] | None:
        """Return the input beyond an offset, and what readers of every row still lack below it."""
        backlog = self._connector.backlog(start.get("position"), self._clock())
        figures = start.get(LANE_FIGURES)
        if figures is None or not figures["owed"]:
            return backlog
        return {**(backlog or {}), "owed": figures["owed"], "owed_since_us": figures["since_us"]}

    def commit(self, end: Offset) -> None:
        if "position" in end and not end.get("owed"):
            self._connector.commit(end["position"])
        self._observation.forget(end)

    def check(self, offset: Offset) -> None:
        """Raise CheckpointError for an offset that this source cannot continue from."""
        if offset.get("version") != OFFSET_VERSION:
            raise CheckpointError(
                f"the checkpoint's offset has version {offset.get('version')!r}",
                expected=f"version {OFFSET_VERSION}",
                hint="start with a new checkpoint, or run the release that wrote this one",
            )
        if self._lanes is None and offset.get("owed"):
            raise _without_lanes()
        recorded = offset.get("connector", self._connector.name)
        if recorded != self._connector.name:
            raise CheckpointError(
                f"the checkpoint was written by connector={recorded}, and the query reads "
                f"connector={self._connector.name}",
                hint="use a new checkpoint for another connector",
            )
        schema = offset.get("schema", self._schema)
        if schema != self._schema:
            raise CheckpointError(
                f"the checkpoint was written for the columns {_named(schema)}, and the query reads "
                f"{_named(self._schema)}",
                expected="the same columns for the life of a checkpoint",
                hint="give the recorded columns with the option `schema`, or start with a new checkpoint",
            )

    def _divide(self, ranges: Sequence[Range]) -> list[tuple[int, int]]:
        """Return index pairs of neighbouring ranges for each task, about equal in span."""
        if not ranges:
            return []
        ends = np.cumsum([part.span for part in ranges])
        wanted = min(self._options.tasks(), len(ranges))
        if self._options.min_partitions is None:
            wanted = min(wanted, int(ends[-1]) // self._connector.smallest_task + 1)
        # Between two ranges, at the border that is nearest to an equal share: of two files of about one length each
        # task gets one.
        borders = np.concatenate([[0], ends])
        shares = np.arange(1, wanted) * (ends[-1] / wanted)
        nearest = np.abs(borders[:, None] - shares).argmin(axis=0)
        cuts = sorted({0, len(ranges), *nearest.tolist()})
        return list(itertools.pairwise(cuts))


def _without_lanes() -> CheckpointError:
    return CheckpointError(
        "some queries lag, and the stream now has other steps between its source and the queries, or too large ones",
        expected="an unchanged stream, until the lag has ended",
        hint="run the job with the earlier stream and availableNow=True first (`upstream run --once`)",
    )


def _paced(start: Offset, limit: Limit, lanes: StreamLanes | None) -> Limit:
    """Return the limit within the host's budget, if the rows are for readers of every row, or these lag too far."""
    if lanes is None or lanes.budget is None or (lanes.newest and not is_held_back(start)):
        return limit
    return dataclasses.replace(limit, rows=min(lanes.budget, limit.rows or lanes.budget))


def _named(schema: str) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in json.loads(schema))


def _sampled(start: Offset, control: ControlRecord, ranges: Sequence[Range]) -> dict[str, Any]:
    """Return the member of an offset with the last sample's version and batch: the first batch with rows has it."""
    asked, last = control["settings"].get(SAMPLE, 0), start.get(SAMPLE)
    if ranges and asked > (0 if last is None else last["version"]):
        return {SAMPLE: {"version": asked, "batch": int(start["batch"]) + 1}}
    return {} if last is None else {SAMPLE: last}
