"""The clock."""

from __future__ import annotations

import time

__all__ = ["now_us"]


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000
