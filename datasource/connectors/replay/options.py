"""Options of the `replay` connector: those of `files`, and the pace."""

from __future__ import annotations

import dataclasses

from ....conf.errors import OptionError
from ....conf.options import duration_us, option, positive_float
from ...options import SourceOptions
from ..files.options import FilesOptions
from .schedule import Pace

__all__ = ["ReplayOptions"]


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
