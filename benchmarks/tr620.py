"""Figures 5, 7, 9, 16 and 17 of the UpStream report (ETH TR 620), and what their shape must be."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from upstream.operators.capacity.simulation import SimulationFigures

from .shapes import Curve, Figure, Panel
from .simulator import COST_S, Estimate, Workload, estimate, page_fill, run

__all__ = ["figure_5", "figure_7", "figure_9", "figure_16", "figure_17", "hump", "order_of_queues"]

_SKEWS = (0.0, 0.3, 0.6, 0.9)
_RATES = (20, 50, 100, 200, 500, 1000)

LOADS = tuple(range(1, 11))


def _size(quick: bool) -> tuple[int, int]:
    """Return the results per run, and the seeds."""
    return (400, 2) if quick else (1500, 5)


def _scaled(values: list[float], by: float) -> Estimate:
    return estimate([value * by for value in values])


def figure_5(quick: bool) -> Figure:
    """Repeat figure 5: application against queue staleness, in updates (time × rows per second), in-place."""
    results, seeds = _size(quick)
    panels: list[Panel] = []
    gaps: dict[int, np.ndarray] = {}
    differs: list[str] = []
    for keys in (1, 10):
        curves: dict[str, list[Estimate]] = {"application": [], "queue": [], "difference": [], "queue wait": []}
        for load in LOADS:
            rate = load / COST_S
            runs = [run(Workload(keys, rate), "in-place", seed, results) for seed in range(seeds)]
            curves["application"].append(_scaled([each.application.mean for each in runs], rate))
            curves["queue"].append(_scaled([each.queue.mean for each in runs], rate))
            curves["difference"].append(_scaled([each.application.mean - each.queue.mean for each in runs], rate))
            curves["queue wait"].append(_scaled([each.wait_s for each in runs], rate))
        gap = np.array([each.mean for each in curves["difference"]])
        wait = np.array([each.mean for each in curves["queue wait"]])
        gaps[keys] = gap
        fit = float(np.corrcoef(wait, gap)[0, 1])
        if fit < 0.999:
            differs.append(
                f"{keys} keys: the difference is not linear in the wait (correlation {fit:.4f}, wanted 0.999)"
            )
        shown = [Curve(name, LOADS, y) for name, y in curves.items()]
        panels.append(Panel(f"{keys} key{'s' * (keys > 1)}", "load", "staleness in updates", shown))
    slopes = {keys: float(np.polyfit(LOADS, gap, 1)[0]) for keys, gap in gaps.items()}
    if abs(slopes[10] / slopes[1] - 1) > 0.1:
        differs.append(f"the difference grows by {slopes[1]:.2f} per load with 1 key, {slopes[10]:.2f} with 10")
    ratio = panels[1].curves[1].means[-1] / panels[0].curves[1].means[-1]
    if not 5 < ratio < 15:
        differs.append(
            f"queue staleness with 10 keys is {ratio:.1f} times that with 1 at load 10, about 10 in the report"
        )
    remark = (
        f"the difference grows by {slopes[1]:.3f} updates per load with 1 key, by {slopes[10]:.3f} with 10; "
        f"queue staleness with 10 keys is {ratio:.1f} times that with 1 at load 10"
    )
    return Figure("Application and queue staleness (in-place)", panels, differs, [remark])


def figure_7(quick: bool) -> Figure:
    """Repeat figure 7: the four policies, application staleness in updates."""
    results, seeds = _size(quick)
    loads = (1, 2, 6) if quick else LOADS
    policies = ("append", "shed", "fifo", "in-place")
    panels: list[Panel] = []
    differs: list[str] = []
    for keys in (1, 10):
        found: dict[str, list[Estimate]] = {policy: [] for policy in policies}
        for load in loads:
            rate = load / COST_S
            for policy in policies:
                runs = [run(Workload(keys, rate), policy, seed, results) for seed in range(seeds)]
                found[policy].append(_scaled([each.application.mean for each in runs], rate))
        for i, load in enumerate(loads):
            here = {policy: found[policy][i].mean for policy in policies}
            differs += [f"{keys} keys, load {load}: {each}" for each in order_of_queues(keys, load, here)]
        shown = [Curve(policy, loads, found[policy]) for policy in policies]
        title = f"{keys} key{'s' * (keys > 1)}"
        panels.append(Panel(title, "load", "application staleness in updates", shown, log=True))
    return Figure("Append queue and update queues", panels, differs)


def order_of_queues(keys: int, load: float, staleness: Mapping[str, float]) -> list[str]:
    """Return where queues are not in the order of figure 7: in-place, fifo, shed, append.

    At load 1 nothing is shed, and little waits. With one key, fifo and in-place are the same queue.
    """
    append, shed, fifo, place = (staleness[policy] for policy in ("append", "shed", "fifo", "in-place"))
    differs: list[str] = []
    if place > fifo + 1e-9:
        differs.append(f"in-place {place:.4g} is above fifo {fifo:.4g}")
    if load >= 2 and keys > 1 and place > 0.95 * fifo:
        differs.append(f"in-place {place:.4g} is not below fifo {fifo:.4g}")
    if load >= 2 and not (fifo * 2 < shed and shed * 2 < append):
        differs.append(f"not fifo {fifo:.4g} ≪ shed {shed:.4g} ≪ append {append:.4g}")
    return differs


def figure_9(quick: bool) -> Figure:
    """Repeat figure 9: queue staleness in-place / linecutting.

    The load is 5 when no key is slow; a slow key has a tenth of a fast key's rate.
    """
    results, seeds = (400, 2) if quick else (2000, 6)
    x = (0, 2, 8, 10) if quick else tuple(range(11))
    curves: list[Curve] = []
    differs: list[str] = []
    remarks: list[str] = []
    readings = (("rates known", True, False), ("rates measured", False, False), ("load 5 throughout", True, True))
    for name, known, always in readings:
        y: list[Estimate] = []
        for slow in x:
            share = np.array([0.1] * slow + [1.0] * (10 - slow))
            rates = share / (share.sum() if always else 10) * 5 / COST_S
            work = Workload(10, float(rates.sum()), rates=tuple(rates.tolist()))
            ratios: list[float] = []
            for seed in range(seeds):
                place = run(work, "in-place", seed, results, known_rates=known).queue.mean
                cutting = run(work, "linecutting", seed, results, known_rates=known).queue.mean
                ratios.append(place / cutting if cutting > 0 else 1.0)
            y.append(estimate(ratios))
        curves.append(Curve(name, x, y))
        best = x[int(np.argmax([each.mean for each in y]))]
        differs += [f"{name}: {each}" for each in hump(x, y, gains=not always)]
        if always:
            remarks.append(
                f"{name}: largest at {best}; the slow keys alone fill the server from 7 on, so they may not cut"
            )
        else:
            remarks.append(f"{name}: largest at {best} (report: near 8); {y[x.index(8)]} at 8")
    panel = Panel("10 keys, load 5", "slow updaters", "queue staleness in-place / linecutting", curves)
    return Figure("Linecutting", [panel], differs, remarks)


def hump(x: Sequence[int], y: Sequence[Estimate], *, gains: bool) -> list[str]:
    """Return where in-place / linecutting is not 1 at both ends, or below 1, or without a top near 8.

    Parameters
    ----------
    x
        The number of slow updaters, of 10.
    y
    gains
        Whether slow keys may cut: the top is within noise of 8, and above 1 by more than a run's noise.
    """
    at = dict(zip(x, y, strict=True))
    means = {slow: each.mean for slow, each in at.items()}
    best = max(means, key=lambda slow: means[slow])
    differs: list[str] = []
    below = [f"{mean:.3f} at {slow}" for slow, mean in means.items() if mean < 0.96]
    if below:
        differs.append(f"below 1: {', '.join(below)}")
    if abs(means[0] - 1) > 0.01 or abs(means[10] - 1) > 0.01:
        differs.append(f"{means[0]:.3f} at 0 and {means[10]:.3f} at 10, wanted 1")
    if gains and (best not in range(5, 10) or at[8].mean + at[8].half < at[best].mean - at[best].half):
        differs.append(f"largest at {best}, wanted near 8")
    if gains and not means[8] > 1.03:
        differs.append(f"{means[8]:.3f} at 8, wanted well above 1")
    return differs


def figure_16(quick: bool) -> Figure:
    """Repeat figure 16: memory of on-demand pages against a cell for every key ever seen, over the skew of the keys.

    The figures are averages over the loads of figure 17.
    """
    runs = _memory_runs(quick)
    panels, means = _memory(runs, "θ", _SKEWS, 0)
    differs = _memory_bounds(runs)
    usage = means["on-demand", "usage"]
    if any(later >= earlier for earlier, later in pairwise(usage)):
        differs.append(f"on-demand usage is {usage}, wanted ever less with the skew")
    effective = means["naive", "effective"]
    if any(later >= earlier for earlier, later in pairwise(effective)):
        differs.append(f"naive effective usage is {effective}, wanted ever less with the skew")
    flat = means["naive", "usage"]
    fall, growth = usage[0] - usage[-1], max(flat) - min(flat)
    if growth > fall / 2:
        differs.append(f"naive usage goes from {max(flat):.1f} to {min(flat):.1f}, wanted much flatter than on-demand")
    return Figure("Memory of an update queue, over skew", panels, differs)


def figure_17(quick: bool) -> Figure:
    """Repeat figure 17: the same as figure 16 over the load. The figures are averages over the skews of figure 16."""
    runs = _memory_runs(quick)
    panels, _ = _memory(runs, "rows per second", _RATES, 1)
    return Figure("Memory of an update queue, over load", panels, _memory_bounds(runs))


_MemoryRuns = dict[tuple[float, int], SimulationFigures]
"""By the exponent of Zipf's law and rows per second."""


