"""What the UpStream report derives (§5.1, §5.2), against what is simulated."""

from __future__ import annotations

import itertools

import numpy as np

from .shapes import Figure
from .simulator import COST_S, Workload, estimate, run

__all__ = ["theory"]


def theory(quick: bool) -> Figure:
    """Check §5.1's bounds, the staleness of one key in closed form, and §5.2's order against all others."""
    results, seeds = (400, 3) if quick else (3000, 10)
    remarks: list[str] = []
    differs: list[str] = []
    for keys, load, policy in itertools.product((1, 10), (2, 5, 10), ("in-place", "fifo")):
        runs = [run(Workload(keys, load / COST_S), policy, seed, results) for seed in range(seeds)]
        # Area per result: keys * time * difference of the averages / results.
        delta = estimate([(r.application.mean - r.queue.mean) * keys * results * COST_S / r.applied for r in runs])
        low = sum(r.wait_s for r in runs) / seeds * COST_S
        high = low + COST_S**2 / 2
        remarks.append(f"5.1 {policy:9} {keys:2} keys, load {load:2}: {low:.4f} <= delta {delta} <= {high:.4f} s²")
        edge = 12 * COST_S**2 * keys / results * keys  # what was open at the end belongs to no result
        if not low - edge <= delta.mean <= high + edge:
            differs.append(f"§5.1, {policy}, {keys} keys, load {load}: {delta} is not in [{low:.4f}, {high:.4f}]")
    for load in (2, 5, 10):
        expected = (load - 1) ** 2 / (2 * load), load - 1 / (2 * load)
        one = run(Workload(1, load / COST_S), "in-place", 0, results)
        rate = load / COST_S
        found = one.queue.mean * rate, (one.application.mean - one.queue.mean) * rate
        remarks.append(
            f"1 key, load {load:2}: queue {found[0]:.4f}, exact (L-1)²/2L = {expected[0]:.4f}; "
            f"difference {found[1]:.4f}, exact L - 1/2L = {expected[1]:.4f} updates"
        )
        if not np.allclose(found, expected, rtol=0.02):
            differs.append(f"1 key, load {load}: {found}, exact {expected}")
        # With Poisson arrivals the first update after a dequeue comes after X ~ Exp(u), and waits max(c - X, 0):
        # E[(c - X)+²] / 2c, with c in units of 1/u equal to the load.
        poisson = estimate(
            [run(Workload(1, rate, poisson=True), "in-place", s, results).queue.mean * rate for s in range(seeds)]
        )
        exact = (load**2 - 2 * load + 2 - 2 * np.exp(-load)) / (2 * (load + np.exp(-load)))
        remarks.append(f"1 key, load {load:2}, Poisson: queue {poisson}, exact {exact:.4f} updates")
        if not poisson.holds(exact, 0.02):
            differs.append(f"1 key, load {load}, Poisson: {poisson}, exact {exact:.4f}")
    best, others = service_orders(quick)
    remarks.append(
        f"5.2: area by first enqueue {best:.4f}; least of all other orders {min(others):.4f} (of {len(others)})"
    )
    if best > min(others) + 1e-9:
        differs.append(f"§5.2: the order of first enqueues gives {best:.4f}, another {min(others):.4f}")
    return Figure("Derived and simulated", [], differs, ["", *remarks])


def service_orders(quick: bool) -> tuple[float, list[float]]:
    """Return the queue staleness area of pending keys, served by first enqueue and in every other order.

    The figures are averages over draws.

    Keys of equal rates: what comes after a dequeue is the same for all, so it does not tell orders apart.
    """
    keys = 5 if quick else 7
    generator = np.random.default_rng(1)
    first = np.sort(generator.uniform(-keys * COST_S, 0, (200, keys)), axis=1)
    slot = np.arange(keys) * COST_S
    areas: list[float] = []
    for order in itertools.permutations(range(keys)):
        served = np.empty(keys)
        served[list(order)] = slot
        areas.append(float(((served - first) ** 2 / 2).sum(axis=1).mean()))
    return areas[0], areas[1:]
