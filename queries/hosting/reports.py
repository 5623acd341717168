"""What the host reports of each query, for those who look at it from outside."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from ...core.feedback.report_files import read_values, write_value
from ...storage.folder import TableFolder
from .outcome import Outcome

__all__ = ["QueryReport", "Reports"]

_FOLDER = "queries"
_NAME = "report.json"


@dataclasses.dataclass(frozen=True)
class QueryReport:
    """What has become of a query since it began.

    Attributes
    ----------
    begun : bool
        Whether it has been evaluated yet. It waits for the first low-watermark of its streams.
    whole_from : int or None
        The time in µs from which its results lack nothing; None if it has not begun, or that is never certain.
    rows : int
        Rows and tombstones that its table took.
    late : int
        Rows of its streams that came below their low-watermark.
    batch : int
        The last batch in which its table took rows; -1 for none.
    committed_at_us : int or None
        When that batch was committed, in microseconds since the epoch.
    staleness_s : float or None
        How old its rows were then: the 99th percentile, in seconds.
    """

    begun: bool = False
    whole_from: int | None = None
    rows: int = 0
    late: int = 0
    batch: int = -1
    committed_at_us: int | None = None
    staleness_s: float | None = None

    def after(
        self, number: int, outcome: Outcome, batch: int, committed: tuple[int, float | None] | None
    ) -> QueryReport:
        """Return the report after one more batch."""
        began = outcome.began.get(number)
        rows = outcome.rows.get(number, 0)
        report = dataclasses.replace(
            self,
            rows=self.rows + rows,
            late=self.late + outcome.late.get(number, 0),
            batch=batch if rows else self.batch,
        )
        if began is not None:
            report = dataclasses.replace(report, begun=True, whole_from=began.whole_from)
        if committed is not None:
            report = dataclasses.replace(report, committed_at_us=committed[0], staleness_s=committed[1])
        return report


class Reports:
    """The reports of all queries, in one file below the checkpoint.

    Parameters
    ----------
    checkpoint
        The host's.

    Notes
    -----
    A batch that runs again counts once.
    """

    def __init__(self, checkpoint: TableFolder) -> None:
        self._folder = checkpoint.below(_FOLDER)
        self._known: tuple[int, dict[int, QueryReport]] | None = None

    def read(self) -> Mapping[int, QueryReport]:
        """Return the report of each query, by its incarnation."""
        return self._read()[1]

    def take(
        self,
        batch: int,
        outcome: Outcome,
        queries: Collection[int],
        committed: Mapping[int, tuple[int, float | None]],
    ) -> None:
        """Add a batch.

        Parameters
        ----------
        batch
            Its number.
        outcome
            What it made of the queries.
        queries
            The incarnations in force. Others are forgotten.
        committed
            Of each table that got a commit, when, and how old its rows were.
        """
        last, known = self._known if self._known is not None else self._read()
        if batch <= last:
            return
        now = {
            number: known.get(number, QueryReport()).after(number, outcome, batch, committed.get(number))
            for number in queries
        }
        if now != known:
            value: dict[str, Any] = {str(number): dataclasses.asdict(each) for number, each in now.items()}
            write_value(self._folder, _NAME, {"batch": batch, "queries": value})
            last = batch
        self._known = last, now

    def _read(self) -> tuple[int, dict[int, QueryReport]]:
        values = read_values(self._folder, _NAME)
        if not values:
            return -1, {}
        found = {int(number): QueryReport(**value) for number, value in values[0]["queries"].items()}
        return int(values[0]["batch"]), found
