"""Seeded synthetic feeds: any stretch of a feed can be made alone, anywhere, with the same rows."""

from __future__ import annotations

from .connector import SyntheticConnector, SyntheticOptions, make
from .stream import FeedPoint, Recipe, RowRun, SyntheticStream

__all__ = ["FeedPoint", "Recipe", "RowRun", "SyntheticConnector", "SyntheticOptions", "SyntheticStream", "make"]
