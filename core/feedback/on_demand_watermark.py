"""On-demand timestamps (ETS, Bai et al. §4-5): what a silent feed promises because somebody waits for it.

Operators say below the checkpoint what they hold and which promise would release some of it. As long as nothing is held
nobody asks, and nothing happens. docs/decisions/0016 has the way back from operators to the source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from ...storage.folder import TableFolder
from ..watermark.policies import Progress
from .checkpoint_layout import joins_folder, reorder_folder, stage_folder, windows_folder
from .join_reports import JoinReport
from .reorder_reports import ReorderReport
from .report_files import read_reports
from .stage_reports import StageReport
from .window_reports import WindowReport

__all__ = ["DownstreamReport", "DownstreamReports", "OnDemandWatermark", "reports_below"]

# Reports change with batches, of which the source hears only if it has a part in them.
_LOOK_US = 1_000_000


@dataclasses.dataclass(frozen=True)
class OnDemandWatermark:
    """How on-demand timestamps are computed.

    Attributes
    ----------
    internal : bool
        Whether rows are stamped with the clock on entry: then it is the clock.
    delay_us : int or None
        δ, the largest skew; None to take what has been measured of the feed, and no less than what its policy expects
        of rows.
    start_delay_us : int
        δ until enough has been measured.
    """

    internal: bool = False
    delay_us: int | None = None
    start_delay_us: int = 0

    def timestamp(self, progress: Progress, heard_us: int, now_us: int) -> int | None:
        """Return what a feed without news since `heard_us` may promise at `now_us`; None if it can promise nothing.

        Notes
        -----
        The promise is t + τ - δ. Here t is the largest confirmed time rather than the last row's, which may be any. If
        a feed has too few rows to confirm a time, t is their median. τ is the clock since the feed was heard of. No row
        whose skew is at most δ more than the least can then come below the promise. If rows are stamped with the clock
        on entry, the promise is `now_us`.
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
        self, progress: Mapping[str, Progress], heard: Mapping[str, int], needs: Collection[int], now_us: int
    ) -> bool:
        """Promise for silent feeds if that releases something; return whether it does.

        Parameters
        ----------
        progress
            The progress of each feed that has not ended. Promises go into it.
        heard
            The clock when each feed was last heard of: now, for feeds that are not silent.
        needs
            The least promises that would release something, of the shards that hold something.
        now_us : int
            The clock.
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
            # No further than all have come: more would release nothing, and could make rows late for nothing.
            progress[feed].promise(min(after[feed], max(bound, reached)))
        return True


class DownstreamReport(Protocol):
    """What a shard says of what it holds."""

    @property
    def needs(self) -> int | None: ...


def reports_below(checkpoint: TableFolder) -> Callable[[], Sequence[DownstreamReport]]:
    """Return a function that reads the last reports of the query's operators that wait for feeds."""

    def read() -> Sequence[DownstreamReport]:
        def at(folder: str) -> TableFolder:
            return TableFolder(folder, checkpoint.storage)

        place = checkpoint.location
        windows = _numbered(lambda number: read_reports(at(windows_folder(place, number)), WindowReport))
        joins = _numbered(lambda number: read_reports(at(joins_folder(place, number)), JoinReport))
        reorders = _numbered(lambda number: read_reports(at(reorder_folder(place, number)), ReorderReport))
        stages = _numbered(lambda number: read_reports(at(stage_folder(place, number)), StageReport))
        return [*windows, *joins, *reorders, *stages]

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
    """What operators hold, looked up when there may be something new.

    Parameters
    ----------
    reports : callable
        Reads the last report of each shard.
    """

    def __init__(self, reports: Callable[[], Sequence[DownstreamReport]]) -> None:
        self._reports = reports
        self._looked: tuple[int, Sequence[int | None]] | None = None
        self._needs: list[int] = []

    def needs(self, now_us: int, bounds: Sequence[int | None]) -> Sequence[int]:
        """Return the promises that would release something.

        Parameters
        ----------
        now_us : int
            The clock.
        bounds
            The feeds' promises. While they stay the same, the method looks at the reports once a second.
        """
        if self._looked is None or self._looked[1] != bounds or now_us - self._looked[0] >= _LOOK_US:
            self._needs = sorted({report.needs for report in self._reports() if report.needs is not None})
            self._looked = now_us, bounds
        return self._needs
