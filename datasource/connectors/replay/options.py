"""Options of the `replay` connector: those of `files`, and the pace."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from ....conf.errors import OptionError
from ....conf.options import duration_us, option, positive_float
from ....core.rows.event_times import NO_TIME
from ....core.rows.exact_integers import Int64s
from ...options import SourceOptions
from ..files.options import FilesOptions

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


@dataclasses.dataclass(frozen=True)
class ReplayOptions(FilesOptions):
    """The options of the `replay` connector; see each option's documentation."""

    speed: float | None = option(
        "speed",
        positive_float(),
        None,
        "Play a recording at this multiple of the pace of its own event times, from the column `time`.",
    )
    rows_per_second: float | None = option(
        "rowsPerSecond",
        positive_float(),
        None,
        "Play a recording at this many rows per second, regardless of its times.",
    )
    max_gap_us: int = option(
        "maxGap",
        duration_us(),
        3_600_000_000,
        "For `speed`: the maximum gap in a recording; a longer gap is shortened to it. A time that is further "
        "than this ahead of the rows after it counts as an error.",
    )

    def pace(self, common: SourceOptions) -> Pace:
        """Return the pace; raise OptionError unless it is either `speed` (with a time column) or `rowsPerSecond`."""
        if (self.speed is None) == (self.rows_per_second is None):
            raise OptionError(
                ("neither" if self.speed is None else "both")
                + " of speed and rowsPerSecond given for connector=replay",
                expected="one of them",
                hint="give speed=1 to play at the recorded pace, or rowsPerSecond for an even one",
            )
        if self.rows_per_second is not None:
            return Pace(rows_per_second=self.rows_per_second)
        if common.time is None or common.progress == "heartbeat":
            raise OptionError(
                "speed without recorded event times"
                + ("" if common.time is None else " (progress=heartbeat makes its own)"),
                hint="name the column of the recorded times with `time`, or give rowsPerSecond instead of speed",
            )
        return Pace(
            speed=self.speed,
            max_gap_us=self.max_gap_us,
            time=common.time,
            time_format=common.time_format,
            time_zone=common.time_zone,
        )
