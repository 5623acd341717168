"""How stale a table's answers are now: from its commits, and from the journaled batch that it does not show yet."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...conf.errors import OptionError
from ...conf.units import StalenessTarget, format_duration_us
from ...core.feedback.ages import Staleness
from ...core.feedback.offsets import journaled_at_us, offsets_in
from ...storage.folder import TableFolder
from .summary import CommitSummary

# A commit's figure describes the present for as long as it is great itself, and this: rows so old may be unread yet.
_RECENT_US = 10_000_000
HANGS_US = 600_000_000
"""A batch that has no commit after this time is late, whatever the target is."""
_NOTHING_WAITS = Staleness(0.0, 0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class JournaledBatch:
    """The last batch that Spark has journaled below a checkpoint."""

    number: int
    planned_us: int  # when Spark had its input: all of it had arrived by then
    is_done: bool  # whether Spark has noted its end
    arrivals: tuple[tuple[int, int], ...] = ()  # of its rows: when they arrived, and how many rows at most
    is_exact: bool = True  # whether all of its rows are in `arrivals`

    @classmethod
    def read(cls, checkpoint: TableFolder) -> JournaledBatch | None:
        """Return the last batch; None before the first, or if the journal cannot be read now."""
        try:
            number = max((int(name) for name in checkpoint.names("offsets") if name.isdigit()), default=None)
            if number is None:
                return None
            is_done = checkpoint.has(f"commits/{number}")
            noted = checkpoint.read(f"offsets/{number}")
        except (OSError, ValueError):  # the checkpoint is being removed
            return None
        before = b""
        with contextlib.suppress(FileNotFoundError):
            before = checkpoint.read(f"offsets/{number - 1}")
        found = cls.of(number, noted, before, is_done=is_done)
        return found if found.planned_us else None

    @classmethod
    def of(cls, number: int, noted: bytes, before: bytes, *, is_done: bool) -> JournaledBatch:
        """Return a batch from Spark's file of its offsets, and that of the batch before it."""
        # A source without new input has the line of the batch before, with that batch's ranges.
        known = set(before.splitlines())
        lines = noted.splitlines()
        fresh = b"\n".join([*lines[:2], *(each for each in lines[2:] if each not in known)])
        rows: list[tuple[int, int]] = []
        is_exact, planned_us = True, journaled_at_us(noted) or 0
        for offset in offsets_in(fresh):
            if not isinstance(offset, dict) or "ranges" not in offset:
                # The sources of ticks and commands have no rows.
                is_exact = is_exact and isinstance(offset, dict) and "tick" in offset
                continue
            planned_us = max(planned_us, int(offset.get("now_us", 0)))
            for part in offset["ranges"]:
                arrived = _arrivals(part)
                rows += arrived
                is_exact = is_exact and (bool(arrived) or not part["span"])
        together: dict[int, int] = {}
        for at_us, count in rows:
            together[at_us] = together.get(at_us, 0) + count
        return cls(number, planned_us, is_done, tuple(sorted(together.items())), is_exact)

    @property
    def is_empty(self) -> bool:
        """Return whether it is known to have read no row."""
        return self.is_exact and not self.arrivals

    @property
    def first_us(self) -> int:
        """The arrival of its first row; if that is unknown, the time by which it had arrived."""
        return min(self.arrivals[0][0], self.planned_us) if self.arrivals else self.planned_us

    def delay_text(self, now_us: int) -> str:
        """Return since when it has no commit, for people."""
        delay = f"batch {self.number} has no commit after {format_duration_us(max(now_us - self.planned_us, 0))}"
        if self.is_empty:
            return delay
        age = format_duration_us(max(now_us - self.first_us, 0))
        return f"{delay}, and its first row has waited for {'at least ' * (not self.is_exact)}{age}"

    def figures(self, now_us: int) -> Staleness:
        """Return the least staleness that its rows can have at their commit, if that is not before `now_us`."""
        arrivals = self.arrivals or ((self.planned_us, 1),)
        at, count = np.array(arrivals, dtype=np.int64).T
        age_s, rows = np.maximum(now_us - at[::-1], 0) / 1e6, np.cumsum(count[::-1])
        p50, p99 = (float(age_s[np.searchsorted(rows, np.ceil(rows[-1] * share))]) for share in (0.5, 0.99))
        return Staleness(float(np.average(age_s, weights=count[::-1])), p50, p99, float(age_s[-1]))


