"""The choice of queries whose results a batch emits, if it has no time for all. Pure arithmetic."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from .reports import HostReport, QueryReport

__all__ = ["Candidate", "chosen", "next_served", "seconds_for_results"]

# With a cost c and a weight w, a query that is served every T seconds adds w·T/2 to the weighted staleness and takes
# c/T of the time. The least sum has T proportional to √(c/w). The sum is flat around it: with (c/w)^(2/3) it is 1 %
# greater for weights of 1 and 4, and a weight of 4 makes results 0.4 times as stale instead of half. The fixed time
# of a batch adds equally to all queries and would hide a part of the smaller difference; so the power is 2/3.
#
# Serving the queries with the greatest w·a^(3/2)/c needs no plan ahead, where a is the age of the oldest row behind
# results that wait. A query is served when that reaches some λ, so its age is then (λ·c/w)^(2/3).
_POWER = 1.5
_LEAST_SHARE = 0.05
_PROBABLY = 0.5
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A query whose results the next batch may emit."""

    number: int  # the incarnation
    weight: float
    age_s: float  # age of the oldest row that its table lacks
    cost_s: float  # seconds by which its results make a batch longer
    likely: float = 1.0  # probability of results in a batch, from 0 to 1
    urgent: bool = False  # served at any cost

    @property
    def expected_s(self) -> float:
        return self.cost_s * self.likely

    @property
    def gain(self) -> float:
        """The value of serving it, per second."""
        return self.weight * max(self.age_s, 0.0) ** _POWER / max(self.cost_s, _ROUNDING)


def chosen(candidates: Iterable[Candidate], seconds: float) -> frozenset[int]:
    """Return the queries to serve in `seconds`: the urgent ones, then by gain all others that fit.

    The first of those that probably have results is served at any cost, so that each query has its turn.
    """
    every = list(candidates)
    urgent = [each for each in every if each.urgent]
    served = {each.number for each in urgent}
    spent = sum(each.expected_s for each in urgent)
    others = sorted((each for each in every if not each.urgent), key=lambda each: (-each.gain, each.number))
    first = next((each.number for each in others if each.likely >= _PROBABLY), None)
    for each in others:
        if each.number == first or spent + each.expected_s <= seconds + _ROUNDING:
            served.add(each.number)
            spent += each.expected_s
    return frozenset(served)


def seconds_for_results(duration_s: float, fixed_s: float) -> float:
    """Return the seconds that a batch has for results, given the target duration and the duration without results.

    Results get at least a twentieth of the latter. Otherwise, hardly any would be emitted if it exceeds the target.
    """
    return max(duration_s - fixed_s, fixed_s * _LEAST_SHARE)


def next_served(
    weights: Mapping[int, float], report: HostReport, duration_s: float, now_us: int
) -> frozenset[int] | None:
    """Return the queries that the next batch serves; None for all.

    `weights` has the active queries by incarnation, and `duration_s` is a batch's target duration. A query that has not
    begun is always served, so its table begins with its rows.
    """
    known = [each.cost_s for number in weights if (each := report.queries.get(number)) and each.cost_s is not None]
    guess = sum(known) / len(known) if known else 0.0
    candidates = [
        _candidate(number, weight, report.queries.get(number), guess, report.batch_s, now_us)
        for number, weight in weights.items()
    ]
    served = chosen(candidates, seconds_for_results(duration_s, report.fixed_s))
    return None if len(served) == len(candidates) else served


def _candidate(
    number: int, weight: float, report: QueryReport | None, guess: float, batch_s: float, now_us: int
) -> Candidate:
    if report is None or not report.begun:
        return Candidate(number, weight, 0.0, guess, likely=0.0, urgent=True)
    cost_s = guess if report.cost_s is None else report.cost_s
    if report.waiting_since_us is None:
        # Its rows came during the last batch.
        return Candidate(number, weight, batch_s, cost_s, report.likely)
    return Candidate(number, weight, (now_us - report.waiting_since_us) / 1e6, cost_s)
