"""On-demand timestamps (ETS, Bai et al. §4-5) for silent feeds that hold results back; see docs/decisions/0011."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from ...storage.folder import TableFolder
from ..watermark.policies import FeedProgress
from .checkpoint_layout import Kind, operator_folder, stage_folder
from .reports import OperatorReport, StageReport, read_reports

# The source does not see batches without rows of its own, which change reports too.
_LOOK_US = 1_000_000

WAITING: tuple[Kind, ...] = ("windows", "joins", "reorder")
"""The kinds of operators that wait for feeds."""


@dataclasses.dataclass(frozen=True)
class OnDemandWatermark:
    """The settings of on-demand timestamps, and their computation."""

    internal: bool = False  # rows are stamped with the clock on entry, so the timestamp is the clock
    delay_us: int | None = None  # δ, the largest skew; None: the measured spread, at least the policy's delay
    start_delay_us: int = 0  # δ until enough is measured

    def timestamp(self, progress: FeedProgress, heard_us: int, now_us: int) -> int | None:
        """Return the low-watermark at `now_us` of a feed silent since `heard_us`; None if there is none.

        It is t + τ - δ: t is the largest confirmed time (the last row's may be any), τ the clock since `heard_us`.
        While too few rows came to confirm a time, t is their median. No row whose skew exceeds the least by at most δ
        comes below the result.
        """
        if self.internal:
            return now_us
        likely = progress.likely
        if likely is None:
            return None
        delay_us = self.delay_us
        if delay_us is None:
            spread = progress.skew.spread
            delay_us = max(progress.delay_us, self.start_delay_us if spread is None else spread)
        return likely + (now_us - heard_us) - delay_us

    def enable(
        self, progress: Mapping[str, FeedProgress], heard: Mapping[str, int], needs: Collection[int], now_us: int
    ) -> bool:
        """Raise the bounds of silent feeds if that releases something; return whether it does.

        `needs` are the least low-watermarks that would release something. `progress` has the feeds that have not ended,
        and is changed. `heard` has the clock when each was last heard of: `now_us` for feeds that are not silent.
        """
        bounds = {feed: each.bound for feed, each in progress.items() if each.bound is not None}
        blocked = [need for need in needs if bounds and need > min(bounds.values())]
        if not blocked:
            return False
        after = dict(bounds)
        for feed, bound in bounds.items():
            timestamp = self.timestamp(progress[feed], heard[feed], now_us) if heard[feed] < now_us else None
            after[feed] = bound if timestamp is None else max(bound, timestamp)
        reached = min(after.values())
        if reached < min(blocked):
            return False
        for feed, bound in bounds.items():
            # Not above the least of all feeds: more would release nothing, and could make rows late.
            progress[feed].promise(min(after[feed], max(bound, reached)))
        return True


class DownstreamReport(Protocol):
    """A shard's report on the rows that it holds."""

    @property
    def needs(self) -> int | None: ...


def reports_below(checkpoint: TableFolder) -> Callable[[], Sequence[DownstreamReport]]:
    """Return a function that reads the last reports of the query's operators that wait for feeds."""

    def read() -> Sequence[DownstreamReport]:
        def at(folder: str) -> TableFolder:
            return TableFolder(folder, checkpoint.storage)

        place = checkpoint.location
        found: list[DownstreamReport] = []
        for kind in WAITING:
            found += _numbered(
                lambda number, kind=kind: read_reports(at(operator_folder(place, kind, number)), OperatorReport)
            )
        return found + _numbered(lambda number: read_reports(at(stage_folder(place, number)), StageReport))

    return read


def _numbered(read: Callable[[int], Sequence[DownstreamReport]]) -> list[DownstreamReport]:
    found: list[DownstreamReport] = []
    for number in range(1 << 16):
        reports = read(number)
        if not reports:
            break
        found += reports
    return found


class DownstreamReports:
    """The low-watermarks that operators wait for, cached between looks at their reports."""

    def __init__(self, reports: Callable[[], Sequence[DownstreamReport]]) -> None:
        self._reports = reports
        self._looked: tuple[int, Sequence[int | None]] | None = None
        self._needs: list[int] = []

    def needs(self, now_us: int, bounds: Sequence[int | None]) -> Sequence[int]:
        """Return the low-watermarks that would release something. While `bounds` stay, read reports once a second."""
        if self._looked is None or self._looked[1] != bounds or now_us - self._looked[0] >= _LOOK_US:
            self._needs = sorted({report.needs for report in self._reports() if report.needs is not None})
            self._looked = now_us, bounds
        return self._needs
