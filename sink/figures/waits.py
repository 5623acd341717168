"""The time up to which a commit is complete, and the input partition, queue or stage that its oldest answer awaits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from ...conf.units import format_duration_us
from ...core.feedback.checkpoint_layout import SparkTimes
from ...core.watermark.bounds import AFTER_ALL, BEFORE_ALL
from ...delta_format.latest_table import NOTHING_YET
from .summary import CommitSummary, complete_up_to_us


def bound_text(value: Any) -> str:
    """Return a bound as ISO text to the millisecond, rounded down without trailing zeros; a number is unchanged."""
    if not isinstance(value, str):
        return str(value)
    body, dot, fraction = value.replace("T", " ", 1).removesuffix("Z").partition(".")
    return (body + (dot + fraction[:3]).rstrip("0").rstrip(".")) + (" UTC" if value.endswith("Z") else "")


def complete_to(summary: CommitSummary) -> str:
    """Return the time up to which the table is complete, as text for people."""
    if summary.low_watermark is not None:
        return bound_text(summary.low_watermark)
    return "the end" if has_ended(summary) else "no known time"


def has_ended(summary: CommitSummary) -> bool:
    """Return whether all feeds in the commit's summary have ended."""
    return bool(summary.low_watermarks) and all(bound is None for bound in summary.low_watermarks.values())


# Smaller differences are not shown: feeds are never at quite the same point.
_APART_US = 1_000_000
_MOST = 20


@dataclasses.dataclass(frozen=True)
class Laggard:
    """The input partition that holds the low-watermark back."""

    feed: str
    waiting: int  # how many other partitions wait for it
    behind: int | None  # how far it is behind the most advanced one; None before it has a low-watermark
    silent_us: int | None  # since its last rows, or since its low-watermark last moved; None if unknown
    rows: int = 0  # received, if it has no low-watermark
    micros: bool = True  # whether `behind` is in microseconds; else in the unit of a numeric time column
    ahead: int | None = None  # the low-watermark of the most advanced one; None if unknown

    @property
    def name(self) -> str:
        """The last part of a path, which distinguishes partitions in a line."""
        return self.feed.rstrip("/").rpartition("/")[2] or self.feed

    @property
    def age_us(self) -> int | None:
        """How long others have waited for it, as far as that is known."""
        return self.silent_us if self.silent_us is not None else self.behind if self.micros else None

    @property
    def silence(self) -> str:
        return "" if self.silent_us is None else f", silent for {format_duration_us(self.silent_us)}"

    @property
    def distance(self) -> str:
        behind = self.behind or 0
        return format_duration_us(behind) if self.micros else f"{behind:,}"

    @property
    def reason(self) -> str:
        """Why an answer waits, for people."""
        if self.behind is None:
            rows = f"its {self.rows:,} rows are too few" if self.rows else "it has too few rows"
            return f"waits for {self.name}: {rows} for a low-watermark"
        return f"waits for {self.name}" + (self.silence or f", {self.distance} behind")


def laggard_of(offset: Mapping[str, Any], now_us: int) -> Laggard | None:
    """Return the laggard of a whole offset at `now_us`; None for partitions close together, or for one alone."""
    progress: Mapping[str, Any] = offset.get("progress", {})
    ended = set(offset.get("ended", ()))
    bounds = {
        feed: state["bound"]
        for feed, state in progress.items()
        if feed not in ended and state["bound"] not in (None, AFTER_ALL)
    }
    for feed, bound in bounds.items():
        if bound == BEFORE_ALL:
            return Laggard(feed, len(bounds) - 1, None, None, progress[feed].get("received", 0))
    if len(bounds) < 2:
        return None
    last = min(bounds, key=lambda feed: bounds[feed])
    apart = max(bounds.values()) - bounds[last]
    heard = offset.get("heard", {}).get(last)
    silent = None if heard is None else max(now_us - heard, 0)
    return None if apart < _APART_US else Laggard(last, len(bounds) - 1, apart, silent, ahead=max(bounds.values()))


