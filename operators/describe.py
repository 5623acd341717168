"""The description of a stream: columns that are ordered or bounded, and the progress of its feeds."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from ..conf.locations import checkpoint_location
from ..conf.units import format_duration_us
from ..core.feedback.checkpoint_layout import Kind
from ..core.feedback.offsets import whole_offset
from ..core.feedback.reports import REPORTS, read_feed_reports, read_reports
from ..core.watermark.bounds import AFTER_ALL, BEFORE_ALL, is_finite
from ..storage.folder import folder_at

_OFFSETS = re.compile(r"[0-9]+")


@dataclasses.dataclass(frozen=True)
class FeedState:
    """The progress of a feed."""

    feed: str
    bound: int | None  # exclusive: every row with an earlier time has arrived; None before the first
    ended: bool = False  # no more rows will arrive
    late: int = 0
    suspects: int = 0
    malformed: int = 0
    rows: int = 0  # received with a readable time
    heard_us: int | None = None  # when its last rows arrived; None if unknown
    idle: bool = False  # its bound is ahead of its own rows, by the rule for silent feeds


@dataclasses.dataclass(frozen=True)
class Place:
    """Feeds that meet in one place of the plan, such as an input, a union, or a window."""

    name: str
    feeds: Sequence[FeedState]
    held: int = 0  # rows, or partial aggregates, that wait there
    micros: bool = True  # whether bounds are microseconds; else they are in the unit of a numeric time column
    # rows without all of their results, by the reason
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def behind(self) -> Mapping[str, int]:
        """How far each live feed is behind the most advanced one."""
        bounds = {each.feed: each.bound for each in self.feeds if each.bound is not None and not each.ended}
        most = max(bounds.values(), default=0)
        return {feed: most - bound for feed, bound in bounds.items()}

    @property
    def apart(self) -> int | None:
        """How far the live feeds are apart; None if fewer than two have a bound."""
        behind = self.behind
        return max(behind.values()) if len(behind) > 1 else None

    def __str__(self) -> str:
        apart = "" if self.apart is None else f", {self._far(self.apart)} apart"
        held = f", {self.held:,} held" if self.held else ""
        rows = "".join(f", {count:,} {what}" for what, count in self.counts.items() if count)
        feeds = f"{len(self.feeds)} feeds{apart}{held}{rows}" if self.feeds else f"{held}{rows}".removeprefix(", ")
        lines = [f"{self.name}: {feeds}"]
        behind = self.behind
        for each in self.feeds:
            reached = (
                "ended"
                if each.ended
                else "no low-watermark yet"
                if each.bound is None
                else f"complete to {self._at(each.bound)}"
            )
            far = f", {self._far(behind[each.feed])} behind" if behind.get(each.feed) else ""
            counts = {"late": each.late, "suspect": each.suspects, "malformed": each.malformed}
            counted = "".join(f", {count:,} {what}" for what, count in counts.items() if count)
            lines.append(f"  {each.feed}: {reached}{far}{counted}")
        return "\n".join(lines)

    def _far(self, distance: int) -> str:
        return format_duration_us(distance) if self.micros else f"{distance:,}"

    def _at(self, bound: int) -> str:
        return f"{np.datetime64(bound, 'us')}Z" if self.micros else f"{bound:,}"


@dataclasses.dataclass(frozen=True)
class Description:
    """The description of a stream, for programs or for printing."""

    columns: Mapping[str, str]  # "update key", "bounded" (by punctuation), "ordered" (within a key), or "" for each
    places: Sequence[Place]  # where feeds meet, from the inputs on, after the last batch

    def __str__(self) -> str:
        known = [f"{name}: {what}" for name, what in self.columns.items() if what]
        return "\n".join(["; ".join(known) or "no column is ordered or bounded", *map(str, self.places)])


def live_places(folders: Sequence[str], *, micros: bool) -> list[Place]:
    """Return the places on which operators report in their folders."""
    found: list[Place] = []
    for folder in folders:
        kind, name = folder.rsplit("/", 2)[-2:]
        report = REPORTS.get(cast("Kind", kind.removeprefix("upstream-")))
        if kind == "upstream-feeds":
            feeds = [
                FeedState(
                    each.feed,
                    each.bound,
                    late=each.late,
                    suspects=each.suspects,
                    malformed=each.malformed,
                    rows=each.rows,
                    heard_us=each.arrival_us,
                )
                for each in read_feed_reports(folder)
            ]
            found.append(Place(f"input {name}", feeds))
        elif report is not None:
            reports = read_reports(folder, report)
            bounds = [feed for each in reports for feed in each.progress.items()]
            counts = sum((Counter(each.incomplete) for each in reports), Counter[str]())
            held = sum(each.kept for each in reports)
            found.append(Place(f"{report.place} {name}", _least(bounds), held, micros or report.in_micros, counts))
    return [place for place in found if place.feeds or any(place.counts.values())]


def source_feeds(checkpoint: str | os.PathLike[str]) -> list[Place]:
    """Return the feeds of a query's ``upstream`` sources as of its last planned batch."""
    whole = folder_at(checkpoint_location(os.fspath(checkpoint)))
    folder = whole.below("offsets")
    batches = [int(name) for name in folder.names("") if _OFFSETS.fullmatch(name)]
    if not batches:
        return []
    lines = folder.read(str(max(batches))).decode().splitlines()[2:]  # skip the log's version and Spark's metadata
    found: list[Place] = []
    for number, line in enumerate(lines):
        offset = json.loads(line) if line.startswith("{") else {}
        if "progress" in offset:
            offset = whole_offset(offset, whole)
            ended = set(offset.get("ended", ()))
            feeds = [
                FeedState(
                    feed,
                    state["bound"] if is_finite(state["bound"]) else None,
                    feed in ended,
                    state["late"],
                    state["suspects"],
                    rows=state.get("received", 0),
                    heard_us=offset.get("heard", {}).get(feed),
                    idle=state.get("own") is not None and state["own"] < state["bound"],
                )
                for feed, state in offset["progress"].items()
            ]
            found.append(Place(f"source {number}", feeds))
    return found


def _least(bounds: Sequence[tuple[str, int]]) -> list[FeedState]:
    least: dict[str, int] = {}
    for feed, bound in bounds:
        least[feed] = min(bound, least.get(feed, bound))
    return [
        FeedState(feed, None if bound == BEFORE_ALL else bound, bound == AFTER_ALL)
        for feed, bound in sorted(least.items())
    ]
