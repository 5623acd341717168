"""Durations, sizes and instants as people write them."""

from __future__ import annotations

import re

__all__ = ["format_duration_us", "parse_bytes", "parse_duration_us"]

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
    """Return the microseconds of a duration such as ``"10 minutes"``, ``"1h 30m"`` or ``"250 ms"``.

    Raise ValueError for other text, or beyond 292,000 years.
    """
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


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as ``"32 MB"`` or ``"512k"`` (powers of 1024); raise ValueError otherwise."""
    match = _SIZE.fullmatch(text)
    if match is None or match.group(2).lower() not in _BYTES:
        raise ValueError(f"{text!r} is not a size such as '32 MB'")
    return round(float(match.group(1)) * _BYTES[match.group(2).lower()])
