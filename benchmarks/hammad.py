"""Figures 5 to 10 of Hammad et al.: how long a window join in the order of time takes to respond, by ordering rows
(``sync``), by holding results (``filter``), and by whichever is worth it (``adaptive``).

A model by events: two streams arrive, and comparing a row with a window takes ``c·w·λ`` (§4.1). Which rows may enter,
which way is chosen, and how rates are measured is decided by the classes that a join's shards and planner run. As in
the paper's formulas, each stream's rows are compared on a processor of their own, and the rows of the fast stream
count.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from upstream.operators.joins.release.choice import Mode, Release, ReleasePlan, choose, enters_up_to, load_of
from upstream.operators.joins.release.ordered_release import ArrivalRates

from .shapes import Curve, Figure, Panel
from .simulator import estimate

__all__ = [
    "Left",
    "Setting",
    "chosen",
    "even",
    "figure_5",
    "figure_6",
    "figure_7",
    "figure_8",
    "figure_9",
    "figure_10",
    "leave",
    "past_half",
    "respond",
]

_S = 1_000_000
SLOW, FAST = 0, 1
WAYS: tuple[Release, ...] = ("sync", "filter", "adaptive")
ALPHA = 0.3
_HALF_LIFE_S = 600.0  # the rates do not change in these runs

Arrival = tuple[int, int, int]
"""When, in µs, in which stream, and the row's time."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A join.

    Attributes
    ----------
    cost_s : float
        c: what it takes to compare two rows.
    window_s : float
        w.
    slow, fast : float
        λ₁ and λ₂, in rows per second.
    """

    cost_s: float
    window_s: float
    slow: float
    fast: float

    @property
    def n(self) -> float:
        """Rows of the fast stream for each of the slow one."""
        return self.fast / self.slow

    @property
    def load(self) -> float:
        """c·w·λ₁·λ₂."""
        return load_of(self.cost_s, self.window_s, [(self.slow, self.fast)])

    def row_us(self, stream: int) -> float:
        """Return what it takes to compare a row of a stream with the window of the other: C_S and C_T."""
        return self.cost_s * self.window_s * (self.slow if stream == FAST else self.fast) * _S

    @property
    def expected_filter(self) -> float:
        """Equation 5, in seconds."""
        return (self.n + 1) / (2 * self.fast)

    @property
    def expected_sync(self) -> float:
        """Equation 3, in seconds."""
        return self.expected_filter + (self.n + 1) * self.row_us(FAST) / _S / 2


def even(setting: Setting, periods: int, seed: int) -> list[Arrival]:
    """Return arrivals at a constant pace, as in §4.1; those of the fast stream up to a tenth of a gap later."""
    random = np.random.default_rng(seed)
    slow = (np.arange(periods) / setting.slow * _S).astype(np.int64)
    gap = _S / setting.fast
    count = round(periods * setting.n)
    fast = np.maximum((np.arange(count) * gap + random.uniform(0.001, 0.1, count) * gap).astype(np.int64), 1)
    return list(heapq.merge([(int(at), SLOW, int(at)) for at in slow], [(int(at), FAST, int(at)) for at in fast]))


def exponential(setting: Setting, periods: int, seed: int) -> list[Arrival]:
    """Return arrivals with exponential gaps, as in §7.1."""
    random = np.random.default_rng(seed)
    slow = np.cumsum(random.exponential(_S / setting.slow, periods)).astype(np.int64)
    fast = np.cumsum(random.exponential(_S / setting.fast, round(1.2 * periods * setting.n))).astype(np.int64)
    fast = fast[fast < slow[-1]]
    return list(heapq.merge([(int(at), SLOW, int(at)) for at in slow], [(int(at), FAST, int(at)) for at in fast]))


@dataclasses.dataclass(frozen=True)
class Left:
    """A row whose results have left.

    Attributes
    ----------
    stream, time : int
    arrived, left : float
        When, in µs.
    """

    stream: int
    time: int
    arrived: float
    left: float


def leave(row_us: tuple[float, float], arrivals: Sequence[Arrival], modes: Iterable[Mode]) -> Iterator[Left]:
    """Yield rows as their results leave the join.

    Parameters
    ----------
    row_us
        What it takes to compare a row of each stream.
    arrivals
        By the clock.
    modes
        The way at each of them.
    """
    queues: tuple[deque[tuple[int, int]], ...] = (deque(), deque())
    held: tuple[deque[Left], ...] = (deque(), deque())
    free, shown = [0.0, 0.0], [-1, -1]
    for (now, stream, time), mode in zip(arrivals, modes, strict=True):
        shown[stream] = time
        queues[stream].append((time, now))
        until = enters_up_to(mode, shown)
        for each, queue in enumerate(queues):
            while queue and queue[0][0] <= until:
                at, arrived = queue.popleft()
                free[each] = max(free[each], now) + row_us[each]
                held[each].append(Left(each, at, arrived, free[each]))
        for rows in held:
            while rows and rows[0].time <= min(shown):
                row = rows.popleft()
                yield dataclasses.replace(row, left=max(row.left, now))


def chosen(setting: Setting, release: Release, arrivals: Sequence[Arrival], alpha: float = ALPHA) -> Iterator[Mode]:
    """Yield the way at each arrival: for ``adaptive`` by the rates until then."""
    plan, rates = ReleasePlan(release, setting.cost_s, alpha), ArrivalRates()
    mode = plan.first
    for now, stream, _ in arrivals:
        if plan.adaptive:
            rates = rates.seen(int(stream == SLOW), int(stream == FAST), now, _HALF_LIFE_S)
            mode = choose(load_of(setting.cost_s, setting.window_s, [rates.per_second]), alpha)
        yield mode


def respond(setting: Setting, release: Release, arrivals: Sequence[Arrival]) -> float:
    """Return the average response time of the fast stream's rows, in seconds."""
    row_us = setting.row_us(SLOW), setting.row_us(FAST)
    found = leave(row_us, arrivals, chosen(setting, release, arrivals))
    return float(np.mean([row.left - row.arrived for row in found if row.stream == FAST])) / _S


