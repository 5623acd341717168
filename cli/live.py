"""The live line of a run from commit summaries, and estimates of what is left."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt

from ..conf.units import format_duration_us
from ..core.feedback.offsets import SourceCounts, resume_point
from ..sink.figures.freshness import JournaledBatch
from ..sink.figures.summary import CommitSummary
from ..sink.figures.waits import complete_to
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
        self.delay = ""  # of :func:`delay_text`

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
            return self.delay or "waiting for the first rows"
        parts = [f"{short_count(self.rows_per_second(now_s))} rows/s in"]
        if self.last.keys is not None:
            parts.append(f"{short_count(self.last.keys)} keys")
        parts.append(f"{short_count(self.superseded)} superseded")
        if self.conflicts:
            parts.append(self._conflicting(short_count(self.conflicts)))
        parts += how_rows_came(self.last.sources)
        if self.last.staleness is not None:
            p50, p99 = self.last.staleness.p50, self.last.staleness.p99
            then = " at the last commit" if self.delay else ""
            parts.append(f"staleness{then} p50 {format_duration_us(p50 * 1e6)}, p99 {format_duration_us(p99 * 1e6)}")
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
        if self.delay:
            parts.append(self.delay)
        elif batch_s is not None:
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


def how_rows_came(counts: SourceCounts | None) -> list[str]:
    """Return the counts of late and of suspect rows, if above 0."""
    if counts is None:
        return []
    unusual = ((counts.late, "late"), (counts.suspects, "suspect"))
    return [f"{short_count(many)} {what}" for many, what in unusual if many]


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


_SOON_US = 10_000_000


def delay_text(checkpoint: TableFolder, now_us: int) -> str:
    """Return the batch that has had no commit for ten seconds, for people; nothing if there is none."""
    batch = JournaledBatch.read(checkpoint)
    if batch is None or batch.is_done or now_us - batch.planned_us < _SOON_US:
        return ""
    return batch.delay_text(now_us)


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
