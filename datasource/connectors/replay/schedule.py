"""Release times of a recording's rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from ....core.rows.event_times import NO_TIME

__all__ = ["Pace", "Schedule", "elapsed_by_rate", "elapsed_by_time"]

Int64s = npt.NDArray[np.int64]

# A time is an error if one of so many rows after it is earlier by more than the gap allowed.
_LOOK_AHEAD = 8


@dataclasses.dataclass(frozen=True)
class Pace:
    """The pace of a replay: `speed` times the recorded times, or `rows_per_second`."""

    speed: float | None = None
    rows_per_second: float | None = None
    max_gap_us: int = 3_600_000_000  # with `speed`: longer gaps are cut to it
    time: str | None = None
    time_format: str | None = None
    time_zone: str = "UTC"


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The release of each row."""

    numbers: Int64s  # increasing
    elapsed_us: Int64s  # from the start to the release, never decreasing

    @property
    def rows(self) -> int:
        return len(self.numbers)


def elapsed_by_rate(rows: int, rows_per_second: float) -> Int64s:
    """Return the microseconds from the start to each row's release, at an even pace."""
    return (np.arange(rows) * 1e6 / rows_per_second).astype(np.int64)


def elapsed_by_time(times_us: Int64s, speed: float, max_gap_us: int) -> Int64s:
    """Return the microseconds from the start to each row's release, at `speed` times the recorded times.

    A row is released once the largest time so far has been reached, so that file order holds. Times far ahead of the
    rows after them do not count: such stamps in real recordings would hold back all later rows. No gap exceeds
    `max_gap_us`, in recorded microseconds. A missing time is :data:`~upstream.core.rows.event_times.NO_TIME`.
    """
    known = np.flatnonzero(times_us != NO_TIME)
    elapsed = np.zeros(len(times_us), dtype=np.int64)
    if not len(known):
        return elapsed
    times = times_us[known]
    # The last row has none after it, so there is always one that counts.
    latest = np.maximum.accumulate(np.where(_far_ahead(times, max_gap_us), NO_TIME, times))
    latest[latest == NO_TIME] = latest[latest != NO_TIME][0]
    # As unsigned numbers: the largest gap may not fit a signed one.
    gaps = np.diff(latest.view(np.uint64)).clip(max=np.uint64(max_gap_us)).astype(np.int64)
    steps = np.zeros(len(times_us), dtype=np.int64)
    steps[known[1:]] = gaps
    np.cumsum(steps, out=elapsed)
    return (elapsed / speed).astype(np.int64)


def _far_ahead(times: Int64s, max_gap_us: int) -> npt.NDArray[np.bool_]:
    after = np.full(len(times), np.iinfo(np.int64).max, dtype=np.int64)
    for ahead in range(1, min(_LOOK_AHEAD, len(times) - 1) + 1):
        np.minimum(after[:-ahead], times[ahead:], out=after[:-ahead])
    behind = np.maximum(times, np.iinfo(np.int64).min + max_gap_us) - max_gap_us
    return behind > after
