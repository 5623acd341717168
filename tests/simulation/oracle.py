"""The answers, computed from the recorded input alone: loops over rows, no code of the product."""

from collections.abc import Iterable, Sequence
from typing import Any

from .inputs import Row


def newest(rows: Iterable[Row]) -> dict[int, tuple[int, str]]:
    """The newest row of each key by time, of equal ones the one that came later; a deleted key has none."""
    best: dict[int, Row] = {}
    for row in rows:
        known = best.get(row.key)
        if known is None or row.time >= known.time:
            best[row.key] = row
    return {key: (row.time, row.value) for key, row in best.items() if not row.deleted}


def bound_of(rows: Sequence[Row], config: dict[str, Any]) -> int | None:
    """How far a feed is complete after some rows, by its policy; None before enough rows have come."""
    times = [row.time for row in rows]
    name = config["progress"]
    if name == "displaced":
        times = times[: max(len(times) - config["displacement"], 0)]
    if len(times) < config["confirmations"]:
        return None
    return max(times) - (config["delay"] * 1000 if name == "bounded" else 0)


def low_watermark(feeds: dict[str, Sequence[Row]], ended: set[str], config: dict[str, Any]) -> int | None:
    """The least bound of the feeds that have shown a row and have not ended; None while one has no bound yet.

    Once all have ended, nothing is ahead: infinity, which is a number greater than all.
    """
    shown = {feed: rows for feed, rows in feeds.items() if rows}
    live = [bound_of(rows, config) for feed, rows in shown.items() if feed not in ended]
    if not shown or any(bound is None for bound in live):
        return None
    return min((bound for bound in live if bound is not None), default=1 << 62)


def windows(rows: Iterable[tuple[int, int, int]], size: int, slide: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Of (key, time, value) in each window: how many, and their sum; by key and the window's end."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for key, time, value in rows:
        end = (time // slide + 1) * slide
        while end - size <= time:
            count, total = found.get((key, end), (0, 0))
            found[key, end] = count + 1, total + value
            end += slide
    return found
