"""Durations, sizes, instants and staleness targets as people write them; the clock."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Literal, Protocol, cast

from .errors import OptionError

_DURATION_US = {
    "us": 1, "microsecond": 1, "microseconds": 1,
    "ms": 1_000, "millisecond": 1_000, "milliseconds": 1_000,
    "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000, "seconds": 1_000_000,
    "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000, "minutes": 60_000_000,
    "h": 3_600_000_000, "hour": 3_600_000_000, "hours": 3_600_000_000,
    "d": 86_400_000_000, "day": 86_400_000_000, "days": 86_400_000_000,
}  # fmt: skip
# What int64 holds; 292,000 years.
_MOST_US = 2.0**63
_BYTES = {"b": 1, "": 1}
for _power, _letter in enumerate("kmgt", start=1):
    for _suffix in ("", "b", "ib"):
        _BYTES[_letter + _suffix] = 1024**_power
_PAIR = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]+)")
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


def parse_duration_us(text: str) -> int:
    """Return the microseconds of a duration such as ``"1h 30m"``; raise ValueError for any other text."""
    total, end, pairs = 0.0, 0, 0
    body = text.strip()
    for match in _PAIR.finditer(body):
        unit = _DURATION_US.get(match.group(2).lower())
        if match.start() != end or unit is None:
            break
        total += float(match.group(1)) * unit
        end, pairs = match.end(), pairs + 1
    if not pairs or end != len(body) or not total < _MOST_US:
        raise ValueError(f"{text!r} is not a duration such as '10 minutes' or '250 ms'")
    return round(total)


def format_duration_us(duration_us: float) -> str:
    """Format a duration for people: ``"340 ms"``, ``"2.1 s"``, ``"3 min 05 s"``, ``"2 h 07 min"``."""
    seconds = duration_us / 1e6
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"


_EXACT = {
    "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1_000,
    "microsecond": 1,
}  # fmt: skip


def length_text(us: int) -> str:
    """Return a duration in the largest unit of which it is a whole multiple, so that other durations differ."""
    name, unit = next((name, unit) for name, unit in _EXACT.items() if us % unit == 0) if us else ("second", 1)
    return f"{us // unit} {name}" + ("" if abs(us) == unit else "s")


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as ``"32 MB"`` or ``"512k"`` (powers of 1024); raise ValueError otherwise."""
    match = _SIZE.fullmatch(text)
    if match is None or match.group(2).lower() not in _BYTES:
        raise ValueError(f"{text!r} is not a size such as '32 MB'")
    return round(float(match.group(1)) * _BYTES[match.group(2).lower()])


def now_us() -> int:
    """Return the time now, in microseconds since the epoch."""
    return time.time_ns() // 1000


Figure = Literal["mean", "p50", "p99", "max"]

_TARGET = re.compile(r"\s*(?P<figure>[a-z0-9]+)\s*(?P<relation><=|<)\s*(?P<bound>.+?)\s*", re.IGNORECASE)
_FIGURES = ("mean", "p50", "p99", "max")


class Figures(Protocol):
    """The staleness figures of an interval, a run, or a prediction, in seconds."""

    @property
    def mean(self) -> float: ...
    @property
    def p50(self) -> float: ...
    @property
    def p99(self) -> float: ...
    @property
    def max(self) -> float: ...


@dataclasses.dataclass(frozen=True)
class StalenessTarget:
    """A bound on one staleness figure."""

    figure: Figure
    bound_us: int
    inclusive: bool = False  # `<=` rather than `<`

    @classmethod
    def parse(cls, text: str) -> StalenessTarget:
        """Parse a target such as ``"p99 < 10 s"``; raise OptionError for other text, or if nothing can meet it."""
        match = _TARGET.fullmatch(text)
        if match is None or match["figure"].lower() not in _FIGURES:
            raise _refused(text, f"{' or '.join(_FIGURES)}, then < or <=, then a duration, such as 'p99 < 10 s'")
        try:
            bound = parse_duration_us(match["bound"])
        except ValueError:
            raise _refused(text, "a duration after the sign, such as '10 s', '250 ms' or '1 minute'") from None
        inclusive = match["relation"] == "<="
        if bound == 0 and not inclusive:
            raise _refused(text, "a bound above 0: staleness is never negative")
        return cls(cast("Figure", match["figure"].lower()), bound, inclusive)

    def met(self, figures: Figures) -> bool:
        value_us = float(getattr(figures, self.figure)) * 1e6
        return value_us <= self.bound_us if self.inclusive else value_us < self.bound_us

    def needed_rows_per_s(self, figures: Figures, batch_s: float, rows_per_s: float) -> float | None:
        """Return the capacity (results per second) that meets the bound, from a measurement at another capacity.

        None if a batch alone (`batch_s`) lasts as long as the bound. With n waiting keys and capacity C, a key waits
        n/C for its turn and one batch for its commit. So the age less the batch is inversely proportional to C. With
        fewer keys than a batch serves, the formula overestimates.
        """
        waited = float(getattr(figures, self.figure)) - batch_s
        allowed = self.bound_us / 1e6 - batch_s
        if allowed <= 0:
            return None
        return rows_per_s * max(waited, 0.0) / allowed

    def __str__(self) -> str:
        return f"{self.figure} {'<=' if self.inclusive else '<'} {format_duration_us(self.bound_us)}"


def _refused(text: str, expected: str) -> OptionError:
    return OptionError(f"{text!r} is not a target for staleness", expected=expected)