_Arrivals = Callable[[Setting, int, int], list[Arrival]]


@dataclasses.dataclass(frozen=True)
class _Responses:
    """The response times of all ways to the same arrivals: by way, by place on the x axis, and by seed, in seconds."""

    x: Sequence[float]
    seconds: dict[Release, list[list[float]]]

    @property
    def curves(self) -> dict[str, Curve]:
        """Each way's."""
        return {way: Curve(way, self.x, [estimate(runs) for runs in found]) for way, found in self.seconds.items()}

    @property
    def relative(self) -> list[Curve]:
        """Each other way's as a share of that of ``sync``, run by run."""
        sync = self.seconds["sync"]
        return [
            Curve(
                way,
                self.x,
                [
                    estimate([one / other for one, other in zip(runs, theirs, strict=True)])
                    for runs, theirs in zip(found, sync, strict=True)
                ],
            )
            for way, found in self.seconds.items()
            if way != "sync"
        ]


def _responses(
    settings: Sequence[Setting],
    x: Sequence[float],
    ways: Sequence[Release],
    arrive: _Arrivals,
    periods: Sequence[int],
    seeds: int,
) -> _Responses:
    found: dict[Release, list[list[float]]] = {way: [] for way in ways}
    for setting, count in zip(settings, periods, strict=True):
        runs = [arrive(setting, count, seed) for seed in range(seeds)]
        for way in ways:
            found[way].append([respond(setting, way, run) for run in runs])
    return _Responses(x, found)


def _off_the_formulas(settings: Sequence[Setting], curves: dict[str, Curve], within: float = 0.03) -> list[str]:
    """Return where ``sync`` and ``filter`` are not as equations 3 and 5 have them, and 7 the gain between them."""
    differs: list[str] = []
    for at, setting in enumerate(settings):
        sync, held = curves["sync"].means[at], curves["filter"].means[at]
        x = curves["sync"].x[at]
        for way, found, wanted in (("sync", sync, setting.expected_sync), ("filter", held, setting.expected_filter)):
            if abs(found - wanted) > within * wanted:
                differs.append(f"{way} takes {found:.4g} s at {x:g}, wanted {wanted:.4g} (within {within:.0%})")
        gain, wanted = 1 - held / sync, setting.load / (1 + setting.load)
        if abs(gain - wanted) > 0.03 or gain > 0.5:
            differs.append(f"holding results takes {gain:.1%} off at {x:g}, wanted {wanted:.1%} and ½ at most")
    return differs


