"""A recorded file, replayed against the clock in file order."""

from __future__ import annotations

from .connector import ReplayConnector, make
from .recording import ReplayOptions

__all__ = ["ReplayConnector", "ReplayOptions", "make"]
