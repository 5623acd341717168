"""The commit of one batch to one or many tables, to each exactly once, and their maintenance after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from ...conf.errors import UpstreamError
from ...storage.folder import TableFolder
from ..spec import steps
from ..spec.steps import CommitStep
from .commit import BatchCommit, CommitTable
from .last_commit import LastCommit, read_last_commits, write_last_commits

if TYPE_CHECKING:
    from ..figures.summary import CommitSummary
    from ..merge.task import TaskResult


_T = TypeVar("_T")
Tables = Mapping[str, tuple[CommitTable, Sequence["TaskResult"]]]
"""By name, each with the results of the batch's tasks."""

_BUDGET_S = 1.0


class BatchCommitter:
    """The commits of a writer's batches, one for each table, and the checkpoint's memory of them.

    Without a checkpoint, as for a batch of no query, nothing is remembered.
    """

    def __init__(self, checkpoint: TableFolder | None, clock_us: Callable[[], int]) -> None:
        self._checkpoint = checkpoint
        self._clock_us = clock_us
        self._last: Mapping[str, LastCommit] | None = None

    def last(self) -> Mapping[str, LastCommit]:
        """Return the last commit to each table that the checkpoint remembers, by name."""
        if self._last is None:
            self._last = {} if self._checkpoint is None else read_last_commits(self._checkpoint)
        return self._last

    def commit(
        self, tables: Tables, batch_id: int, offsets: str | None, *, names: Iterable[str] = (), threads: int = 1
    ) -> dict[str, CommitSummary]:
        """Make a batch visible in its tables, once in each; return the summaries of the commits made.

        `offsets` is a digest of the batch's offsets, and `names` are those of further tables that are in use. If
        some tables fail, the others are committed, and a repeat of the batch commits the rest.
        """
        before = self.last()
        in_use = {*tables, *names}
        now = {name: last for name, last in before.items() if name in in_use}

        def commit_to(name: str) -> CommitSummary | None:
            table, results = tables[name]
            with table.target.folder.guarded():
                summary, last = BatchCommit(table, self._clock_us).commit(results, batch_id, offsets, before.get(name))
            if last is not None:
                now[name] = last
            return summary

        made, failed = for_each(commit_to, tables, threads)
        if now != before and self._checkpoint is not None:
            write_last_commits(self._checkpoint, now)
            self._last = now
        steps.reached(CommitStep.REMEMBERED)
        summaries = {name: summary for name, summary in made.items() if summary is not None}
        maintain_some([tables[name][0] for name in summaries], self._clock_us)
        steps.reached(CommitStep.MAINTAINED)
        if failed:
            raise together(failed)
        return summaries

    def discard(self, tables: Tables, threads: int = 1) -> None:
        """Remove the staged files of a batch that is not committed; files that cannot be removed stay."""

        def discard_of(name: str) -> None:
            table, results = tables[name]
            BatchCommit(table, self._clock_us).discard(results)

        for_each(discard_of, tables, threads)


def maintain_some(
    tables: Iterable[CommitTable], clock_us: Callable[[], int], seconds: Callable[[], float] = time.monotonic
) -> list[str]:
    """Maintain the tables that are due, the most overdue first, as far as the time allows; return their names.

    It never raises: the batch is committed, and failed steps are tried again.
    """
    due = [(overdue, table) for table in tables if (overdue := table.overdue()) >= 0]
    late = seconds() + _BUDGET_S
    done: list[str] = []
    for _, table in sorted(due, key=lambda each: -each[0]):
        if done and seconds() > late:
            break
        table.maintain(clock_us)
        done.append(table.name)
    return done


def for_each(
    work: Callable[[str], _T], names: Iterable[str], threads: int
) -> tuple[dict[str, _T], dict[str, UpstreamError]]:
    """Do the work for each name; return the results and the errors by name."""
    chosen = list(names)
    done: dict[str, _T] = {}
    failed: dict[str, UpstreamError] = {}

    def one(name: str) -> None:
        try:
            done[name] = work(name)
        except UpstreamError as error:
            failed[name] = error

    if threads == 1 or len(chosen) < 2:
        for name in chosen:
            one(name)
    else:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(one, chosen):
                pass
    return done, failed


def together(failed: Mapping[str, UpstreamError]) -> UpstreamError:
    """Return one error for those of several tables."""
    (name, first), *others = sorted(failed.items())
    if not others:
        return first
    return type(first)(
        f"{len(failed)} tables could not be committed: {', '.join(sorted(failed))}; that of {name}: {first.problem}",
        expected=first.expected,
        hint=first.hint,
    )