def _off_the_choice(settings: Sequence[Setting], curves: dict[str, Curve]) -> list[str]:
    """Return where ``adaptive`` is not the way that its load asks for: at α itself it may be either."""
    differs: list[str] = []
    for at, setting in enumerate(settings):
        sync, held, found = (curves[way].means[at] for way in WAYS)
        x = curves["sync"].x[at]
        if abs(setting.load - ALPHA) < 0.05 * ALPHA:
            if not held * 0.98 <= found <= sync * 1.02:
                differs.append(f"adaptive takes {found:.4g} s at {x:g}, where α is reached: not between both ways")
        elif abs(found - (held if setting.load > ALPHA else sync)) > 0.02 * found:
            differs.append(f"adaptive takes {found:.4g} s at {x:g}: not as {choose(setting.load, ALPHA)}")
    return differs


def figure_5(quick: bool) -> Figure:
    """Repeat figure 5: λ 1 and 10, a window of a day, and c that doubles from 0.01 µs."""
    costs = [0.01e-6 * 2**step for step in range(7)]
    settings = [Setting(cost, 86_400, 1, 10) for cost in costs]
    x = [cost * 1e6 for cost in costs]
    found = _responses(settings, x, WAYS[:2], even, [100 if quick else 600] * 7, 2 if quick else 5)
    return Figure(
        "Window join in order, by the cost of comparing two rows (window of a day)",
        [
            Panel("response time", "c [µs]", "s", list(found.curves.values()), log_x=True),
            Panel("relative to sync", "c [µs]", "share", found.relative, log_x=True),
        ],
        _off_the_formulas(settings, found.curves),
    )


def figure_6(quick: bool) -> Figure:
    """Repeat figure 6: λ₂ 1, a window of a day, c 0.1 ms, and λ₁ up to 0.1."""
    rates = [0.001, 0.003, 0.01, 0.03, 0.1] if quick else [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1]
    settings = [Setting(1e-4, 86_400, rate, 1) for rate in rates]
    periods = [max(20, round(4000 * rate)) for rate in rates]
    found = _responses(settings, rates, WAYS[:2], even, periods, 2 if quick else 5)
    return Figure(
        "Window join in order, by the rate of the slow stream (window of a day)",
        [
            Panel("response time", "λ₁ [rows/s]", "s", list(found.curves.values()), log=True, log_x=True),
            Panel("relative to sync", "λ₁ [rows/s]", "share", found.relative, log_x=True),
        ],
        _off_the_formulas(settings, found.curves),
    )


def _by_cost(quick: bool, more: Sequence[float] = ()) -> tuple[list[Setting], _Responses, _Responses]:
    """Return the paper's range of costs at a constant pace; with exponential gaps also greater ones."""
    costs = [1e-6, 1e-5, 1e-4, 5e-4, 7e-4, 1e-3]
    settings, periods, seeds = [Setting(cost, 60, 1, 10) for cost in costs], 300 if quick else 1200, 2 if quick else 5
    beyond = [*settings, *(Setting(cost, 60, 1, 10) for cost in more)]

    def responses(chosen: list[Setting], arrive: _Arrivals) -> _Responses:
        x = [setting.cost_s * 1e3 for setting in chosen]
        return _responses(chosen, x, WAYS, arrive, [periods] * len(chosen), seeds)

    return beyond, responses(settings, even), responses(beyond, exponential)


def _by_rate(quick: bool) -> tuple[list[Setting], _Responses, _Responses]:
    rates = [0.01, 0.03, 0.1, 0.3, 1.0]
    settings = [Setting(5e-4, 60, rate, 10) for rate in rates]
    periods, seeds = [max(30, round((200 if quick else 1200) * rate)) for rate in rates], 2 if quick else 5
    return (
        settings,
        _responses(settings, rates, WAYS, even, periods, seeds),
        _responses(settings, rates, WAYS, exponential, [4 * each for each in periods], seeds),
    )


def _off_with_exponential_gaps(curves: dict[str, Curve]) -> list[str]:
    """Return where the order of the ways is another one than at a constant pace."""
    differs: list[str] = []
    for at, x in enumerate(curves["sync"].x):
        sync, held, found = (curves[way].means[at] for way in WAYS)
        if not held <= sync or not held * 0.98 <= found <= sync * 1.02:
            differs.append(f"with exponential gaps filter {held:.4g}, adaptive {found:.4g}, sync {sync:.4g} s at {x:g}")
    return differs