def waits_for(offset: Mapping[str, Any], now_us: int) -> str:
    """Return the feed that holds the others back, by Spark's progress; empty for one feed, or feeds close together."""
    found = laggard_of(offset, now_us)
    if found is None:
        return ""
    if found.behind is None:
        few = f"{found.rows:,} {'row is' if found.rows == 1 else 'rows are'} too few for a low-watermark"
        return few if not found.waiting else f"the others wait for {found.name}: its {few}"
    others = f"{found.waiting} feeds wait" if found.waiting > 1 else "1 feed waits"
    return f"{others} for {found.name}, {found.distance} behind{found.silence}"


def feed_lines(summaries: Sequence[CommitSummary]) -> list[str]:
    """Return a line for each feed, those that hold the low-watermark back first, and for how long they have."""
    if not summaries:
        return []
    last = summaries[-1]
    live = {feed: bound for feed, bound in last.low_watermarks.items() if bound not in (None, NOTHING_YET)}
    if len(last.low_watermarks) < 2:
        return []
    lines: list[str] = []
    for feed in sorted(last.low_watermarks, key=lambda each: _turn(last.low_watermarks[each], each)):
        bound = last.low_watermarks[feed]
        if bound is None:
            lines.append(f"{feed}: ended")
            continue
        if bound == NOTHING_YET:
            lines.append(f"{feed}: too few rows for a low-watermark; the others wait for it")
            continue
        held = bound == last.low_watermark and max(live.values()) != bound
        lines.append(f"{feed}: complete to {bound_text(bound)}" + (_standing_text(summaries, feed) if held else ""))
    return lines[:_MOST] + ([f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else [])


def _turn(bound: Any, feed: str) -> tuple[int, Any, str]:
    """Return a sort key: feeds that hold the others back come first, ended feeds last."""
    if bound == NOTHING_YET:
        return 0, 0, feed
    return (2, 0, feed) if bound is None else (1, bound, feed)


def _standing_text(summaries: Sequence[CommitSummary], feed: str) -> str:
    for_us = _standing_us(summaries, feed)
    since = f", for {format_duration_us(for_us)} now" if for_us else ""
    return f"; the others wait for it{since}"


def _standing_us(summaries: Sequence[CommitSummary], feed: str) -> int:
    """Return how long a feed has been at its low-watermark at the last commit."""
    last = same = summaries[-1]
    for each in reversed(summaries):
        if each.query_id != last.query_id:
            continue
        if each.low_watermarks.get(feed) != last.low_watermarks[feed]:
            break
        same = each
    return last.committed_at_us - same.committed_at_us


def laggard_among(summaries: Sequence[CommitSummary], now_us: int) -> Laggard | None:
    """Return the laggard at the last of some commits, oldest first, as far as their summaries show it.

    It serves where the journal has lost the batch's offset: silence counts from the commit that moved the low-watermark
    last.
    """
    marks = summaries[-1].low_watermarks
    live = {feed: bound for feed, bound in marks.items() if bound is not None}
    early = next((feed for feed, bound in live.items() if bound == NOTHING_YET), None)
    if early is not None:
        return Laggard(early, len(live) - 1, None, None)
    if len(live) < 2:
        return None
    micros = all(isinstance(bound, str) for bound in live.values())
    at: dict[str, Any] = {feed: complete_up_to_us(bound) if micros else bound for feed, bound in live.items()}
    last = min(at, key=lambda feed: at[feed])
    apart = max(at.values()) - at[last]
    if apart < (_APART_US if micros else 1):
        return None
    silent = _standing_us(summaries, last) + max(now_us - summaries[-1].committed_at_us, 0)
    return Laggard(last, len(live) - 1, apart, silent, micros=micros)


@dataclasses.dataclass(frozen=True)
class StageBacklog:
    """Rows or results that a stage of a plan holds until they can be released."""

    stage: str  # its name in the plan
    text: str  # for people, such as "the window holds 3,200 rows"
    since_us: int | None = None  # the oldest arrival among them; None if unknown
    needs_us: int | None = None  # the low-watermark that would release the first of them; None if something else does


@dataclasses.dataclass(frozen=True)
class OldestWait:
    """The place where the oldest answer of a commit waits, and the reason why the table is not complete any further."""

    kind: Literal["partition", "queue", "stage", "nothing"]
    name: str  # of the input partition, or of the stage
    reason: str  # such as "1,200 updates wait in the queue"
    complete: str  # the time up to which the table is complete
    age_us: int | None = None  # how long it has waited; None if unknown
    holds_back: str = ""  # the partition that completeness waits for: "waits for vehicles/2, silent for 34.0 s"

    @property
    def sentence(self) -> str:
        if not self.holds_back or self.kind == "partition":
            return f"complete to {self.complete}; {self.reason}"
        return f"complete to {self.complete}: {self.holds_back}. {self.reason[:1].upper()}{self.reason[1:]}"


def oldest_wait(
    summaries: Sequence[CommitSummary],
    offsets: Sequence[Mapping[str, Any]],
    now_us: int,
    held: Sequence[StageBacklog] | None = (),
    *,
    queue: str = "queue",
    complete: str | None = None,
) -> OldestWait:
    """Return where the oldest answer of the last of some commits (oldest first) waits.

    `offsets` are the whole ones of the commit's sources, or none if the journal has lost them. `queue` is the name of
    the stage that the commit's own figures of a queue are about. `held` is what stages hold; None if stages may hold
    rows for the low-watermark, but their reports are lost. `complete` replaces the time in the summary.

    A partition that holds the low-watermark back always delays completeness. It makes an answer stale only where a
    stage holds rows that the other partitions' low-watermark would release.
    """
    last = summaries[-1]
    laggards = [laggard for each in offsets if (laggard := laggard_of(each, now_us)) is not None]
    slow = max(laggards, key=lambda each: (each.behind is None, each.age_us or 0), default=None)
    slow = laggard_among(summaries, now_us) if slow is None and not offsets else slow
    wait = partial(
        OldestWait,
        complete=complete_to(last) if complete is None else complete,
        holds_back="" if slow is None else slow.reason,
    )
    waits: list[OldestWait] = []
    if last.pending:
        age = None if last.oldest is None else int(last.oldest * 1e6) + max(now_us - last.committed_at_us, 0)
        waits.append(wait("queue", queue, f"{last.pending:,} updates wait in the queue{_since(age)}", age_us=age))
    if held is None and slow is not None:
        waits.append(wait("partition", slow.feed, slow.reason, age_us=slow.age_us))
    for each in held or ():
        age = None if each.since_us is None else max(now_us - each.since_us, 0)
        text = each.text + _since(age)
        if each.needs_us is None:
            waits.append(wait("stage", each.stage, text, age_us=age))
        elif slow is None or (slow.ahead is not None and slow.ahead < each.needs_us):
            until = f"{text}, until the low-watermark passes {moment(each.needs_us)}"
            waits.append(wait("stage", each.stage, until, age_us=age))
        else:
            age = slow.age_us if age is None else age
            waits.append(wait("partition", slow.feed, f"{text}, and {slow.reason}", age_us=age))
    if waits:
        return max(waits, key=lambda each: each.age_us or 0)
    if has_ended(last):
        return wait("nothing", "", "all partitions have ended")
    silent_us = _silent_us(offsets, now_us)
    since = f", and no row has arrived for {format_duration_us(silent_us)}" if silent_us >= _APART_US else ""
    return wait("nothing", "", f"no update waits{since}")


def moment(bound_us: int) -> str:
    """Return a bound in microseconds as text for people."""
    return bound_text(f"{np.datetime64(bound_us, 'us')}Z")


class BatchSpan(NamedTuple):
    """A part of a batch's time."""

    name: str
    depth: int  # a part lies within the one before it with a lesser depth
    start_s: float  # since the batch began
    seconds: float
    measured: bool = True  # False for what remains between measured parts


def batch_spans(
    summary: CommitSummary | None, after: CommitSummary | None = None, spark: SparkTimes | None = None
) -> list[BatchSpan]:
    """Return the parts of a batch's time until the batch `after`, with Spark's own times once they are known."""
    following = None if after is None or after.times is None else after.times.planned_us
    if spark is not None:
        parts = _parts_of_spark(spark)
        within = next((each for each in parts if each[0] == _NAMES["addBatch"]), None)
        if within is not None and summary is not None:
            place = parts.index(within) + 1
            parts[place:place] = _parts_of_sink(summary, within[2], within[3], 2)
    elif summary is not None and summary.times is not None:
        times = summary.times
        tasks_us = round((times.rows_s + times.merge_s) * 1e6)
        begin = min(each for each in (times.planned_us, times.chosen_us, times.began_us - tasks_us) if each is not None)
        chosen = times.chosen_us if times.chosen_us is not None else begin
        end = summary.committed_at_us
        parts = [("batch", 0, begin, end, True), ("choose input", 1, begin, chosen, True)]
        parts += _parts_of_sink(summary, chosen, end, 1)
    else:
        return []
    _, _, begin, end, _ = parts[0]
    if following is not None:
        parts.append(("until the next batch", 0, end, max(following, end), False))
    return [
        BatchSpan(name, depth, (start - begin) / 1e6, (stop - start) / 1e6, measured)
        for name, depth, start, stop, measured in parts
        if stop > start
    ]


_Part = tuple[str, int, int, int, bool]
"""A span's name, depth, start and end in microseconds since the epoch, and whether it was measured."""

# In the order in which Spark takes the steps; what is not here, Spark measures within them.
_NAMES = {
    "latestOffset": "choose input (latestOffset)",
    "walCommit": "journal the offsets (walCommit)",
    "getBatch": "get the batch (getBatch)",
    "queryPlanning": "plan (queryPlanning)",
    "addBatch": "run (addBatch)",
    "commitOffsets": "note the commit (commitOffsets)",
}
_LAST = ("addBatch", "commitOffsets")


def _parts_of_spark(spark: SparkTimes) -> list[_Part]:
    """Return the steps of Spark's trigger. It measures their lengths; what they leave goes before the batch runs."""
    lengths = {each: round(spark.steps_s[each] * 1e6) for each in _NAMES if each in spark.steps_s}
    end = spark.began_us + round(spark.steps_s.get("triggerExecution", sum(spark.steps_s.values())) * 1e6)
    at, parts = spark.began_us, [("batch", 0, spark.began_us, end, True)]
    last = max(end - sum(lengths.get(each, 0) for each in _LAST), at)
    for name, length in lengths.items():
        if name in _LAST and at < last:
            parts.append(("Spark, between its steps", 1, at, last, False))
            at = last
        until = min(at + length, end)
        parts.append((_NAMES[name], 1, at, until, True))
        at = until
    return parts


def _parts_of_sink(summary: CommitSummary, begin: int, end: int, depth: int) -> list[_Part]:
    """Return the sink's parts of a stretch of time, at its end."""
    times = summary.times
    if times is None:
        return []
    committed = min(max(summary.committed_at_us, begin), end)
    began = min(max(times.began_us, begin), committed)
    ran = max(began - round((times.rows_s + times.merge_s) * 1e6), begin)
    merged = max(began - round(times.merge_s * 1e6), ran)
    return [
        ("Spark, and stages before the sink", depth, begin, ran, False),
        ("slowest task of the sink", depth, ran, began, True),
        ("wait for rows", depth + 1, ran, merged, True),
        ("merge and write", depth + 1, merged, began, True),
        ("commit", depth, began, committed, True),
    ]


def _since(age_us: int | None) -> str:
    return "" if age_us is None else f", the oldest for {format_duration_us(age_us)}"


def _silent_us(offsets: Sequence[Mapping[str, Any]], now_us: int) -> int:
    """Return how long no live partition has been heard; 0 if that is unknown."""
    heard = [
        at
        for offset in offsets
        for feed, at in offset.get("heard", {}).items()
        if feed not in set(offset.get("ended", ()))
    ]
    return max(now_us - max(heard, default=now_us), 0)
