"""Figures 7 and 8 of Bai et al.: latency, idle-waiting and peak queue of a union of a busy and a sparse stream, by how
it hears of silence.

Rows are stamped on entry. The union releases in the order of time (§4.1: a row goes once every input has shown a time
that is not earlier); what inputs have shown is kept by the classes of the source: :class:`Progress` with the policy
``heartbeat``, on-demand timestamps by :class:`OnDemandWatermark`.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from upstream.core.feedback.on_demand_watermark import OnDemandWatermark
from upstream.core.watermark.policies import Policy, Progress

from .shapes import Curve, Figure, Panel
from .simulator import Estimate, estimate

__all__ = ["figure_7", "figure_8"]

_S = 1_000_000
RATES = {"busy": 50.0, "sparse": 0.05}
"""Rows per second, Poisson (§6)."""
PASSES = 0.95
"""The share of rows that the filters before the union let pass."""
COST_US = 20
"""What a row or a punctuation takes in the union; the paper does not say."""

Event = tuple[int, str, bool]
"""When, in which input, and whether it is a row; else punctuation."""


@dataclasses.dataclass(frozen=True)
class UnionOutcome:
    """Of one run.

    Attributes
    ----------
    latency_ms : float
        From a row's entry to its output, on average.
    idle : float
        % of the time in which the union holds rows and waits for an input.
    peak : float
        The most rows and punctuations that wait at once.
    """

    latency_ms: float
    idle: float
    peak: float


def events(seed: int, seconds: float, punctuations_per_second: float = 0.0) -> Iterator[Event]:
    """Return rows that pass the filters, and punctuation of the sparse input, by time."""
    random = np.random.default_rng(seed)
    inputs: list[list[Event]] = []
    for feed, rate in RATES.items():
        at = np.cumsum(random.exponential(_S / rate, round(1.2 * rate * seconds) + 50)).astype(np.int64)
        at = at[(random.random(len(at)) < PASSES) & (at < seconds * _S)]
        inputs.append([(int(each), feed, True) for each in at])
    if punctuations_per_second:
        step = _S / punctuations_per_second
        inputs.append([(round(step * (n + 1)), "sparse", False) for n in range(int(seconds * punctuations_per_second))])
    return heapq.merge(*inputs)


def run(seed: int, seconds: float, how: str, punctuations_per_second: float = 0.0) -> UnionOutcome:
    """Run one of ``none``, ``periodic``, ``on demand`` or ``latent``."""
    progress = {feed: Progress(Policy("heartbeat")) for feed in RATES}
    heard = dict.fromkeys(RATES, 0)
    for each in progress.values():
        each.close_batch(0)
    on_demand = OnDemandWatermark(internal=True)
    held: list[int] = []
    finishing: deque[int] = deque()
    free = idle = waited = rows = peak = last = 0
    for now, feed, is_row in events(seed, seconds, punctuations_per_second):
        if held:
            idle += now - max(last, min(free, now))
        last = now
        while finishing and finishing[0] <= now:
            finishing.popleft()
        work = 1  # what has come
        if is_row:
            heapq.heappush(held, now)
        if how != "latent":
            progress[feed].close_batch(now)
            heard[feed] = now
            if how == "on demand" and held and on_demand.enable(progress, heard, [held[0]], now):
                work += 1
                idle += COST_US  # until the timestamp has come through
        peak = max(peak, len(held) + len(finishing) + work - is_row)
        bound = now if how == "latent" else min(each.bound or 0 for each in progress.values())
        free = max(free, now) + (work - is_row) * COST_US
        while held and held[0] <= bound:
            entered = heapq.heappop(held)
            free += COST_US
            finishing.append(free)
            waited += free - entered
            rows += 1
    return UnionOutcome(waited / max(rows, 1) / 1e3, 100 * idle / max(last, 1), peak)


def _runs(quick: bool) -> tuple[Sequence[float], dict[str, list[list[UnionOutcome]]]]:
    """Return the outcomes of some seeds, for each method and each rate of punctuation."""
    seconds, seeds, rates = (600, 2, (0.1, 1, 10, 100)) if quick else (3000, 5, (0.1, 1, 10, 100, 400))
    found = {
        how: [[run(seed, seconds, how) for seed in range(seeds)]] * len(rates)
        for how in ("none", "on demand", "latent")
    }
    found["periodic"] = [[run(seed, seconds, "periodic", rate) for seed in range(seeds)] for rate in rates]
    return rates, found


def _curves(rates: Sequence[float], found: dict[str, list[list[UnionOutcome]]], what: str) -> dict[str, Curve]:
    def at(runs: list[UnionOutcome]) -> Estimate:
        return estimate([getattr(each, what) for each in runs])

    order = ("none", "periodic", "on demand", "latent")
    return {how: Curve(how, rates, [at(runs) for runs in found[how]]) for how in order}


def figure_7(quick: bool) -> Figure:
    """Repeat figure 7: latency, and how long the union waits."""
    rates, found = _runs(quick)
    latency, idle = (_curves(rates, found, what) for what in ("latency_ms", "idle"))
    differs: list[str] = []
    none, periodic, demand, latent = (latency[how].means for how in ("none", "periodic", "on demand", "latent"))
    if not none[0] > max(periodic) or not none[0] > 1000 * demand[0]:
        differs.append(f"latency without timestamps is {none[0]:.3g} ms, wanted orders above all else")
    if not min(periodic) > 10 * demand[0]:
        differs.append(f"periodic comes down to {min(periodic):.3g} ms, wanted well above on-demand's {demand[0]:.3g}")
    if demand[0] - latent[0] > 0.1:
        differs.append(f"on-demand takes {demand[0] - latent[0]:.3g} ms more than latent, wanted 0.1 at most")
    if idle["none"].means[0] < 98.5:
        differs.append(f"without timestamps the union waits {idle['none'].means[0]:.3g} % of the time, wanted 99")
    at_100 = idle["periodic"].means[list(rates).index(100)]
    if at_100 < 15:
        differs.append(f"with 100 punctuations a second the union waits {at_100:.3g} % of the time, wanted 15 at least")
    if not 0 < idle["on demand"].means[0] < 0.1:
        differs.append(f"on demand it waits {idle['on demand'].means[0]:.3g} % of the time, wanted less than 0.1")
    x = "punctuations per second"
    return Figure(
        "Union of 50 and 0.05 rows/s: latency",
        [
            Panel("latency", x, "ms", list(latency.values()), log=True, log_x=True),
            Panel(
                "idle-waiting",
                x,
                "% of the time",
                [idle[how] for how in ("none", "periodic", "on demand")],
                log=True,
                log_x=True,
            ),
        ],
        differs,
    )


def figure_8(quick: bool) -> Figure:
    """Repeat figure 8: the peak number of waiting rows."""
    rates, found = _runs(quick)
    peak = _curves(rates, found, "peak")
    none, periodic, demand = (peak[how].means for how in ("none", "periodic", "on demand"))
    differs: list[str] = []
    if not none[0] > 100 * demand[0]:
        differs.append(f"peak queue {none[0]:.0f} without timestamps and {demand[0]:.0f} on demand, wanted two orders")
    if not none[0] > periodic[0] > periodic[2] > demand[0]:
        differs.append("periodic punctuation does not lie between, the lower the oftener it comes")
    panel = Panel(
        "peak queue", "punctuations per second", "rows and punctuations", list(peak.values()), log=True, log_x=True
    )
    return Figure("Union of 50 and 0.05 rows/s: memory", [panel], differs)
