"""The live line of a run from commit summaries, and texts on the feeds that hold the low-watermark back."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from ..conf.units import format_duration_us
from ..core.feedback.offsets import resume_point
from ..core.watermark.bounds import AFTER_ALL, BEFORE_ALL
from ..delta_format.latest_table import NOTHING_YET
from ..sink.figures.summary import CommitSummary
from ..storage.folder import TableFolder

_WINDOW_S = 5.0


class LiveLine:
    """A line that sums up the commits of one run; `started_s` is the clock at its start."""

    def __init__(self, started_s: float) -> None:
        self._before_s = started_s
        self._recent: collections.deque[tuple[float, int]] = collections.deque()
        self.last: CommitSummary | None = None
        self.batches = 0
        self.rows = 0
        self.superseded = 0
        self.applied = 0
        self.conflicts = 0
        self.judged = 0
        self.met = 0
        self.first_commit_s: float | None = None
        self.waits_for = ""

    def add(self, summary: CommitSummary, now_s: float) -> None:
        """Add the summary of a commit that was seen at `now_s`."""
        self.last = summary
        self.batches += 1
        self.rows += summary.updates
        self.superseded += summary.superseded
        self.applied += summary.applied
        self.conflicts += summary.conflicts
        self.judged += summary.target_met is not None
        self.met += summary.target_met is True
        if self.first_commit_s is None:
            self.first_commit_s = now_s
        self._recent.append((now_s, summary.updates))

    def rows_per_second(self, now_s: float) -> float:
        """Return the input rows per second of the commits of the last five seconds.

        The span begins at the commit before them, or at the start.
        """
        while self._recent and self._recent[0][0] < now_s - _WINDOW_S:
            self._before_s = self._recent.popleft()[0]
        return sum(rows for _, rows in self._recent) / max(now_s - self._before_s, 1e-3)

    def text(self, now_s: float, batch_s: float | None) -> str:
        """Return the line; `batch_s` is the last batch's time from planning to commit."""
        if self.last is None:
            return "waiting for the first rows"
        parts = [f"{short_count(self.rows_per_second(now_s))} rows/s in"]
        if self.last.keys is not None:
            parts.append(f"{short_count(self.last.keys)} keys")
        parts.append(f"{short_count(self.superseded)} superseded")
        if self.conflicts:
            parts.append(self._conflicting(short_count(self.conflicts)))
        parts += how_rows_came(self.last)
        if self.last.staleness is not None:
            p50, p99 = self.last.staleness.p50, self.last.staleness.p99
            parts.append(f"staleness p50 {format_duration_us(p50 * 1e6)}, p99 {format_duration_us(p99 * 1e6)}")
        if self.last.pending is not None:
            oldest = "" if self.last.oldest is None else f", the oldest {format_duration_us(self.last.oldest * 1e6)}"
            parts.append(f"{short_count(self.last.pending)} waiting{oldest}")
        if self.judged:
            needs = self.last.needed_rows_per_s
            more = "" if needs is None else f" (needs {short_count(needs)} rows/s)"
            parts.append(self._kept() + more)
        parts.append(f"complete to {complete_to(self.last)}")
        if self.waits_for:
            parts.append(self.waits_for)
        if batch_s is not None:
            parts.append(f"batch {format_duration_us(batch_s * 1e6)}")
        return " · ".join(parts)

    def farewell(self) -> str:
        """Return a summary of the run, in one sentence."""
        if self.last is None:
            return "No new rows."
        keys = "" if self.last.keys is None else f"; the table has {self.last.keys:,} keys"
        kept = f"; {self._kept()} of batches" if self.judged else ""
        conflicts = f", {self._conflicting(f'{self.conflicts:,}')}" if self.conflicts else ""
        return (
            f"{self.rows:,} rows in {self.batches:,} {'batch' if self.batches == 1 else 'batches'}, "
            f"{self.applied:,} applied, {self.superseded:,} superseded{conflicts}{keys}, complete to "
            f"{complete_to(self.last)}{kept}." + self._counted()
        )

    def _counted(self) -> str:
        counts = None if self.last is None else self.last.sources
        if counts is None:
            return ""
        idle = f" ({counts.late_idle:,} of feeds that counted as idle)" if counts.late_idle else ""
        return (
            f" Since the checkpoint began: {counts.received:,} rows received, {counts.late:,} late{idle}, "
            f"{counts.suspects:,} suspect."
        )

    def _conflicting(self, many: str) -> str:
        return f"{many} {'conflict' if self.conflicts == 1 else 'conflicts'}"

    def _kept(self) -> str:
        # Never 100 % unless it is all of them.
        share = 100 * self.met // self.judged
        return f"{self.last.target if self.last else ''} met in {share} %"


def how_rows_came(summary: CommitSummary) -> list[str]:
    """Return the counts of late and of suspect rows, if above 0."""
    counts = summary.sources
    if counts is None:
        return []
    unusual = ((counts.late, "late"), (counts.suspects, "suspect"))
    return [f"{short_count(many)} {what}" for many, what in unusual if many]


def complete_to(summary: CommitSummary) -> str:
    """Return the time up to which the table is complete, as text for people."""
    if summary.low_watermark is not None:
        return bound_text(summary.low_watermark)
    return "the end" if has_ended(summary) else "no known time"


def has_ended(summary: CommitSummary) -> bool:
    """Return whether all feeds in the commit's summary have ended."""
    return bool(summary.low_watermarks) and all(bound is None for bound in summary.low_watermarks.values())


