"""The state of a table at one moment: who writes it, and how stale its answers are now."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ..conf.units import format_duration_us
from ..hosting.host_lease import writer_lease
from ..sink.figures.freshness import Freshness, JournaledBatch, freshness
from ..storage.folder import TableFolder

if TYPE_CHECKING:
    from ..sink.figures.summary import CommitSummary
    from ..storage.lease import Lease
    from .watch import WatchedTable

__all__ = ["State", "TableCondition", "arrivals_by_service", "table_condition"]

State = Literal["empty", "running", "late", "overloaded", "failed", "ended", "unreadable"]

# Closer input partitions do not count as late, nor is a query overloaded whose rows come a little faster for a moment.
APART_US = 10_000_000
_OVERLOADED = 1.1
_RECENT_US = 60_000_000


@dataclasses.dataclass(frozen=True)
class TableCondition:
    """The state of a table, and what it follows from."""

    state: State
    freshness: Freshness | None  # None without a commit
    lease: Lease | None  # the newest, even if it has ended
    now_us: int
    arrives: float = 0.0  # how many times as many updates arrive at the queue as leave it; 0 without a queue

    @property
    def writer(self) -> str | None:
        """The holder of the lease, while it holds."""
        return None if self.lease is None or self.lease.has_ended(self.now_us) else self.lease.holder

    @property
    def loss(self) -> str:
        """How the process was lost that wrote a failed table."""
        return "" if self.lease is None else process_loss(self.lease, self.now_us)


def process_loss(lease: Lease, now_us: int) -> str:
    """Return how the process was lost whose lease has ended: only a process of this machine is known to be gone."""
    process = lease.process
    if process.is_gone():
        return f"process {process.pid} has ended"
    silent = format_duration_us(max(now_us - lease.renewed_us, 0))
    return f"process {process.pid} on {process.host} has not renewed its lease for {silent}"


def table_condition(
    table: WatchedTable, now_us: int, *, behind_us: int = 0, journals: dict[str, JournaledBatch | None] | None = None
) -> TableCondition:
    """Return the state of a table from its latest commits, its leases, and its query's journal.

    `behind_us` is how far an input partition is behind the others. `journals` remembers, for the time of one request,
    the last batch below each checkpoint: a job may write a thousand tables.
    """
    commits = [summary for _, summary in table.commits]
    lease = writer_lease(table.folder, table.checkpoint)
    is_written = lease is not None and not lease.has_ended(now_us)
    fresh = freshness(commits, journal_of(table, journals), now_us, is_written=is_written)
    if fresh is None:
        return TableCondition("unreadable" if table.error else "empty", None, lease, now_us)
    last = commits[-1]
    arrives = arrivals_by_service(recent_commits(commits))
    state: State = (
        "unreadable"
        if table.error
        else "failed"
        if lease is not None and not lease.released and not is_written
        else "ended"
        if not is_written
        else "overloaded"
        if last.pending and arrives >= _OVERLOADED
        else "late"
        if fresh.target_met is False or fresh.hangs or behind_us >= APART_US
        else "running"
    )
    return TableCondition(state, fresh, lease, now_us, arrives)


def journal_of(table: WatchedTable, journals: dict[str, JournaledBatch | None] | None = None) -> JournaledBatch | None:
    """Return the last batch of the query that writes a table, or of its job; None if its checkpoint is not found."""
    place = table.checkpoint
    if place is None:
        return None
    known: dict[str, JournaledBatch | None] = {} if journals is None else journals
    if place not in known:
        known[place] = JournaledBatch.read(TableFolder(place, table.storage))
    return known[place]


def recent_commits(commits: Sequence[CommitSummary]) -> list[CommitSummary]:
    """Return the last query's commits of the last minute, oldest first."""
    last = commits[-1]
    return [
        each
        for each in commits
        if each.query_id == last.query_id and each.committed_at_us >= last.committed_at_us - _RECENT_US
    ]


def arrivals_by_service(recent: Sequence[CommitSummary]) -> float:
    """Return how many times as many updates arrive at the queue as leave it; 0 without a queue."""
    queues = [each.queue for each in recent if each.queue is not None]
    applied = sum(each.applied for each in queues)
    return sum(each.arrived for each in queues) / applied if applied else 0.0


def sentence(text: str) -> str:
    """Return a text with a capital and a full stop."""
    return text[:1].upper() + text[1:] + "."


def unreadable_text(table: WatchedTable) -> str:
    """Return why a table cannot be read now, for people; empty if it can."""
    return table.error and sentence(f"the table cannot be read now: {table.error.rstrip('.')}")
