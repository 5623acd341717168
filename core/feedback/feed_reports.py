"""What is known of each feed of an input after a batch: a small file for each shard of feeds, below the query's checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .queue_reports import read_values, write_value

__all__ = ["FeedReport", "read_feed_reports", "write_feed_reports"]


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
    """

    feed: str
    bound: int | None
    newest: int | None
    arrival_us: int
    rows: int
    late: int
    suspects: int
    malformed: int


def write_feed_reports(folder: str, shard: int, reports: Sequence[FeedReport]) -> None:
    """Put what a shard says of its feeds in the place of what it said before."""
    write_value(folder, f"shard-{shard}.json", {"feeds": [dataclasses.asdict(report) for report in reports]})


def read_feed_reports(folder: str) -> list[FeedReport]:
    """The last report on each feed, by name. Names of other versions are ignored."""
    found: list[Any] = [feed for value in read_values(folder, "shard-") for feed in value["feeds"]]
    known = [field.name for field in dataclasses.fields(FeedReport)]
    reports = [FeedReport(**{name: feed[name] for name in known}) for feed in found]
    return sorted(reports, key=lambda report: report.feed)
