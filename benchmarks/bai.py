"""Figures 7 and 8 of Bai et al.: latency, idle-waiting and peak queue of a union of a busy and a sparse stream, by how
it hears of silence.

Rows are stamped on entry. The union releases in the order of time (§4.1: a row goes once every input has shown a time
that is not earlier); what inputs have shown is kept by the classes of the source: :class:`FeedProgress` with the policy
``heartbeat``, on-demand timestamps by :class:`OnDemandWatermark`.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from upstream.core.feedback.on_demand_watermark import OnDemandWatermark
from upstream.core.watermark.policies import FeedProgress, Policy

from .shapes import Curve, Figure, Panel
from .simulator import Estimate, estimate

__all__ = ["falls_then_rises", "figure_7", "figure_8"]

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
        The most rows and punctuations that wait at once. As in the paper, a punctuation waits in its input's buffer
        until the other input has come as far (its figure 5).
    peak_latest : float
        The same if a buffer keeps only its latest punctuation, as UpStream's do.
    """

    latency_ms: float
    idle: float
    peak: float
    peak_latest: float


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
    progress = {feed: FeedProgress(Policy("arrival")) for feed in RATES}
    heard = dict.fromkeys(RATES, 0)
    for each in progress.values():
        each.close_batch(0)
    on_demand = OnDemandWatermark(internal=True)
    held: list[int] = []
    marks: deque[int] = deque()  # punctuation that waits
    finishing: tuple[deque[int], deque[int]] = (deque(), deque())  # when punctuation is done, and when rows are
    free = idle = waited = rows = peak = peak_latest = last = 0
    for now, feed, is_row in events(seed, seconds, punctuations_per_second):
        if held:
            idle += now - max(last, min(free, now))
        last = now
        for each in finishing:
            while each and each[0] <= now:
                each.popleft()
        if is_row:
            heapq.heappush(held, now)
        else:
            marks.append(now)
        if how != "latent":
            progress[feed].close_batch(now)
            heard[feed] = now
            if how == "on demand" and held and on_demand.enable(progress, heard, [held[0]], now):
                marks.append(now)
                idle += COST_US  # until the timestamp has come through
        waiting_rows, waiting_marks = (
            len(each) + len(done) for each, done in zip((held, marks), reversed(finishing), strict=True)
        )
        peak = max(peak, waiting_rows + waiting_marks)
        peak_latest = max(peak_latest, waiting_rows + min(waiting_marks, 1))
        bound = now if how == "latent" else min(each.bound or 0 for each in progress.values())
        free = max(free, now)
        while (held and held[0] <= bound) or (marks and marks[0] <= bound):
            free += COST_US
            of_row = not marks or bool(held and held[0] < marks[0])
            finishing[of_row].append(free)
            if of_row:
                waited += free - heapq.heappop(held)
                rows += 1
            else:
                marks.popleft()
    return UnionOutcome(waited / max(rows, 1) / 1e3, 100 * idle / max(last, 1), peak, peak_latest)


@functools.lru_cache(maxsize=2)
def _runs(quick: bool) -> tuple[Sequence[float], dict[str, list[list[UnionOutcome]]]]:
    """Return the outcomes of some seeds, for each method and each rate of punctuation."""
    seconds, seeds, rates = (600, 2, (0.1, 1, 10, 100, 400)) if quick else (3000, 5, (0.1, 1, 10, 100, 400))
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
    peak, latest = (_curves(rates, found, what) for what in ("peak", "peak_latest"))
    none, periodic, demand = (peak[how].means for how in ("none", "periodic", "on demand"))
    alone = dataclasses.replace(latest["periodic"], name="periodic, latest only")
    panel = Panel(
        "peak queue",
        "punctuations per second",
        "rows and punctuations",
        [*peak.values(), alone],
        log=True,
        log_x=True,
    )
    best = periodic.index(min(periodic))
    remarks = [
        f"{none[0]:.0f} without timestamps (paper: thousands)",
        f"{none[0] / demand[0]:.0f} times what waits on demand (paper: more than two orders)",
        f"periodic falls to {periodic[best]:.3g} at {rates[best]:g} a second (paper: falls, then rises)",
        f"and rises to {periodic[-1]:.3g} at {rates[-1]:g}; {alone.means[-1]:.3g} if only the latest waits, as here",
    ]
    differs = falls_then_rises(none[0], periodic, demand[0])
    if any(later > 1.1 * earlier for earlier, later in pairwise(alone.means)):
        differs.append(f"where only the latest punctuation waits, the peak is {alone.means}, wanted ever less")
    return Figure("Union of 50 and 0.05 rows/s: memory", [panel], differs, remarks)


def falls_then_rises(none: float, periodic: Sequence[float], demand: float) -> list[str]:
    """Return where peak queues are not as in figure 8: two orders apart, and periodic ones fall first, then rise.

    Parameters
    ----------
    none, demand
        Without timestamps, and on demand.
    periodic
        By the rate of punctuation.
    """
    differs: list[str] = []
    if not none > 100 * demand:
        differs.append(f"peak queue {none:.0f} without timestamps and {demand:.0f} on demand, wanted two orders")
    if not none > periodic[0] or not min(periodic) > demand:
        differs.append(f"periodic is {periodic}, wanted between {none:.0f} without timestamps and {demand:.0f}")
    best = periodic.index(min(periodic))
    fall, rise = periodic[: best + 1], periodic[best:]
    if not (fall[0] > 5 * fall[-1] and sorted(fall, reverse=True) == list(fall)):
        differs.append(f"periodic is {periodic}, wanted less at first the oftener punctuation comes")
    if not (rise[-1] > 2 * rise[0] and sorted(rise) == list(rise)):
        differs.append(f"periodic is {periodic}, wanted more again at high rates")
    return differs
