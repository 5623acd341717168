"""What the tasks of a batch have left for the driver, by query."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from .leaving import Leaving

__all__ = ["Began", "Outcome", "outcome_of"]


class Began(NamedTuple):
    """The beginning of a query.

    Attributes
    ----------
    whole_from : int or None
        The time in µs from which its results lack nothing; None if that is never certain.
    """

    whole_from: int | None


@dataclasses.dataclass
class Outcome:
    """What a batch has made of the queries; each mapping goes by the incarnation.

    Attributes
    ----------
    staged : dict
        What the commit of each table needs, of the tasks that had rows.
    rows : dict
        How many rows and tombstones a table takes.
    failed : dict
        The names of queries that failed, and why.
    began : dict
        Queries of which this is the first batch.
    late : dict
        Rows that came below the low-watermark of a query.
    waiting : dict
        Queries with results that this batch did not put out: when the oldest row behind them came, in microseconds.
    took_s : dict
        The seconds in which tasks merged the rows of a table.
    """

    staged: dict[int, list[bytes]] = dataclasses.field(default_factory=dict[int, list[bytes]])
    rows: dict[int, int] = dataclasses.field(default_factory=dict[int, int])
    failed: dict[int, tuple[str, str]] = dataclasses.field(default_factory=dict[int, tuple[str, str]])
    began: dict[int, Began] = dataclasses.field(default_factory=dict[int, Began])
    late: dict[int, int] = dataclasses.field(default_factory=dict[int, int])
    waiting: dict[int, int] = dataclasses.field(default_factory=dict[int, int])
    took_s: dict[int, float] = dataclasses.field(default_factory=dict[int, float])

    def fail(self, number: int, name: str, reason: str) -> None:
        """Fail a query; of several reasons the first in the order of texts counts, whatever came first."""
        known = self.failed.get(number, (name, reason))
        self.failed[number] = name, min(known[1], reason)


def outcome_of(left: Iterable[tuple[str, bytes | None]]) -> Outcome:
    """Return what a batch has made of the queries.

    Parameters
    ----------
    left
        Controls, and what was staged: the rows that :class:`~.merging.MergeStep` gives, in any order.
    """
    outcome = Outcome()
    for control, staged in left:
        leaving = Leaving.of(control)
        match leaving.kind:
            case "rows":
                if staged is not None:
                    outcome.staged.setdefault(leaving.query, []).append(bytes(staged))
                outcome.rows[leaving.query] = outcome.rows.get(leaving.query, 0) + leaving.count
                outcome.took_s[leaving.query] = outcome.took_s.get(leaving.query, 0.0) + leaving.took_s
            case "failed":
                outcome.fail(leaving.query, leaving.name, leaving.reason)
            case "begun":
                known = outcome.began.get(leaving.query, Began(leaving.whole_from)).whole_from
                since = leaving.whole_from
                outcome.began[leaving.query] = Began(None if known is None or since is None else max(known, since))
            case "late":
                for number in leaving.queries:
                    outcome.late[number] = outcome.late.get(number, 0) + leaving.count
            case "waiting":
                for number, since in zip(leaving.queries, leaving.since, strict=True):
                    outcome.waiting[number] = min(since, outcome.waiting.get(number, since))
            case kind:
                raise ValueError(f"a row of the kind {kind!r} left the second stage")
    return outcome
