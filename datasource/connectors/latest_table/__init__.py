"""A latest table as a feed: the rows that each of its commits applied."""

from __future__ import annotations

from .connector import LatestConnector, LatestOptions

__all__ = ["LatestConnector", "LatestOptions"]
