"""Options of the `synthetic` connector."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, timezone

from ....conf.errors import OptionError
from ....conf.options import duration_us, numbers, one_of, option, parsed, positive_float, positive_int, whole
from ....conf.units import parse_duration_us
from .stream import Burst, Recipe

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
    """The options of the `synthetic` connector. Times count from the query's first step."""

    seed: int = option(
        "seed", whole(), 0, "Set the seed. Two runs with the same seed and options create the same rows."
    )
    rows_per_second: float | None = option(
        "rowsPerSecond",
        positive_float(),
        None,
        "Set the mean number of rows per second of all feeds together. If it is not set: 1.",
    )
    keys: int | None = option("keys", positive_int(), None, "Set the number of keys. If it is not set: 100.")
    skew: float | None = option(
        "skew",
        parsed("a number of at least 0", _not_negative),
        None,
        "Set Zipf's θ: key k (from 0) has a share proportional to 1 / (k + 1)^θ. 0 is uniform, and applies if "
        "it is not set.",
    )
    rates: tuple[float, ...] | None = option(
        "rates",
        numbers(),
        None,
        "Set the rows per second of each key, in place of `rowsPerSecond`, `keys`, and `skew`.",
    )
    key_order: str = option(
        "keyOrder", one_of("random", "roundrobin"), "random", "Choose whether keys are drawn at random or take turns."
    )
    key_type: str = option(
        "keyType", one_of("long", "string"), "long", "Set the type of the key column: BIGINT or STRING."
    )
    arrivals: str = option(
        "arrivals",
        one_of("constant", "poisson", "bursty"),
        "constant",
        "Choose when rows arrive. `constant`: at a constant pace. `poisson`: at random, as a Poisson process. "
        "`bursty`: at random, with a rate that swings.",
    )
    burst_length_us: int = option("burstLength", duration_us(), 1_000_000, "For `bursty`: the length of a burst.")
    burst_every_us: int = option(
        "burstEvery", duration_us(), 10_000_000, "For `bursty`: the time from the start of one burst to the next."
    )
    burst_factor: float = option(
        "burstFactor",
        positive_float(),
        5.0,
        "For `bursty`: the rate in a burst, as a multiple of the mean rate. At its maximum, burstEvery / "
        "burstLength, no rows arrive between bursts.",
    )
    disorder: str = option(
        "disorder",
        one_of("none", "band", "block"),
        "none",
        "Choose how event times differ from arrivals. `band`: each time is behind its arrival by a random "
        "lateness of up to disorderWidth. `block`: the rows of one stretch of disorderWidth arrive shuffled "
        "in the next.",
    )
    disorder_width_us: int | None = option("disorderWidth", duration_us(), None, "Set how far `disorder` reaches.")
    num_feeds: int = option(
        "numFeeds", positive_int(), 1, "Set the number of independent feeds. They share the rate and the keys."
    )
    idle_feeds: tuple[Silence, ...] = option(
        "idleFeeds",
        parsed("feeds and when they are silent, such as '1@30s-90s, 2@5m' (no end: for ever)", _silences),
        (),
        "Set which feeds (numbered from 0) fall silent, and when. Their rows of that time arrive after it.",
    )
    payload_bytes: int = option(
        "payloadBytes", whole(), 0, "Set the width of an additional column `payload`, in bytes. 0 means no such column."
    )
    start_time_us: int | None = option(
        "startTime",
        parsed("an instant such as '2024-01-01T00:00:00Z'", _instant_us),
        None,
        "Set the event time at which the feeds begin. If it is not set: the time of the clock.",
    )
    rows: int | None = option(
        "rows", positive_int(), None, "End the feeds after this many rows in all. If it is not set, they never end."
    )

    def recipe(self) -> Recipe:
        """Return the recipe; raise one OptionError for all options that contradict each other."""
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
