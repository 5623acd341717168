"""For tests of your own: the steps of a stream, run without Spark."""

from __future__ import annotations

from .tester import StreamTester

__all__ = ["StreamTester"]