def _arrivals(part: dict[str, Any]) -> list[tuple[int, int]]:
    """Return when the rows of a range arrived, and how many did at most; nothing if only its rows show that."""
    if not part["span"]:
        return []
    if part["arrival_us"] is not None:
        return [(int(part["arrival_us"]), int(part["span"]))]
    low, found = part["place"].get("from"), list[tuple[int, int]]()
    for end, at_us in part["place"].get("arrivals", ()):
        found.append((int(at_us), max(int(end) - int(low), 1)))
        low = end
    return found


@dataclasses.dataclass(frozen=True)
class Freshness:
    """How stale a table's answers are at one moment."""

    now_us: int
    since_commit_us: int
    since_change_us: int  # since the last commit that applied a row
    at_commit: Staleness | None  # of the rows that this commit applied
    now: Staleness | None  # None if it is unknown
    is_past: bool  # whether the last commit's figures say nothing about now
    is_idle: bool  # whether all rows that the query has read are answered, and have been for some time: `now` is 0
    at_least: bool  # whether rows of the unanswered batch may be older than `now`
    unanswered: JournaledBatch | None  # the batch that a query has read, and the table does not show
    target: str | None
    target_met: bool | None

    @property
    def batch_us(self) -> int | None:
        """The time since the plan of the unanswered batch."""
        return None if self.unanswered is None else max(self.now_us - self.unanswered.planned_us, 0)

    @property
    def waiting_us(self) -> int | None:
        """The age of the first row of the unanswered batch; None if no row of one waits."""
        batch = self.unanswered
        return None if batch is None or batch.is_empty else max(self.now_us - batch.first_us, 0)

    @property
    def hangs(self) -> bool:
        """Whether a batch has had no commit for ten minutes."""
        return (self.batch_us or 0) > HANGS_US

    @property
    def batch_text(self) -> str:
        """The unanswered batch, for people; nothing unless it takes longer than the rows of the last commit waited."""
        if self.unanswered is None or _is_recent(self.at_commit, self.batch_us or 0):
            return ""
        return self.unanswered.delay_text(self.now_us)

    @property
    def stale_text(self) -> str:
        """How stale the answers are, for people."""
        ago = format_duration_us(self.since_commit_us)
        if self.is_idle:
            return f"all rows that were read are answered; the last commit was {ago} ago"
        if self.now is not None:
            return f"{'at least ' * self.at_least}{format_duration_us(self.now.mean * 1e6)} stale on average"
        if self.at_commit is not None:
            ago = format_duration_us(self.since_change_us)
            return f"{format_duration_us(self.at_commit.mean * 1e6)} stale on average at the last change, {ago} ago"
        return f"the last commit was {ago} ago"

    @property
    def target_text(self) -> str:
        """The verdict on the target, for people; nothing without one."""
        if self.target is None or self.target_met is None:
            return ""
        return (
            f"the target {self.target} {'was' if self.now is None else 'is'} {'met' if self.target_met else 'missed'}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the figures of now, for programs."""
        batch, batch_us, waiting_us = self.unanswered, self.batch_us, self.waiting_us
        return {
            "staleness_now": None if self.now is None else vars(self.now),
            "at_least": self.at_least,
            "idle": self.is_idle,
            "past": self.is_past,
            "target_met": self.target_met,
            "uncommitted_batch": None if batch is None else batch.number,
            "uncommitted_batch_s": None if batch_us is None else batch_us / 1e6,
            "waiting_s": None if waiting_us is None else waiting_us / 1e6,
        }


class PresentStaleness(NamedTuple):
    """The staleness of a table's answers now."""

    now: Staleness | None  # None if it is unknown
    is_recent: bool  # whether the last commit's figures still describe the present
    is_idle: bool  # whether all rows that were read are answered, and have been for some time


def staleness_now(
    at_commit: Staleness | None,
    since_us: int,
    waits: Staleness | None,
    *,
    is_written: bool,
    is_known: bool = True,
    holds: bool = False,
) -> PresentStaleness:
    """Return the staleness now, from that of the last commit, `since_us` ago, and that of the rows that wait.

    `is_written` is whether a process writes the table; without one, only rows that were read have an age. `is_known`
    is whether `waits` has all of them, and `holds` whether a queue has some.
    """
    is_recent = is_written and _is_recent(at_commit, since_us)
    if is_written and is_known and waits is None and not is_recent and not holds:
        return PresentStaleness(_NOTHING_WAITS, is_recent, is_idle=True)
    return PresentStaleness(_greater(at_commit if is_recent or holds else None, waits), is_recent, is_idle=False)


def freshness(
    commits: Sequence[CommitSummary], journal: JournaledBatch | None, now_us: int, *, is_written: bool = True
) -> Freshness | None:
    """Return how fresh a table is, given the latest commits (oldest first); None without a commit.

    A figure is the last commit's, while that is recent, or a greater one of the batch that the table lacks. `journal`
    is the last batch of the query that writes the table, or of its job; None if it is unknown. `is_written` is whether
    a process holds the lease: without one, only rows that were read have an age.
    """
    if not commits:
        return None
    last = commits[-1]
    since_us = max(now_us - last.committed_at_us, 0)
    change = next((each for each in reversed(commits) if each.staleness is not None), last)
    changed_us = max(now_us - change.committed_at_us, 0)
    unanswered = None if journal is None or journal.is_done or journal.number <= last.batch_id else journal
    if unanswered is not None and unanswered.is_empty and not is_written:
        unanswered = None
    waits = None if unanswered is None else unanswered.figures(now_us)
    holds = is_written and bool(last.pending)
    if is_written or waits is not None:
        waits = _greater(waits, _in_queue(last, since_us))
    present = staleness_now(
        change.staleness, changed_us, waits, is_written=is_written, is_known=journal is not None, holds=holds
    )
    counts = present.is_recent or holds
    target = None if last.target is None else _target(last.target)
    verdict = next((each.target_met for each in reversed(commits) if each.target_met is not None), None)
    met: bool | None = None
    if target is not None:
        verdicts = [True] if present.is_idle else []
        if waits is not None and (unanswered is not None or not target.met(waits)):
            verdicts.append(target.met(waits))
        verdicts += [verdict] if verdict is not None and (counts or not verdicts) else []
        met = all(verdicts) if verdicts else None
    return Freshness(
        now_us=now_us,
        since_commit_us=since_us,
        since_change_us=changed_us,
        at_commit=change.staleness,
        now=present.now,
        is_past=not present.is_recent,
        is_idle=present.is_idle,
        at_least=unanswered is not None and not unanswered.is_exact,
        unanswered=unanswered,
        target=last.target,
        target_met=met,
    )


def _in_queue(last: CommitSummary, since_us: int) -> Staleness | None:
    """Return the staleness that the queue's oldest update gives its key; of the others, only the number is known."""
    return Staleness(0.0, 0.0, 0.0, last.oldest + since_us / 1e6) if last.pending and last.oldest is not None else None


def _is_recent(at_commit: Staleness | None, since_commit_us: int) -> bool:
    return since_commit_us <= (0.0 if at_commit is None else at_commit.max) * 1e6 + _RECENT_US


def _greater(one: Staleness | None, other: Staleness | None) -> Staleness | None:
    if one is None or other is None:
        return one or other
    return Staleness(*(max(getattr(one, name), getattr(other, name)) for name in ("mean", "p50", "p99", "max")))


@functools.lru_cache(64)
def _target(text: str) -> StalenessTarget | None:
    """Return a recorded target; None for one that this version cannot read."""
    with contextlib.suppress(OptionError):
        return StalenessTarget.parse(text)
    return None