def figure_7(quick: bool) -> Figure:
    """Repeat figure 7: the cost grows with the number of queries; λ 1 and 10, a window of a minute, α 0.3."""
    settings, paced, random = _by_cost(quick)
    differs = _off_the_formulas(settings, paced.curves) + _off_the_choice(settings, paced.curves)
    return Figure(
        "Window join in order, by the number of queries: response time",
        [
            Panel("constant pace", "c [ms]", "s", list(paced.curves.values()), log_x=True),
            Panel("exponential gaps", "c [ms]", "s", list(random.curves.values()), log_x=True),
        ],
        differs + _off_with_exponential_gaps(random.curves),
    )


def figure_8(quick: bool) -> Figure:
    """Repeat figure 8: the same relative to ``sync``, up to loads at which holding results takes more than half off."""
    settings, paced, random = _by_cost(quick, (1.2e-3, 1.4e-3))
    within = settings[: len(paced.x)]
    gains = [1 - share for share in random.relative[0].means]
    at = {round(x, 4): gain for x, gain in zip(random.x, gains, strict=True)}
    remarks = [
        f"with exponential gaps holding results takes off {at[0.5]:.0%} at 0.5 ms (formula 7: 23%; paper: 45%)",
        f"and {at[0.7]:.0%} at 0.7 ms, {at[1]:.0%} at 1 ms (paper: more than half at both)",
        f"more than half from 1.2 ms on: {at[1.2]:.0%}, and {at[1.4]:.0%} at 1.4 ms",
    ]
    return Figure(
        "Window join in order, by the number of queries: relative to sync",
        [
            Panel("constant pace", "c [ms]", "share", paced.relative, log_x=True),
            Panel("exponential gaps", "c [ms]", "share", random.relative, log_x=True),
        ],
        [
            *_off_the_formulas(within, paced.curves),
            *_off_the_choice(within, paced.curves),
            *past_half([setting.load for setting in settings], gains),
            *_off_with_exponential_gaps(random.curves),
        ],
        remarks,
    )


def past_half(loads: Sequence[float], gains: Sequence[float]) -> list[str]:
    """Return where the gain of holding results does not grow with the load, past the formula's and past one half.

    With exponential gaps rows wait for one another under ``sync``, the longer the nearer the load is to 1. At the
    loads of the paper's estimated costs, up to 0.6, the gain stays below one half; from 0.7 on it is above.
    """
    differs: list[str] = []
    if sorted(gains) != list(gains):
        differs.append(f"holding results takes off {_listed(gains)}, wanted ever more with the load")
    for load, gain in zip(loads, gains, strict=True):
        formula = load / (1 + load)
        if gain < formula - 0.005:
            differs.append(
                f"holding results takes off {gain:.1%} at a load of {load:.2g}, wanted {formula:.1%} or more"
            )
        if (gain > 0.5) != (load > 0.65):
            differs.append(
                f"holding results takes off {gain:.1%} at a load of {load:.2g}; half is reached at about 0.65"
            )
    return differs


def _listed(shares: Sequence[float]) -> str:
    return ", ".join(f"{share:.1%}" for share in shares)


def figure_9(quick: bool) -> Figure:
    """Repeat figure 9: λ₁ from 0.01 to 1, λ₂ 10, a window of a minute, c 0.5 ms, α 0.3."""
    settings, paced, random = _by_rate(quick)
    differs = _off_the_formulas(settings, paced.curves) + _off_the_choice(settings, paced.curves)
    for way, curve in paced.curves.items():
        if not 45 < curve.means[0] < 55 or sorted(curve.means, reverse=True) != curve.means:
            differs.append(f"{way} does not fall from about 50 s: {curve.means}")
    return Figure(
        "Window join in order, by the rate of the slow stream: response time",
        [
            Panel("constant pace", "λ₁ [rows/s]", "s", list(paced.curves.values()), log=True, log_x=True),
            Panel("exponential gaps", "λ₁ [rows/s]", "s", list(random.curves.values()), log=True, log_x=True),
        ],
        differs + _off_with_exponential_gaps(random.curves),
    )


def figure_10(quick: bool) -> Figure:
    """Repeat figure 10: the same relative to ``sync``."""
    settings, paced, random = _by_rate(quick)
    return Figure(
        "Window join in order, by the rate of the slow stream: relative to sync",
        [
            Panel("constant pace", "λ₁ [rows/s]", "share", paced.relative, log_x=True),
            Panel("exponential gaps", "λ₁ [rows/s]", "share", random.relative, log_x=True),
        ],
        _off_the_formulas(settings, paced.curves) + _off_the_choice(settings, paced.curves),
    )
