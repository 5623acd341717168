"""Simulated runs with windows: one row per tick, one server, staleness in ticks (tr620 §6.3, §7.3).

The models themselves are in `benchmarks/models`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from upstream.operators.capacity.staleness import StalenessAccount
from upstream.operators.queue.cells import Usage
from upstream.operators.windows.emission import NONE, latest_started, ranks
from upstream.operators.windows.kinds import SlidingWindows

from .models.every_window import EveryWindow
from .models.marks import Result, ServedTick
from .models.pages import WindowPages
from .models.transitions import KeyTransitionGraph, Semantics

__all__ = ["TickOutcome", "WindowLoad", "average_staleness", "run_windows", "ticks"]

Int64s = npt.NDArray[np.int64]
_US = 1_000_000


@dataclasses.dataclass(frozen=True)
class WindowLoad:
    """One row per tick; the row of tick t is of ``key[t - 1]``.

    Attributes
    ----------
    key : int64 array of length ticks
    keys : int
        How many there are, also those that never come.
    time : int64 array of length ticks
        What windows are over: the tick itself, or, where each key's source has a clock of its own, the key's rows
        counted from 1.
    shared : bool
        Whether it is the tick itself: then each tick is the low-watermark of all keys.
    """

    key: Int64s
    keys: int
    time: Int64s
    shared: bool

    @classmethod
    def of(cls, key: Int64s, keys: int, *, shared: bool) -> WindowLoad:
        """Return a load with rows of these keys, one per tick."""
        time = np.arange(len(key)) if shared else ranks(key, np.zeros(keys, dtype=np.int64))[0]
        return cls(key, keys, time + 1, shared)

    @classmethod
    def zipf(cls, keys: int, skew: float, length: int, seed: int, *, shared: bool = False) -> WindowLoad:
        """Return a load whose keys are drawn at random; skew 0 is uniform."""
        share = np.arange(1, keys + 1) ** -skew
        key = np.random.default_rng(seed).choice(keys, length, p=share / share.sum())
        return cls.of(key, keys, shared=shared)

    @classmethod
    def round_robin(cls, keys: int, length: int, *, shared: bool = False) -> WindowLoad:
        """Return a load whose rows go through the keys in turn: 1, 2, …, 1, 2, …."""
        return cls.of(np.arange(length) % keys, keys, shared=shared)


@dataclasses.dataclass(frozen=True)
class TickOutcome:
    """What a run gave.

    Attributes
    ----------
    staleness : float
        Application staleness, in ticks.
    results : int
    most_held : int
        The most rows in a key's window buffer at any time; 0 where memory was not followed.
    on_demand, naive : Usage
        Rows kept in window buffers, in blocks and pages on demand; and in a buffer of the greatest size for every key
        ever seen.
    """

    staleness: float
    results: int
    most_held: int
    on_demand: Usage
    naive: Usage


def ticks(graph: KeyTransitionGraph | EveryWindow, load: WindowLoad) -> Iterator[tuple[int, ServedTick]]:
    """Drive a model: in each tick a row arrives, the low-watermark moves past it, and the operator is served."""
    for tick, (key, time) in enumerate(zip(load.key.tolist(), load.time.tolist(), strict=True), start=1):
        graph.arrive(time, key, tick)
        if load.shared:
            graph.progress(time + 1, tick)
        yield tick, graph.serve(tick)


def average_staleness(windows: SlidingWindows, load: WindowLoad, results: list[tuple[int, Result]], end: int) -> float:
    """Return application staleness: it grows with every fully arrived window that no result covers (§6.1.2).

    Parameters
    ----------
    results : list of (tick, Result)
        When each was out.
    end : int
        The end of the run, which begins at tick 0.
    """
    account = StalenessAccount(load.keys)
    started = latest_started(windows, load.time)
    waiting: list[tuple[int, int]] = []
    for key in range(load.keys):
        rows = np.flatnonzero(load.key == key)
        last = windows.extent(np.unique(started[rows][started[rows] != NONE]))[1] - 1
        if load.shared:
            closes = last
        else:  # only the key's own rows say how far its source has come
            arrived = np.searchsorted(load.time[rows], last)
            last = last[arrived < len(rows)]
            closes = rows[arrived[arrived < len(rows)]] + 1
        mine = [(tick, result.end) for tick, result in results if result.key == key]
        at, ends = np.array(mine, dtype=np.int64).reshape(-1, 2).T
        # A result covers its window and all before it: the next one's pending interval begins with the window after.
        covered = np.searchsorted(last, ends, "right")
        first = closes[np.concatenate([[0], covered[:-1]])] if len(at) else at
        account.deliver(np.full(len(at), key), first * _US, at * _US)
        after = int(covered[-1]) if len(at) else 0
        if after < len(closes) and closes[after] <= end:
            waiting.append((key, int(closes[after])))
    keys, since = np.array(waiting, dtype=np.int64).reshape(-1, 2).T
    return account.finish(end * _US, keys, since * _US).mean


def run_windows(
    windows: SlidingWindows,
    load: WindowLoad,
    semantics: Semantics | Literal["append", "drop"],
    *,
    cost: int = 1,
    seed: int = 0,
    blocks: tuple[int, int] | None = None,
) -> TickOutcome:
    """Simulate all ticks of a load.

    Parameters
    ----------
    semantics
        ``append`` gives every window, ``drop`` as many random ones as keep load at most 1.
    blocks : (int, int), optional
        Rows in a block and blocks in a page: follow memory too (lazy and eager only).
    """
    if semantics in ("append", "drop"):
        overlap = cost * windows.range / windows.slide
        graph = EveryWindow(windows, cost=cost, keep=min(1.0, 1 / overlap) if semantics == "drop" else 1.0, seed=seed)
    else:
        graph = KeyTransitionGraph(windows, semantics, cost=cost)
    memory = _Memory(graph, windows, *blocks) if blocks is not None and isinstance(graph, KeyTransitionGraph) else None
    results: list[tuple[int, Result]] = []
    for tick, served in ticks(graph, load):
        results += [(tick, result) for result in served.results]
        if memory is not None:
            memory.follow(int(load.key[tick - 1]))
    staleness = average_staleness(windows, load, results, len(load.key))
    if memory is None:
        return TickOutcome(staleness, len(results), 0, Usage(), Usage())
    return TickOutcome(staleness, len(results), memory.most, memory.on_demand, memory.naive)


class _Memory:
    """Follows what window buffers keep, where sources have clocks of their own."""

    def __init__(self, graph: KeyTransitionGraph, windows: SlidingWindows, block_rows: int, page_blocks: int) -> None:
        self.on_demand, self.naive = Usage(), Usage()
        self.most = 0
        self._graph = graph
        self._pages = WindowPages(block_rows, page_blocks)
        self._preallocated = windows.range + windows.slide - 1  # §7.3: the most that a buffer can reach
        self._seen: set[int] = set()
        self._processing: int | None = None

    def follow(self, arrived: int) -> None:
        """Count one tick, in which this key's row came."""
        self._seen.add(arrived)
        before, self._processing = self._processing, self._graph.processing
        # A window buffer changes when a row of its key comes, or is read.
        for key in {arrived, before, self._processing} - {None}:
            held = self._graph.held(key)
            self.most = max(self.most, len(held))
            self._pages.hold(key, held)
        pages, naive = self._pages, len(self._seen) * self._preallocated
        self.on_demand.add(1, allocated=pages.allocated, used=pages.rows, paged=pages.paged)
        self.naive.add(1, allocated=naive, used=pages.rows, paged=naive)