@functools.lru_cache(maxsize=2)
def _memory_runs(quick: bool) -> _MemoryRuns:
    """Simulate 100 keys with each skew at each load."""
    results = 500 if quick else 1000
    return {
        (skew, rate): run(Workload(100, rate, skew), "in-place", 0, results, page_slots=10, looks=5)
        for skew in _SKEWS
        for rate in _RATES
    }


def _memory(
    runs: _MemoryRuns, xlabel: str, xs: Sequence[float], parameter: int
) -> tuple[list[Panel], dict[tuple[str, str], list[float]]]:
    """Return both panels over one of the two parameters, and the means by scheme and measure."""
    found: dict[tuple[str, str], list[Estimate]] = {}
    fill: list[Estimate] = []
    for x in xs:
        here = [outcome for given, outcome in runs.items() if given[parameter] == x]
        fill.append(estimate([page_fill(each.on_demand) for each in here]))
        for scheme, sides in (("on-demand", [r.on_demand for r in here]), ("naive", [r.naive for r in here])):
            found.setdefault((scheme, "effective"), []).append(estimate([side.effective for side in sides]))
            found.setdefault((scheme, "usage"), []).append(estimate([side.average for side in sides]))
    effective = [Curve(scheme, xs, y) for (scheme, measure), y in found.items() if measure == "effective"]
    usage = [Curve(scheme, xs, y) for (scheme, measure), y in found.items() if measure == "usage"]
    panels = [
        Panel("Effective usage", xlabel, "share of allocated in use", [*effective, Curve("page fill", xs, fill)]),
        Panel("Usage", xlabel, "locations", usage),
    ]
    return panels, {name: [each.mean for each in y] for name, y in found.items()}


def _memory_bounds(runs: _MemoryRuns) -> list[str]:
    """Return in which runs on-demand pages hold what is not in use, or more than the naive scheme."""
    differs: list[str] = []
    for (skew, rate), outcome in runs.items():
        here = f"θ = {skew:g}, {rate} rows/s"
        if outcome.on_demand.effective < 1:
            differs.append(f"{here}: effective usage {outcome.on_demand.effective:.3f}, wanted 1")
        if outcome.on_demand.average > outcome.naive.average:
            differs.append(f"{here}: on-demand uses more than naive")
    return differs
