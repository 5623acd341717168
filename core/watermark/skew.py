"""The skew of a feed's clock: by how much later its rows are seen than their times say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Skew"]

# A span of time is over after so long, and not before so many batches: a feed of a row an hour has its days remembered.
_SPAN_US = 600_000_000
_SPAN_BATCHES = 32
# With fewer batches than this, the differences among them say nothing of those to come.
_ENOUGH = 8


class Skew:
    """What has been measured of one feed: clock of the batch that saw a row, less the row's time.

    The clock of the batch, and not the arrival that the row claims: what a promise can be broken by is a row that is
    *seen* after it. Least and greatest skew are those of the present span and the one before, so that an outage or the
    reading of a backlog is forgotten, and a quiet feed is not. Negative where the feed's clock is ahead.

    Parameters
    ----------
    saved : mapping, optional
        What :meth:`to_json` gave.
    """

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        saved = saved or {}
        self.latest: int | None = saved.get("latest")
        self._since: int = saved.get("since", 0)
        self._batches: int = saved.get("batches", 0)
        self._now: list[int] | None = saved.get("now")
        self._before: list[int] | None = saved.get("before")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value, with ``smallest``, ``largest`` and ``latest`` for people."""
        return {
            "smallest": self.smallest,
            "largest": self.largest,
            "latest": self.latest,
            "since": self._since,
            "batches": self._batches,
            "now": self._now,
            "before": self._before,
        }

    def observe(self, least_us: int, greatest_us: int, now_us: int) -> None:
        """Take the least and the greatest time of the rows in a batch whose clock reads `now_us`."""
        if self._now is not None and now_us - self._since >= _SPAN_US and self._batches >= _SPAN_BATCHES:
            self._before, self._now, self._batches = self._now, None, 0
        if self._now is None:
            self._since, self._now = now_us, [now_us - greatest_us, now_us - least_us]
        else:
            self._now = [min(self._now[0], now_us - greatest_us), max(self._now[1], now_us - least_us)]
        self.latest = now_us - greatest_us
        self._batches += 1

    @property
    def smallest(self) -> int | None:
        """The smallest skew of the present span and the one before, in microseconds."""
        return min((each[0] for each in (self._now, self._before) if each is not None), default=None)

    @property
    def largest(self) -> int | None:
        """The largest skew of the present span and the one before, in microseconds."""
        return max((each[1] for each in (self._now, self._before) if each is not None), default=None)

    @property
    def spread(self) -> int | None:
        """The largest skew less the smallest: δ of an on-demand timestamp. None while too few batches were measured."""
        if self.smallest is None or self.largest is None or (self._before is None and self._batches < _ENOUGH):
            return None
        return self.largest - self.smallest
