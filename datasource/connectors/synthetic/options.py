"""Options of the synthetic connector."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, timezone

from ....conf.errors import OptionError
from ....conf.options import duration_us, numbers, one_of, option, parsed, positive_float, positive_int, whole
from ....conf.units import parse_duration_us
from .profile import Burst
from .stream import Recipe

__all__ = ["SyntheticOptions"]

# (feed, from, to) in elapsed microseconds; no `to` is for ever.
Silence = tuple[int, int, "int | None"]


def _not_negative(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number


def _instant_us(text: str) -> int:
    instant = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=timezone.utc)
    return (instant - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)


def _silences(text: str) -> tuple[Silence, ...]:
    found: list[Silence] = []
    for part in text.split(","):
        feed, at, interval = part.partition("@")
        begin, dash, end = interval.partition("-")
        if not at:
            raise ValueError(f"{part.strip()!r} has no '@'")
        found.append((int(feed), parse_duration_us(begin), parse_duration_us(end) if dash else None))
        if found[-1][0] < 0 or (end and parse_duration_us(end) <= found[-1][1]):
            raise ValueError(f"{part.strip()!r} is empty")
    return tuple(sorted(found))


@dataclasses.dataclass(frozen=True)
class SyntheticOptions:
    """What the rows are and when they come. Times count from the moment the query first looks."""

    seed: int = option("seed", whole(), 0, "Two runs with the same seed and options make the same rows.")
    rows_per_second: float | None = option(
        "rowsPerSecond", positive_float(), None, "Mean rows per second of all feeds together. Without it: 1."
    )
    keys: int | None = option("keys", positive_int(), None, "How many keys there are. Without it: 100.")
    skew: float | None = option(
        "skew",
        parsed("a number of at least 0", _not_negative),
        None,
        "Zipf θ: key k (from 0) has a share proportional to 1 / (k + 1)^θ. 0, the default, is uniform.",
    )
    rates: tuple[float, ...] | None = option(
        "rates", numbers(), None, "Rows per second of each key, instead of `rowsPerSecond`, `keys` and `skew`."
    )
    key_order: str = option(
        "keyOrder", one_of("random", "roundrobin"), "random", "Whether keys are drawn at random or take turns."
    )
    key_type: str = option("keyType", one_of("long", "string"), "long", "Type of the key column: BIGINT or STRING.")
    arrivals: str = option(
        "arrivals",
        one_of("constant", "poisson", "bursty"),
        "constant",
        "When rows arrive: at a constant pace, at random (a Poisson process), or at random with a rate that swings.",
    )
    burst_length_us: int = option("burstLength", duration_us(), 1_000_000, "For `bursty`: how long a burst lasts.")
    burst_every_us: int = option("burstEvery", duration_us(), 10_000_000, "For `bursty`: the time from burst to burst.")
    burst_factor: float = option(
        "burstFactor",
        positive_float(),
        5.0,
        "For `bursty`: the rate in a burst, in mean rates; at burstEvery / burstLength nothing comes between bursts.",
    )
    disorder: str = option(
        "disorder",
        one_of("none", "band", "block"),
        "none",
        "How event times differ from arrivals. `band`: each is behind by a random lateness up to disorderWidth. "
        "`block`: what happened in one stretch of disorderWidth arrives shuffled in the next.",
    )
    disorder_width_us: int | None = option("disorderWidth", duration_us(), None, "How far `disorder` reaches.")
    num_feeds: int = option("numFeeds", positive_int(), 1, "Independent feeds, which share the rate and the keys.")
    idle_feeds: tuple[Silence, ...] = option(
        "idleFeeds",
        parsed("feeds and when they are silent, such as '1@30s-90s, 2@5m' (no end: for ever)", _silences),
        (),
        "Feeds (numbered from 0) that fall silent; what they would have sent comes afterwards.",
    )
    payload_bytes: int = option(
        "payloadBytes", whole(), 0, "Width of an additional column `payload`; 0 is no such column."
    )
    start_time_us: int | None = option(
        "startTime",
        parsed("an instant such as '2024-01-01T00:00:00Z'", _instant_us),
        None,
        "The event time at which the feeds start. Without it: the clock's.",
    )
    rows: int | None = option(
        "rows", positive_int(), None, "The feeds end after so many rows in all. Without it they never do."
    )

    def recipe(self) -> Recipe:
        """Return the recipe for these options.

        Raises
        ------
        OptionError
            Options contradict each other; the message names all such combinations.
        """
        problems = list(self._problems())
        if problems:
            raise OptionError("; ".join(problems), hint="give or leave out the options named")
        silences: tuple[tuple[tuple[int, int | None], ...], ...] = tuple(
            tuple((begin, end) for feed, begin, end in self.idle_feeds if feed == number)
            for number in range(self.num_feeds)
        )
        return Recipe(
            seed=self.seed,
            rows_per_second=self.rows_per_second or (sum(self.rates) if self.rates else 1.0),
            keys=len(self.rates) if self.rates else self.keys or 100,
            skew=self.skew or 0.0,
            rates=self.rates,
            take_turns=self.key_order == "roundrobin",
            at_random=self.arrivals != "constant",
            burst=Burst(self.burst_length_us, self.burst_every_us, self.burst_factor)
            if self.arrivals == "bursty"
            else None,
            disorder=self.disorder,
            disorder_width_us=self.disorder_width_us or 0,
            feeds=self.num_feeds,
            silences=silences,
            payload_bytes=self.payload_bytes,
            total_rows=self.rows,
        )

    def _problems(self) -> list[str]:
        problems: list[str] = []
        if self.rates is not None:
            also = {"rowsPerSecond": self.rows_per_second, "keys": self.keys, "skew": self.skew}
            problems += [f"both rates and {name}" for name, value in also.items() if value is not None]
            if not sum(self.rates):
                problems.append("rates are all 0")
        if self.key_order == "roundrobin" and (self.skew or len(set(self.rates or (1.0,))) > 1):
            problems.append("keyOrder=roundrobin with keys of unequal rates")
        if self.disorder != "none" and not self.disorder_width_us:
            problems.append(f"disorder={self.disorder} without disorderWidth")
        if self.disorder == "none" and self.disorder_width_us is not None:
            problems.append("disorderWidth without disorder")
        if self.arrivals == "bursty" and not 0 < self.burst_length_us < self.burst_every_us:
            problems.append("burstLength is not below burstEvery")
        elif self.arrivals == "bursty" and self.burst_factor * self.burst_length_us > self.burst_every_us * (1 + 1e-9):
            most = self.burst_every_us / self.burst_length_us
            problems.append(f"burstFactor={self.burst_factor:g} is above burstEvery / burstLength = {most:g}")
        previous: Silence | None = None
        for silence in self.idle_feeds:
            feed, begin, _ = silence
            if feed >= self.num_feeds:
                problems.append(f"idleFeeds names feed {feed}, and numFeeds is {self.num_feeds}")
            if previous is not None and previous[0] == feed and (previous[2] is None or begin < previous[2]):
                problems.append(f"idleFeeds: the silences of feed {feed} overlap")
            previous = silence
        return problems
