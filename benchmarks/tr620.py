"""Figures 5, 7, 9, 16 and 17 of the UpStream report (ETH TR 620), and what their shape must be."""

from __future__ import annotations

import numpy as np

from .shapes import Curve, Figure, Panel
from .simulator import COST_S, Estimate, Workload, estimate, run

__all__ = ["figure_5", "figure_7", "figure_9", "figure_16", "figure_17"]

_SKEWS = (0.0, 0.3, 0.6, 0.9)

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
    policies = ("append", "shed", "fifo", "in-place")
    panels: list[Panel] = []
    differs: list[str] = []
    for keys in (1, 10):
        found: dict[str, list[Estimate]] = {policy: [] for policy in policies}
        for load in LOADS:
            rate = load / COST_S
            for policy in policies:
                runs = [run(Workload(keys, rate), policy, seed, results) for seed in range(seeds)]
                found[policy].append(_scaled([each.application.mean for each in runs], rate))
        for i, load in enumerate(LOADS):
            append, shed, fifo, place = (found[policy][i] for policy in policies)
            if place.mean > fifo.mean + place.half + fifo.half + 1e-9:
                differs.append(f"{keys} keys, load {load}: in-place {place} is above fifo {fifo}")
            # From load 2 on: at load 1 nothing is shed, and little waits.
            if load >= 2 and not (fifo.mean * 2 < shed.mean and shed.mean * 2 < append.mean):
                differs.append(f"{keys} keys, load {load}: not fifo {fifo} ≪ shed {shed} ≪ append {append}")
        shown = [Curve(policy, LOADS, found[policy]) for policy in policies]
        title = f"{keys} key{'s' * (keys > 1)}"
        panels.append(Panel(title, "load", "application staleness in updates", shown, log=True))
    return Figure("Append queue and update queues", panels, differs)


def figure_9(quick: bool) -> Figure:
    """Repeat figure 9: queue staleness in-place / linecutting.

    The load is 5 when no key is slow; a slow key has a tenth of a fast key's rate.
    """
    results, seeds = (500, 3) if quick else (2000, 6)
    x = tuple(range(11))
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
        means = [each.mean for each in y]
        below = [f"{means[i]:.3f} at {i}" for i in x if means[i] + y[i].half < 0.99]
        if below:
            differs.append(f"{name}: below 1: {', '.join(below)}")
        if abs(means[0] - 1) > 0.01 or abs(means[10] - 1) > 0.01:
            differs.append(f"{name}: {means[0]:.3f} at 0 and {means[10]:.3f} at 10, wanted 1")
        best = int(np.argmax(means))
        if always:
            remarks.append(
                f"{name}: largest at {best}; the slow keys alone fill the server from 7 on, so they may not cut"
            )
        elif best not in range(5, 10) or means[8] + y[8].half < means[best] - y[best].half:
            differs.append(f"{name}: largest at {best}, wanted near 8")
        else:
            remarks.append(f"{name}: largest at {best}; {y[8]} at 8")
    panel = Panel("10 keys, load 5", "slow updaters", "queue staleness in-place / linecutting", curves)
    return Figure("Linecutting", [panel], differs, remarks)


def figure_16(quick: bool) -> Figure:
    """Repeat figure 16: how often each of 100 keys updates, in the arrivals of figure 17's simulation."""
    seeds, seconds = (3, 20) if quick else (10, 60)
    curves: list[Curve] = []
    differs: list[str] = []
    for skew in _SKEWS:
        came = [Workload(100, 1000, skew).arrivals(seed, seconds * 1_000_000).key for seed in range(seeds)]
        counts = np.array([np.bincount(key, minlength=100) for key in came])
        percent = 100 * counts / counts.sum(axis=1, keepdims=True)
        y = [estimate(percent[:, key].tolist()) for key in range(100)]
        curves.append(Curve(f"θ = {skew:g}", range(1, 101, 9), y[::9]))
        # Zipf: of n updates a key with share p gets n p, give or take √(n p (1 - p)); five times that happens to none
        # of 400 keys.
        share = np.arange(1, 101) ** -skew
        share /= share.sum()
        n = int(counts.sum())
        far = np.abs(counts.sum(axis=0) - n * share) > 5 * np.sqrt(n * share * (1 - share))
        if far.any():
            differs.append(f"θ = {skew:g}: the rates of keys {np.flatnonzero(far).tolist()} are not Zipf's")
    return Figure("Update rates by key", [Panel("100 keys", "key", "% of updates", curves)], differs)


def figure_17(quick: bool) -> Figure:
    """Repeat figure 17: memory of on-demand pages against a cell for every key ever seen.

    The figures are averages over the skews of figure 16.
    """
    results, seeds = (200, 1) if quick else (1000, 1)
    rates = (20, 50, 100, 200, 500, 1000)
    names = ("on-demand", "naive")
    effective: dict[str, list[Estimate]] = {name: [] for name in names}
    usage: dict[str, list[Estimate]] = {name: [] for name in names}
    fill: list[Estimate] = []
    differs: list[str] = []
    for rate in rates:
        runs = [
            run(Workload(100, rate, skew), "in-place", seed, results, page_slots=10, looks=5)
            for skew in _SKEWS
            for seed in range(seeds)
        ]
        for name, sides in zip(names, ([r.on_demand for r in runs], [r.naive for r in runs]), strict=True):
            effective[name].append(estimate([side.effective for side in sides]))
            usage[name].append(estimate([side.average for side in sides]))
        fill.append(estimate([r.on_demand.page_fill for r in runs]))
        if any(r.on_demand.effective < 1 for r in runs):
            differs.append(f"{rate} rows/s: effective usage {effective['on-demand'][-1]}, wanted 1")
        if any(r.on_demand.average > r.naive.average for r in runs):
            differs.append(f"{rate} rows/s: on-demand uses more than naive")
    panels = [
        Panel("Effective usage (17a)", "rows per second", "share of allocated in use",
              [*(Curve(name, rates, effective[name]) for name in names), Curve("page fill", rates, fill)]),
        Panel("Usage (17b)", "rows per second", "locations", [Curve(name, rates, usage[name]) for name in names]),
    ]  # fmt: skip
    return Figure("Memory of an update queue", panels, differs)
