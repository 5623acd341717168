"""The skew of a feed's clock: how much later its rows are seen than their event times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Skew"]

# A span of time is over after so long, and not before so many batches: a feed of a row an hour has its days remembered.
_SPAN_US = 600_000_000
_SPAN_BATCHES = 32
# The skews of fewer batches do not predict those of later ones.
_ENOUGH = 8


class Skew:
    """The measured skew of one feed: the clock of the batch that saw a row, less the row's time.

    The batch's clock counts, not the arrival in the row: only a row that is *seen* after a watermark can be late for
    it. The extremes cover the present span and the one before, so outages and backlogs are forgotten, but quiet feeds
    are not. The skew is negative if the feed's clock is ahead.
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
        """Add the least and the greatest time of the rows in a batch whose clock reads `now_us`."""
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
        """The smallest skew in microseconds."""
        return min((each[0] for each in (self._now, self._before) if each is not None), default=None)

    @property
    def largest(self) -> int | None:
        """The largest skew in microseconds."""
        return max((each[1] for each in (self._now, self._before) if each is not None), default=None)

    @property
    def spread(self) -> int | None:
        """The largest skew less the smallest: δ of on-demand timestamps; None until enough batches are measured."""
        if self.smallest is None or self.largest is None or (self._before is None and self._batches < _ENOUGH):
            return None
        return self.largest - self.smallest
