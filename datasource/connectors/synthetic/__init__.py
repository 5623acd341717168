"""Seeded synthetic feeds: any stretch of any feed can be made on its own, anywhere, and comes out the same."""

from __future__ import annotations

from .connector import SyntheticConnector, make
from .options import SyntheticOptions
from .stream import FeedPoint, Recipe, Rows, SyntheticStream

__all__ = ["FeedPoint", "Recipe", "Rows", "SyntheticConnector", "SyntheticOptions", "SyntheticStream", "make"]
