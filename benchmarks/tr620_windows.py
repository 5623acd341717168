"""Figures 12 to 14 of the UpStream report (ETH TR 620), its window buffers' memory, and what their shape must be."""

from __future__ import annotations

import itertools

import numpy as np

from upstream.operators.windows.kinds import SlidingWindows

from .models.marks import Result
from .models.transitions import SEMANTICS, KeyTransitionGraph, Semantics
from .shapes import Curve, Figure, Panel
from .simulator import Estimate, estimate, page_fill
from .window_simulator import TickOutcome, WindowLoad, run_windows, ticks

__all__ = ["figure_12", "figure_13", "figure_13b", "figure_14", "window_memory"]

_TRACES: dict[Semantics, list[tuple[int, int]]] = {
    # Results: the tick at which each is out, and the tick of the row that opened its window.
    "lazy": [(9, 1), (15, 7)],
    "eager": [(7, 1), (13, 7)],
}


def figure_12(quick: bool) -> Figure:
    """Repeat figure 12: execution traces of one key, ω = 3, δ = 1, C_t = 2."""
    del quick  # it is as short as it can be
    panels: list[Panel] = []
    differs: list[str] = []
    remarks: list[str] = []
    for semantics in SEMANTICS:
        graph = KeyTransitionGraph(SlidingWindows(3, 1), semantics, cost=2)
        x: list[int] = []
        queue: list[int] = []
        application: list[int] = []
        results: list[tuple[int, Result]] = []
        since: int | None = None
        oldest = 3  # the last tick of the first window that no result covers yet
        for tick, served in ticks(graph, WindowLoad.round_robin(1, 16, shared=True)):
            # Just before the tick, and after it: what falls does so at once.
            x += [tick, tick]
            queue += [tick - since if since is not None else 0]
            application += [max(tick - oldest, 0)]
            since = graph.waits_since(0)
            if served.results:
                oldest = served.results[-1].end + 1
            queue += [tick - since if since is not None else 0]
            application += [max(tick - oldest, 0)]
            results += [(tick, result) for result in served.results]
        found = [(tick, result.start) for tick, result in results]
        if found != _TRACES[semantics]:
            differs.append(f"{semantics}: results (tick, window's start) {found}, wanted {_TRACES[semantics]}")
        remarks.append(
            f"{semantics}: " + ", ".join(f"at {tick} the window {r.start} to {r.end}" for tick, r in results)
        )
        curves = [
            Curve("application", x, [Estimate(value, 0.0) for value in application]),
            Curve("queue", x, [Estimate(value, 0.0) for value in queue]),
        ]
        panels.append(Panel(semantics, "tick", "staleness in ticks", curves))
    return Figure("Execution traces, ω = 3, δ = 1, C_t = 2", panels, differs, remarks)


def figure_13(quick: bool) -> Figure:
    """Repeat figure 13(a): tumbling windows, one key, C_t = 1."""
    sizes = (1, 2, 5, 10, 20) if quick else (1, 2, 5, 10, 20, 30, 40, 50)
    load = WindowLoad.round_robin(1, 1000 if quick else 5000, shared=True)
    lazy, eager = (
        [run_windows(SlidingWindows(size, size), load, semantics).staleness for size in sizes]
        for semantics in SEMANTICS
    )
    differs: list[str] = []
    slope = float(np.polyfit(sizes, lazy, 1)[0])
    fit = float(np.corrcoef(sizes, lazy)[0, 1])
    if fit < 0.999 or slope <= 0:
        differs.append(f"lazy does not grow linearly with ω (correlation {fit:.4f}, slope {slope:.3f})")
    if any(after >= before for before, after in itertools.pairwise(eager)):
        differs.append(f"eager does not fall as ω grows: {eager}")
    per_window = [value * size for value, size in zip(eager, sizes, strict=True)]
    if max(per_window) > 1.05 * min(per_window):
        differs.append(f"eager's staleness per window is not the same for every ω: {per_window}")
    curves = [
        Curve(name, sizes, [Estimate(v, 0.0) for v in y]) for name, y in zip(SEMANTICS, (lazy, eager), strict=True)
    ]
    remark = f"lazy grows by {slope:.3f} ticks per tick of ω (correlation {fit:.5f}); eager · ω is {per_window[-1]:.3f}"
    panel = Panel("tumbling, 1 key, C_t = 1", "ω in ticks", "application staleness in ticks", curves)
    return Figure("Windowing semantics: tumbling windows", [panel], differs, [remark])


