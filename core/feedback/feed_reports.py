"""What is known of each feed of an input after a batch: a small file for each shard of feeds, below the query's
checkpoint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Self

from .report_files import Report, read_reports

__all__ = ["FeedReport", "FeedReports", "read_feed_reports"]


@dataclasses.dataclass(frozen=True)
class FeedReport:
    """How far a feed has come, and how many of its rows were what. Counts are of the whole life of the checkpoint.

    Attributes
    ----------
    feed : str
        Its name.
    bound : int or None
        The low-watermark, in microseconds; None before there is one.
    newest : int or None
        The largest time that the outlier guard believes.
    arrival_us : int
        When its last rows came.
    rows : int
        All that came.
    late : int
        Of them, those below the low-watermark that had been promised; they took part all the same.
    suspects : int
        Those that the outlier guard keeps from moving progress; they took part, too.
    malformed : int
        Those that were put aside, without a key or a readable time.
    progress : mapping or None
        The state of its progress, where on-demand timestamps are computed from it.
    """

    feed: str
    bound: int | None
    newest: int | None
    arrival_us: int
    rows: int
    late: int
    suspects: int
    malformed: int
    progress: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class FeedReports(Report):
    """Those of one shard of feeds.

    Attributes
    ----------
    shard : int
    feeds : sequence of FeedReport
    """

    feeds: Sequence[FeedReport]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """See :class:`Report`."""
        known = [field.name for field in dataclasses.fields(FeedReport)]
        feeds = [FeedReport(**{name: feed[name] for name in known if name in feed}) for feed in value["feeds"]]
        return super().from_json({**value, "feeds": feeds})


def read_feed_reports(folder: str) -> list[FeedReport]:
    """Return the last report on each feed, by name."""
    found = [feed for each in read_reports(folder, FeedReports) for feed in each.feeds]
    return sorted(found, key=lambda report: report.feed)
