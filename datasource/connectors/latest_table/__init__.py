"""A latest table as a feed: what each of its commits delivered."""

from __future__ import annotations

from .connector import LatestConnector, make
from .options import LatestOptions

__all__ = ["LatestConnector", "LatestOptions", "make"]