def figure_13b(quick: bool) -> Figure:
    """Repeat figure 13(b): windows that slide at each tick, one key, C_t = 1; append semantics, random window drop."""
    sizes = (2, 5, 10) if quick else (2, 5, 10, 20, 30, 40, 50)
    load = WindowLoad.round_robin(1, 500 if quick else 3000, shared=True)
    seeds = 3 if quick else 8
    found: dict[str, list[Estimate]] = {"append": [], "random window drop": [], "lazy": [], "eager": []}
    for size in sizes:
        windows = SlidingWindows(size, 1)
        drop = [run_windows(windows, load, "drop", seed=seed).staleness for seed in range(seeds)]
        found["random window drop"].append(estimate(drop))
        for semantics in ("append", "lazy", "eager"):
            found[semantics].append(Estimate(run_windows(windows, load, semantics).staleness, 0.0))
    differs: list[str] = []
    for i, size in enumerate(sizes):
        append, drop, lazy, eager = (found[name][i] for name in found)
        if not (max(eager.mean, lazy.mean) * 2 < drop.mean and drop.mean * 2 < append.mean):
            differs.append(f"ω = {size}: not eager {eager}, lazy {lazy} ≪ random drop {drop} ≪ append {append}")
        if eager.mean >= lazy.mean:
            differs.append(f"ω = {size}: eager {eager} is not below lazy {lazy}")
    curves = [Curve(name, sizes, y) for name, y in found.items()]
    panel = Panel("δ = 1, 1 key, C_t = 1", "ω in ticks", "application staleness in ticks", curves, log=True)
    return Figure("Windowing semantics: overlapping windows", [panel], differs)


def figure_14(quick: bool) -> Figure:
    """Repeat figure 14: eager / lazy for 10 keys, δ = 1, C_t = 1, in-place."""
    sizes = (2, 3) if quick else (2, 3, 4, 6, 10, 20)
    length, seeds = (800, 2) if quick else (3000, 3)
    panels: list[Panel] = []
    differs: list[str] = []
    remarks: list[str] = []
    for shared in (False, True):
        curves: list[Curve] = []
        for skew in (0.0, 0.5, 0.9, None):
            y: list[Estimate] = []
            for size in sizes:
                ratios: list[float] = []
                for seed in range(seeds if skew is not None else 1):
                    load = (
                        WindowLoad.round_robin(10, length, shared=shared)
                        if skew is None
                        else WindowLoad.zipf(10, skew, length, seed, shared=shared)
                    )
                    lazy, eager = (run_windows(SlidingWindows(size, 1), load, each).staleness for each in SEMANTICS)
                    ratios.append(eager / lazy)
                y.append(estimate(ratios) if skew is not None else Estimate(ratios[0], 0.0))
            name = "round-robin" if skew is None else f"Zipf θ = {skew:g}"
            curves.append(Curve(name, sizes, y))
            wrong = [
                f"{value} at {size}"
                for size, value in zip(sizes, y, strict=True)
                if (value.mean >= 1 if skew is None else value.mean <= 1)
            ]
            finding = f"{name}: eager / lazy is {', '.join(wrong)}, wanted {'below' if skew is None else 'above'} 1"
            if wrong and not shared:
                differs.append(finding)
            elif wrong:
                remarks.append(f"one clock for all keys, {finding}")
        title = "one clock for all keys" if shared else "a clock for each key's source"
        panels.append(Panel(title, "ω in ticks", "application staleness eager / lazy", curves))
    return Figure("Multiple keys and arrival patterns", panels, differs, remarks)


def window_memory(quick: bool) -> Figure:
    """Compare window buffers in blocks on demand with the greatest buffer for each key (§7.2, §7.3).

    The figures are averages over skews.
    """
    size = 10 if quick else 20
    blocks = (1, 2, 5) if quick else (1, 2, 5, 10, 20)
    keys, length = (20, 400) if quick else (100, 4000)
    effective: list[Curve] = []
    usage: list[Curve] = []
    differs: list[str] = []
    remarks: list[str] = []
    for semantics in SEMANTICS:
        runs: list[list[TickOutcome]] = [
            [
                run_windows(
                    SlidingWindows(size, 1),
                    WindowLoad.zipf(keys, skew, length, seed=0),
                    semantics,
                    blocks=(block, max(50 // block, 1)),
                )
                for skew in (0.0, 0.3, 0.6, 0.9)
            ]
            for block in blocks
        ]
        sides = {
            "on-demand": [[r.on_demand for r in row] for row in runs],
            "naive": [[r.naive for r in row] for row in runs],
        }
        for name, side in sides.items():
            label = f"{semantics}, {name}"
            effective.append(Curve(label, blocks, [estimate([u.effective for u in row]) for row in side]))
            usage.append(Curve(label, blocks, [estimate([u.average for u in row]) for row in side]))
        fill = [estimate([page_fill(u) for u in row]) for row in sides["on-demand"]]
        effective.append(Curve(f"{semantics}, page fill", blocks, fill))
        most = max(r.most_held for row in runs for r in row)
        # ω + δ - 1 (§7.2), where the committed window overlaps what follows it; a lazy one may not.
        limit = size if semantics == "eager" else 2 * size - 1
        remarks.append(f"{semantics}: at most {most} rows in a window buffer, limit {limit}")
        if most > limit:
            differs.append(f"{semantics}: {most} rows in a window buffer, wanted at most {limit}")
        # The report counts locations, so what it says holds where a block is one.
        rows = runs[blocks.index(1)]
        if any(r.on_demand.average > r.naive.average for r in rows):
            differs.append(f"{semantics}: on-demand uses more than naive, row by row")
        if any(r.on_demand.effective < 1 for r in rows):
            differs.append(f"{semantics}: on-demand does not use all that it allocates, row by row")
    panels = [
        Panel("Effective usage", "rows in a block", "share of allocated in use", effective),
        Panel("Usage", "rows in a block", "rows allocated", usage),
    ]
    return Figure(f"Memory of window buffers, ω = {size}, δ = 1", panels, differs, remarks)
