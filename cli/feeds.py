"""Texts on the feeds that hold the low-watermark back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..conf.units import format_duration_us
from ..core.watermark.bounds import AFTER_ALL, BEFORE_ALL
from ..delta_format.latest_table import NOTHING_YET
from ..sink.figures.summary import CommitSummary
from .live import bound_text

__all__ = ["feed_lines", "waits_for"]

# Smaller differences are not shown: feeds are never at quite the same point.
_APART_US = 1_000_000
_MOST = 20


def waits_for(offset: Mapping[str, Any], now_us: int) -> str:
    """Return the feed that holds the others back, from the source's offset in Spark's progress report.

    The text is empty for a single feed, and for feeds that are close together.
    """
    progress: Mapping[str, Any] = offset.get("progress", {})
    ended = set(offset.get("ended", ()))
    bounds = {
        feed: state["bound"]
        for feed, state in progress.items()
        if feed not in ended and state["bound"] not in (None, AFTER_ALL)
    }
    for feed, bound in bounds.items():
        if bound == BEFORE_ALL:
            many = progress[feed].get("received", 0)
            return (
                f"the others wait for {_short(feed)}, of which {many} rows are too few to tell how far it is complete"
            )
    if len(bounds) < 2:
        return ""
    last = min(bounds, key=lambda feed: bounds[feed])
    apart = max(bounds.values()) - bounds[last]
    if apart < _APART_US:
        return ""
    heard = offset.get("heard", {}).get(last)
    silent = "" if heard is None else f", silent for {format_duration_us(max(now_us - heard, 0))}"
    others = f"{len(bounds) - 1} feeds wait" if len(bounds) > 2 else "1 feed waits"
    return f"{others} for {_short(last)}, {format_duration_us(apart)} behind{silent}"


def feed_lines(summaries: Sequence[CommitSummary]) -> list[str]:
    """Return a line for each feed of the last commit, those that hold the low-watermark back first.

    Such a line includes how long the feed has been at its low-watermark, as far as the summaries (oldest first) go
    back.
    """
    if not summaries:
        return []
    last = summaries[-1]
    mine = [each for each in summaries if each.query_id == last.query_id]
    live = {feed: bound for feed, bound in last.low_watermarks.items() if bound not in (None, NOTHING_YET)}
    if len(last.low_watermarks) < 2:
        return []
    lines: list[str] = []
    for feed in sorted(last.low_watermarks, key=lambda each: _turn(last.low_watermarks[each], each)):
        bound = last.low_watermarks[feed]
        if bound is None:
            lines.append(f"{feed}: ended")
            continue
        if bound == NOTHING_YET:
            lines.append(f"{feed}: too few rows to tell; the others wait for it")
            continue
        held = bound == last.low_watermark and max(live.values()) != bound
        lines.append(f"{feed}: complete to {bound_text(bound)}" + (_standing(mine, feed) if held else ""))
    return lines[:_MOST] + ([f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else [])


def _turn(bound: Any, feed: str) -> tuple[int, Any, str]:
    """Return a sort key: feeds that hold the others back come first, ended feeds last."""
    if bound == NOTHING_YET:
        return 0, 0, feed
    return (2, 0, feed) if bound is None else (1, bound, feed)


def _standing(summaries: Sequence[CommitSummary], feed: str) -> str:
    last = summaries[-1]
    same = last
    for each in reversed(summaries):
        if each.low_watermarks.get(feed) != last.low_watermarks[feed]:
            break
        same = each
    for_us = last.committed_at_us - same.committed_at_us
    since = f", where it has been for {format_duration_us(for_us)}" if for_us else ""
    return f"; the others wait for it{since}"


def _short(feed: str) -> str:
    """Return the last part of a path, which distinguishes feeds in a line."""
    return feed.rstrip("/").rpartition("/")[2] or feed
