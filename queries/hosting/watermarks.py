"""The streams' progress, as a shard of the first stage receives it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...core.rows.exact_integers import LOWEST
from ...operators.runtime.feeds import ENDED, FeedBounds
from .evaluating import Moment
from .host_plan import Domain
from .messages import Message

__all__ = ["Watermarks"]


class Watermarks:
    """The bounds of all feeds of all streams.

    All shards receive the same bounds, so in a batch all have the same watermarks.
    """

    def __init__(self, saved: Any) -> None:
        self._bounds = {stream: FeedBounds(each) for stream, each in saved.get("bounds", {}).items()}
        self._arrivals: dict[str, int] = dict(saved.get("arrivals", {}))
        self._reached: dict[str, int] = dict(saved.get("reached", {}))
        self._newest: dict[str, int] = dict(saved.get("newest", {}))

    def to_json(self) -> dict[str, Any]:
        bounds = {stream: each.to_json() for stream, each in self._bounds.items()}
        return {
            "bounds": bounds,
            "arrivals": self._arrivals,
            "reached": self._reached,
            "newest": self._newest,
        }

    def moments(self, domains: Iterable[Domain], heard: Sequence[Message]) -> dict[str, Moment]:
        """Apply the messages of all scan tasks, and return the time to which each domain is evaluated."""
        wanted = {each.name: each for each in domains}
        before = {name: self._before(each) for name, each in wanted.items()}
        newest = {name: self._newest_of(each) for name, each in wanted.items()}
        was_us = max(self._arrivals.values(), default=0)
        for message in heard:
            stream = message.control["stream"]
            bounds: dict[str, int] = message.control["bounds"]
            self._bounds.setdefault(stream, FeedBounds()).hear(bounds.keys(), bounds.values())
            self._arrivals[stream] = max(self._arrivals.get(stream, 0), int(message.control["arrival"]))
            if message.control["newest"] is not None:
                self._newest[stream] = max(self._newest.get(stream, LOWEST), int(message.control["newest"]))
        now_us = max(self._arrivals.values(), default=0)
        found: dict[str, Moment] = {}
        reached: dict[str, int] = {}
        for name, domain in wanted.items():
            low, passed = self._low(domain, self._reached.get(name)), before[name]
            if low is not None:
                # A new feed may be behind the others when the first query of a domain begins with it.
                low = reached[name] = low if passed is None else max(low, passed)
            since = was_us + 1 if passed is not None and domain.clock == "arrival" else passed
            found[name] = Moment(passed, low, now_us, since, newest[name])
        self._reached = reached
        return found

    def _newest_of(self, domain: Domain) -> int:
        return max((self._newest.get(each, LOWEST) for each in domain.streams), default=LOWEST)

    def _before(self, domain: Domain) -> int | None:
        low = self._low(domain, self._reached.get(domain.name))
        if low is None and domain.clock == "arrival" and any(each in self._arrivals for each in domain.streams):
            return LOWEST
        return low

    def _low(self, domain: Domain, reached: int | None) -> int | None:
        """Return the streams' least bound, but never less than `reached`, even if a new feed comes."""
        each = [self._bounds[name].low_watermark if name in self._bounds else None for name in domain.streams]
        known = [bound for bound in each if bound is not None]
        if len(known) < len(each):
            return reached
        low = min(known, default=ENDED)
        return low if reached is None else max(low, reached)
