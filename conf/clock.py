"""The clock."""

from __future__ import annotations

import time

__all__ = ["now_us"]


def now_us() -> int:
    """Return the time now, in microseconds since the epoch."""
    return time.time_ns() // 1000
