"""Reports of the shards of an input on their feeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Self

from .report_files import Report, read_reports

__all__ = ["FeedReport", "FeedReports", "read_feed_reports"]


@dataclasses.dataclass(frozen=True)
class FeedReport:
    """The progress of a feed, and its row counts since the checkpoint began."""

    feed: str
    bound: int | None  # the low-watermark, in microseconds; None before there is one
    newest: int | None  # the largest time that the outlier guard believes
    arrival_us: int  # the arrival of its last rows
    rows: int
    late: int  # rows below the low-watermark reached before; they are processed all the same
    suspects: int  # rows that the outlier guard keeps from moving the watermark; they are processed too
    malformed: int  # rows without a key or a readable time, which are quarantined
    # the snapshot of its progress, if on-demand timestamps are computed from it
    progress: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class FeedReports(Report):
    """The reports of one shard of feeds."""

    feeds: Sequence[FeedReport]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        known = [field.name for field in dataclasses.fields(FeedReport)]
        feeds = [FeedReport(**{name: feed[name] for name in known if name in feed}) for feed in value["feeds"]]
        return super().from_json({**value, "feeds": feeds})


def read_feed_reports(folder: str) -> list[FeedReport]:
    """Return the last report on each feed, by name."""
    found = [feed for each in read_reports(folder, FeedReports) for feed in each.feeds]
    return sorted(found, key=lambda report: report.feed)