@dataclasses.dataclass
class TimeEstimate:
    """An estimate of the finished share of a backlog, and of the time that the rest takes.

    The source reports what is left (in bytes or rows), the sink how many rows it has taken. Two reports relate the two.
    """

    _first: tuple[float, int, float] | None = None
    _last: tuple[float, int, float] | None = None

    def report(self, left: float, rows_done: int, now_s: float) -> None:
        """Add a report of the backlog left and the rows done at `now_s`."""
        seen = (left, rows_done, now_s)
        if self._first is None:
            self._first = seen
        elif self._last is None or seen[:2] != self._last[:2]:
            self._last = seen

    def fraction(self) -> float | None:
        """Return the finished share, from 0 to 1, or None before an estimate is possible."""
        if self._first is None or self._last is None:
            return None
        left, rows, _ = self._last
        taken, rows_taken = self._first[0] - left, rows - self._first[1]
        if taken <= 0 or rows_taken <= 0:
            return None
        done = taken / rows_taken * rows
        return done / (done + left)

    def seconds(self, now_s: float) -> float | None:
        """Return the seconds until the rest is done, at the pace so far."""
        if self._first is None or self._last is None:
            return None
        taken, took = self._first[0] - self._last[0], self._last[2] - self._first[2]
        if taken <= 0 or took <= 0:
            return None
        return max(0.0, self._last[0] / taken * took - (now_s - self._last[2]))


def resume_text(checkpoint: TableFolder) -> str:
    """Return where the query of a checkpoint resumes, in a sentence; nothing if it has not begun."""
    with checkpoint.guarded():
        found = resume_point(checkpoint)
    if found is None:
        return ""
    if found.batch is None:
        return "Resuming: the first batch was interrupted, and repeats."
    at = dt.datetime.fromtimestamp(found.committed_us / 1e6, dt.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    rows = "" if found.rows is None else f", {found.rows:,} rows into the input"
    repeated = f" Batch {found.batch + 1} was interrupted, and repeats." if found.interrupted else ""
    return f"Resuming after batch {found.batch} of {at}{rows}.{repeated}"


def short_count(number: float) -> str:
    """Return a short form of a number: 1,234 as ``1,234``, 1,234,567 as ``1.23 M``."""
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number:,.0f}"


def bound_text(value: Any) -> str:
    """Return a bound as ISO text to the millisecond, rounded down without trailing zeros; a number is unchanged."""
    if not isinstance(value, str):
        return str(value)
    body, dot, fraction = value.replace("T", " ", 1).removesuffix("Z").partition(".")
    return (body + (dot + fraction[:3]).rstrip("0").rstrip(".")) + (" UTC" if value.endswith("Z") else "")


# Smaller differences are not shown: feeds are never at quite the same point.
_APART_US = 1_000_000
_MOST = 20


def waits_for(offset: Mapping[str, Any], now_us: int) -> str:
    """Return the feed that holds the others back, from the source's offset in Spark's progress report.

    The text is empty for a single feed, and for feeds that are close together.
    """
    progress: Mapping[str, Any] = offset.get("progress", {})
    ended = set(offset.get("ended", ()))
    bounds = {
        feed: state["bound"]
        for feed, state in progress.items()
        if feed not in ended and state["bound"] not in (None, AFTER_ALL)
    }
    for feed, bound in bounds.items():
        if bound == BEFORE_ALL:
            many = progress[feed].get("received", 0)
            return f"the others wait for {_short(feed)}: its {many} rows are too few for a low-watermark"
    if len(bounds) < 2:
        return ""
    last = min(bounds, key=lambda feed: bounds[feed])
    apart = max(bounds.values()) - bounds[last]
    if apart < _APART_US:
        return ""
    heard = offset.get("heard", {}).get(last)
    silent = "" if heard is None else f", silent for {format_duration_us(max(now_us - heard, 0))}"
    others = f"{len(bounds) - 1} feeds wait" if len(bounds) > 2 else "1 feed waits"
    return f"{others} for {_short(last)}, {format_duration_us(apart)} behind{silent}"


def feed_lines(summaries: Sequence[CommitSummary]) -> list[str]:
    """Return a line for each feed of the last commit, those that hold the low-watermark back first.

    Such a line includes how long the feed has been at its low-watermark, as far as the summaries (oldest first) go
    back.
    """
    if not summaries:
        return []
    last = summaries[-1]
    mine = [each for each in summaries if each.query_id == last.query_id]
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
        lines.append(f"{feed}: complete to {bound_text(bound)}" + (_standing(mine, feed) if held else ""))
    return lines[:_MOST] + ([f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else [])


def _turn(bound: Any, feed: str) -> tuple[int, Any, str]:
    """Return a sort key: feeds that hold the others back come first, ended feeds last."""
    if bound == NOTHING_YET:
        return 0, 0, feed
    return (2, 0, feed) if bound is None else (1, bound, feed)


def _standing(summaries: Sequence[CommitSummary], feed: str) -> str:
    last = summaries[-1]
    same = last
    for each in reversed(summaries):
        if each.low_watermarks.get(feed) != last.low_watermarks[feed]:
            break
        same = each
    for_us = last.committed_at_us - same.committed_at_us
    since = f", for {format_duration_us(for_us)} now" if for_us else ""
    return f"; the others wait for it{since}"


def _short(feed: str) -> str:
    """Return the last part of a path, which distinguishes feeds in a line."""
    return feed.rstrip("/").rpartition("/")[2] or feed
