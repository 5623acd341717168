"""Repeat figures 6-10, 6-15 and 6-19 of Li's thesis: the cost of window aggregation in operations, time and memory."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from upstream.operators.aggregates.functions import count, max_, stddev_pop
from upstream.operators.windows.emission import expand
from upstream.operators.windows.kinds import SlidingWindows
from upstream.operators.windows.shards.plan import Method

from .shapes import Curve, Figure, Panel
from .simulator import Estimate, estimate
from .window_query import CountedAggregates, Query, rows_table, window_plan

__all__ = ["figure_6_10", "figure_6_15", "figure_6_19", "latency", "small_groups"]

Int64s = npt.NDArray[np.int64]

_RANGE = 4000


def _numbered(seed: int, n: int) -> pa.Table:
    """Return rows without disorder; their times are their numbers."""
    values = np.random.default_rng(seed).integers(0, 1_000_000, n)
    return rows_table(np.zeros(n, dtype=np.int64), np.arange(n, dtype=np.int64), values)


@dataclasses.dataclass
class _Cost:
    operations: float
    cpu_s: float


def _cost(method: Method, windows: SlidingWindows, rows: pa.Table, batch_rows: int) -> _Cost:
    """Return the cost of all rows, in batches with punctuation after each, up to the end of the feed."""
    query = Query(window_plan(windows, {"top": max_("v")}, method))
    for low in range(0, rows.num_rows, batch_rows):
        query.batch(rows.slice(low, batch_rows), {"feed": low + batch_rows})
    query.batch(None, {"feed": None})
    return _Cost(query.operations, query.cpu_s)


def _scanning_s(rows: pa.Table, batch_rows: int) -> float:
    """Return the processor time without aggregation: gaps between windows leave all rows outside of windows."""
    return _cost("paned", SlidingWindows(1, 1 << 40), rows, batch_rows).cpu_s


def _rescanned(windows: SlidingWindows, rows: pa.Table, batch_rows: int) -> _Cost:
    """Compute each window from its rows, as the buffering of the thesis does.

    It leaves out sorting, storage, and the building of results.
    """
    plan = window_plan(windows, {"top": max_("v")})
    assert isinstance(plan.algebra, CountedAggregates)
    began, n = time.process_time(), rows.num_rows
    values = rows.select(list(plan.algebra.inputs))
    first = int(windows.wids(0)[0])
    for low in [*range(0, n, batch_rows), n]:
        last = int(windows.wids(n - 1)[1]) if low == n else int(windows.last_complete(low + batch_rows))
        begin, end = windows.extent(np.arange(first, last + 1))
        window, place = expand(np.maximum(begin, 0), np.minimum(end, n) - 1)
        plan.algebra.lower(plan.algebra.lift(values.take(pa.array(place)), window, last + 1 - first))
        first = last + 1
    return _Cost(plan.algebra.operations, time.process_time() - began)


def figure_6_10(quick: bool) -> Figure:
    """Repeat figure 6-10: WID and buffering, windows of 4000 rows, SLIDE from 1 to 4000."""
    slides = (10, 40, 400, 4000) if quick else (1, 4, 10, 40, 100, 400, 1000, 4000)
    n, batch_rows, repeats = (8_000, 2000, 1) if quick else (24_000, 400, 3)
    ways: dict[str, Callable[[SlidingWindows, pa.Table], _Cost]] = {
        "WID": lambda windows, rows: _cost("wid", windows, rows, batch_rows),
        "buffering, each window from its rows": lambda windows, rows: _rescanned(windows, rows, batch_rows),
        "buffering, windows share panes": lambda windows, rows: _cost("buffering", windows, rows, batch_rows),
        "Paned-WID": lambda windows, rows: _cost("paned", windows, rows, batch_rows),
    }
    work: dict[str, list[Estimate]] = {name: [] for name in ways}
    cpu: dict[str, list[Estimate]] = {name: [] for name in ways}
    for slide in slides:
        for name, way in ways.items():
            costs = [way(SlidingWindows(_RANGE, slide), _numbered(seed, n)) for seed in range(repeats)]
            work[name].append(estimate([cost.operations / n for cost in costs]))
            cpu[name].append(estimate([1e6 * cost.cpu_s / n for cost in costs]))
    differs = _over_slides(slides, {name: [each.mean for each in found] for name, found in work.items()})
    ratio = [_RANGE / slide for slide in slides]
    panels = [
        Panel("Operations", "RANGE / SLIDE", "operations per row", _curves(ratio, work), log=True, log_x=True),
        Panel("Processor time", "RANGE / SLIDE", "µs per row", _curves(ratio, cpu), log=True, log_x=True),
    ]
    return Figure("WID and buffering, max over 4000 rows", panels, differs)


def _over_slides(slides: tuple[int, ...], work: dict[str, list[float]]) -> list[str]:
    wid, rescanned, shared, panes = work.values()
    differs: list[str] = []
    if any(a >= b for a, b in zip(wid, rescanned, strict=True)):
        most = max(a / b for a, b in zip(wid, rescanned, strict=True))
        differs.append(
            f"WID does up to {most:.2f} times the operations of buffering, wanted fewer; see benchmarks/README.md"
        )
    gains = [b / a for a, b in zip(panes, rescanned, strict=True)]
    if any(gain < 1 for gain in gains[:-1]) or sorted(gains, reverse=True) != gains:
        differs.append(
            f"buffering / Paned-WID is {gains} for SLIDE {slides}, wanted above 1 and the more so as SLIDE is small"
        )
    if any(a > b for a, b in zip(panes, shared, strict=True)):
        differs.append("Paned-WID does more than buffering whose windows share panes")
    return differs


def _curves(x: list[float], y: dict[str, list[Estimate]]) -> list[Curve]:
    return [Curve(name, x, found) for name, found in y.items()]


def figure_6_15(quick: bool) -> Figure:
    """Repeat figure 6-15: Paned-WID / WID, by tuples per pane and panes per window.

    As in the thesis, processor time excludes scanning.
    """
    in_pane = (1, 5, 20) if quick else (1, 2, 5, 10, 20, 50)
    in_window = (2, 5, 20) if quick else (2, 5, 10, 20)
    n, repeats = (20_000, 1) if quick else (100_000, 5)
    differs: list[str] = []
    work: dict[str, list[Estimate]] = {}
    cpu: dict[str, list[Estimate]] = {}
    for panes in in_window:
        name = f"{panes} panes per window"
        work[name], cpu[name] = [], []
        for tuples in in_pane:
            windows = SlidingWindows(panes * tuples, tuples)
            operations: list[float] = []
            seconds: list[float] = []
            for seed in range(repeats):
                rows = _numbered(seed, n)
                paned, wid = (_cost(method, windows, rows, n // 2) for method in ("paned", "wid"))
                scanning_s = _scanning_s(rows, n // 2)
                operations.append(paned.operations / wid.operations)
                seconds.append((paned.cpu_s - scanning_s) / (wid.cpu_s - scanning_s))
            work[name].append(estimate(operations))
            cpu[name].append(estimate(seconds))
        means = [each.mean for each in work[name]]
        if sorted(means, reverse=True) != means:
            differs.append(f"{name}: {means} for {in_pane} tuples per pane, wanted less the more tuples there are")
    at = work["5 panes per window"][in_pane.index(20)]
    if not 0.2 <= at.mean <= 0.4:
        differs.append(f"at 20 tuples per pane and 5 panes per window {at} of WID's operations, wanted about 0.3")
    x = list(map(float, in_pane))
    panels = [
        Panel("Operations", "tuples per pane", "Paned-WID / WID", _curves(x, work)),
        Panel("Processor time", "tuples per pane", "Paned-WID / WID", _curves(x, cpu)),
    ]
    took = cpu["5 panes per window"][in_pane.index(20)]
    remark = f"at 20 tuples per pane and 5 panes per window: {at} of WID's operations, {took} of its processor time"
    return Figure("What panes save, max", panels, differs, [remark])


_SMALL = (1, 3, 5, 7, 9)
"""% of the records that are in groups of one record: DS1 to DS5."""


def _groups(seed: int, n: int, small: int) -> Int64s:
    """Return the group of each record of DS1-DS5.

    Small groups of 1 have 1-9 % of the records, medium ones of 15 have 20 %, and large ones of 300 have the rest.
    """
    sizes = np.repeat((1, 15, 300), _counts(n, small))
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes), dtype=np.int64), sizes))


def _counts(n: int, small: int) -> tuple[int, int, int]:
    """Return the number of small, medium, and large groups."""
    one, fifteen, many = small / 100, 0.2, 0.8 - small / 100
    return round(n * one), round(n * fifteen / 15), round(n * many / 300)


def small_groups(n: int, small: int) -> float:
    """Return the % of groups that are small: table 6-2 has 39, 66, 77, 82, 87 for DS1-DS5."""
    counts = _counts(n, small)
    return 100 * counts[0] / sum(counts)


def figure_6_19(quick: bool) -> Figure:
    """Repeat figure 6-19: memory of WID and AdaptWID over skewed groups, and what a punctuation waits for.

    The windows are tumbling ones of 1 s, and 10 s every 1 s over three feeds.

    A batch takes the rows of a second and a punctuation, so that its processor time is the latency of panel b, and all
    batches' is panel c.
    """
    n, seeds, seconds = (20_000, 1, 12) if quick else (80_000, 3, 40)
    percents = _SMALL[::4] if quick else _SMALL
    queries = {
        "tumbling, deviation (Q6-7)": (SlidingWindows(1_000_000, 1_000_000), {"spread": stddev_pop("v")}),
        "10 s every 1 s, count (Q6-8)": (SlidingWindows(10_000_000, 1_000_000), {"n": count()}),
        "10 s every 1 s, deviation": (SlidingWindows(10_000_000, 1_000_000), {"spread": stddev_pop("v")}),
    }
    methods: dict[str, Method] = {"WID": "wid", "Paned-WID": "paned", "AdaptWID": "adaptive", "buffering": "buffering"}
    panels: list[Panel] = []
    below: list[Panel] = []
    x, across = [small_groups(n, small) for small in percents], "% of groups that are small"
    differs = _off_the_table(dict(zip(percents, x, strict=True)))
    printed = ", ".join(f"{_TABLE_6_2[each]} %" for each in percents)
    remarks = [f"{_percents([each / 100 for each in x])} of groups are small (thesis, table 6-2: {printed})"]
    for title, (windows, aggregates) in queries.items():
        found: dict[str, list[Estimate]] = {name: [] for name in methods}
        waits: dict[str, list[Estimate]] = {name: [] for name in methods}
        work: dict[str, list[float]] = {name: [] for name in methods}
        for small in percents:
            for name, method in methods.items():
                peaks: list[float] = []
                took: list[float] = []
                operations = 0
                for seed in range(seeds):
                    query = Query(window_plan(windows, aggregates, method))
                    peaks.append(_peak(query, _groups(seed, n, small), seconds, seed))
                    took.append(1000 * query.cpu_s / query.batches)
                    operations += query.operations
                found[name].append(estimate([peak / 1024 for peak in peaks]))
                waits[name].append(estimate(took))
                work[name].append(operations)
        panels.append(Panel(title, across, "kept at most, KiB", _curves(x, found)))
        below.append(Panel(title, across, "processor time of a batch, ms", _curves(x, waits)))
        wid, adaptive = ([each.mean for each in found[name]] for name in ("WID", "AdaptWID"))
        saved = [1 - a / w for a, w in zip(adaptive, wid, strict=True)]
        if any(each <= 0 for each in saved):
            differs.append(f"{title}: AdaptWID saves {_percents(saved)}, wanted less memory than WID")
        if saved[-1] <= saved[0]:
            differs.append(f"{title}: AdaptWID saves {_percents(saved)}, wanted more the more small groups there are")
        least = [min(found[name][at].mean for name in ("Paned-WID", "buffering")) for at in range(len(percents))]
        worst = max(a / b for a, b in zip(adaptive, least, strict=True))
        touched = [a / w for a, w in zip(work["AdaptWID"], work["WID"], strict=True)]
        longer = sum(each.mean for each in waits["AdaptWID"]) / sum(each.mean for each in waits["WID"])
        differs += [f"{title}: {each}" for each in latency(touched, longer, panes=windows.slide < windows.range)]
        remarks.append(
            f"{title}: AdaptWID saves {_percents(saved)} of WID; at most {worst:.2f} of the better of panes and rows "
            "alone; "
            f"a batch takes {_span(waits['AdaptWID'])} ms, WID's {_span(waits['WID'])}: {longer:.2f} times "
            f"(thesis: less); {min(touched):.2f} to {max(touched):.2f} times the operations"
        )
    return Figure("Memory over skewed groups, and what a punctuation waits for", [*panels, *below], differs, remarks)


_TABLE_6_2 = dict(zip(_SMALL, (39, 66, 77, 82, 87), strict=True))


def _off_the_table(shares: dict[int, float]) -> list[str]:
    """Return where the share of groups that are small is not that of table 6-2, given the records' share."""
    return [
        f"{share:.1f} % of groups are small with {small} % of the records, wanted {_TABLE_6_2[small]} %"
        for small, share in shares.items()
        if abs(share - _TABLE_6_2[small]) > 2.5
    ]


