"""The outcome of a batch by query, from the output of its tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from .leaving import Leaving

__all__ = ["Began", "Outcome", "outcome_of"]


class Began(NamedTuple):
    """The beginning of a query."""

    whole_from: int | None  # event time in µs from which results are complete; None if never certain


@dataclasses.dataclass
class Outcome:
    """The outcome of a batch. All mappings are by incarnation."""

    # Input of each table's commit, from the tasks that had rows
    staged: dict[int, list[bytes]] = dataclasses.field(default_factory=dict[int, list[bytes]])
    # Number of rows and tombstones for a table
    rows: dict[int, int] = dataclasses.field(default_factory=dict[int, int])
    # Names and reasons
    failed: dict[int, tuple[str, str]] = dataclasses.field(default_factory=dict[int, tuple[str, str]])
    began: dict[int, Began] = dataclasses.field(default_factory=dict[int, Began])  # queries in their first batch
    # Number of rows below the query's low-watermark
    late: dict[int, int] = dataclasses.field(default_factory=dict[int, int])
    # Oldest arrival in µs behind results that this batch did not emit
    waiting: dict[int, int] = dataclasses.field(default_factory=dict[int, int])
    # Seconds in which tasks merged a table's rows
    took_s: dict[int, float] = dataclasses.field(default_factory=dict[int, float])

    def fail(self, number: int, name: str, reason: str) -> None:
        """Record a failure. The reason that sorts first counts, so the order of the calls does not matter."""
        known = self.failed.get(number, (name, reason))
        self.failed[number] = name, min(known[1], reason)


def outcome_of(left: Iterable[tuple[str, bytes | None]]) -> Outcome:
    """Combine the rows of :class:`~.merging.MergeStep`, in any order: controls and staged files."""
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