def latency(operations: list[float], time: float, *, panes: bool) -> list[str]:
    """Return where AdaptWID's latency is not as benchmarks/README.md states it; the thesis has it below WID's.

    Parameters
    ----------
    operations
        AdaptWID / WID, for each data set. Panes alone make them far fewer; without panes, the rows of small groups are
        added later than others, and some twice.
    time
        AdaptWID / WID of the processor time of a batch, over all data sets.
    panes
        Whether windows have several panes.
    """
    low, high = (0.0, 0.5) if panes else (1.0, 1.5)
    differs: list[str] = []
    if not all(low <= each <= high for each in operations):
        differs.append(f"AdaptWID does {operations} times WID's operations, wanted {low} to {high}")
    if not 0.8 <= time <= 2:
        differs.append(f"AdaptWID's batches take {time:.2f} times WID's, wanted about as long, and at most twice")
    return differs


def _span(found: list[Estimate]) -> str:
    return f"{min(each.mean for each in found):.1f} to {max(each.mean for each in found):.1f}"


def _percents(shares: list[float]) -> str:
    return ", ".join(f"{100 * share:.0f} %" for share in shares)


def _peak(query: Query, groups: Int64s, seconds: int, seed: int) -> float:
    """Return the most bytes kept after a batch.

    A batch and punctuation come every second, over two main links and a control link. The control link is 1 s behind
    and has 1 % of the records.
    """
    random = np.random.default_rng(seed)
    n, peak = len(groups), 0.0
    times = np.sort(random.integers(0, seconds * 1_000_000, n))
    link = random.choice(3, n, p=[0.495, 0.495, 0.01])
    arrival = times + np.where(link == 2, 1_000_000, 0)
    for now in range(1_000_000, (seconds + 2) * 1_000_000, 1_000_000):
        came = (arrival >= now - 1_000_000) & (arrival < now)
        parts = [
            rows_table(groups[mine], times[mine], random.integers(40, 1500, int(mine.sum())), f"link {number}")
            for number in range(3)
            for mine in [came & (link == number)]
        ]
        query.batch(pa.concat_tables(parts), {"link 0": now, "link 1": now, "link 2": now - 1_000_000})
        peak = max(peak, float(query.kept_bytes))
    return peak
