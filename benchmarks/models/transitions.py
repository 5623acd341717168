"""The Key Transition Graph: which key's window the operator processes next, row by row (tr620 §6.2, Figure 10).

A model of one server in ticks, for figures and as what operators that work on whole batches are compared with: a key
waits for its turn, is committed to, runs out of rows or not, and is done when its window's result is out. Which rows a
window holds is what `kinds` says, which window is an update is what `recent` says.
"""

from __future__ import annotations

import collections
import enum
from typing import Literal, get_args

import numpy as np

from upstream.conf.errors import MalformedRowError, OptionError
from upstream.core.rows.exact_integers import LOWEST
from upstream.operators.windows.emission import NONE, latest_per_key, latest_started
from upstream.operators.windows.kinds import SlidingWindows

from .buffers import EagerWindowBuffer, LazyWindowBuffer, WindowBuffer
from .marks import Aggregate, Commit, Result, ServedTick

__all__ = ["POLICIES", "SEMANTICS", "KeyState", "KeyTransitionGraph", "Policy", "Semantics", "check_cost", "check_tick"]

Semantics = Literal["lazy", "eager"]
SEMANTICS: tuple[Semantics, ...] = get_args(Semantics)

Policy = Literal["in-place", "fifo"]
POLICIES: tuple[Policy, ...] = get_args(Policy)


class KeyState(enum.Enum):
    """Where a key is between its first row and its result. A key may be WAIT and READY or IDLE at once."""

    ENQ = "its rows are enqueued, and none is an update yet"
    WAIT = "it waits in wq for the operator to commit to its most recent window"
    READY = "its committed window is in upq"
    IDLE = "its committed window is incomplete and has no more rows: it is in il until one arrives"
    DONE = "its result is out, and nothing has arrived since"


class KeyTransitionGraph:
    """Keys on their way through the states.

    Parameters
    ----------
    windows : SlidingWindows
        Over ticks.
    semantics : {"lazy", "eager"}
        The most recent update is the latest fully arrived window, or the latest started one.
    cost : int
        Ticks that a row takes in each window that it updates: the report's C_t.
    policy : {"in-place", "fifo"}
        Where in wq a waiting key goes when a newer window supersedes the one that it waits with: it keeps its place, or
        goes to the tail.

    Notes
    -----
    In a tick, rows arrive first, then the low-watermark moves, then the operator is served. It goes on with the head of
    upq while that has rows; when upq is empty, it commits to the first key in wq that it is not committed to yet.
    """

    def __init__(
        self, windows: SlidingWindows, semantics: Semantics, *, cost: int = 1, policy: Policy = "in-place"
    ) -> None:
        _check("semantics", semantics, SEMANTICS)
        _check("policy", policy, POLICIES)
        check_cost(cost)
        self._windows = windows
        self._lazy = semantics == "lazy"
        self._cost = cost
        self._fifo = policy == "fifo"
        self._buffers: dict[int, WindowBuffer] = {}
        self._aggregate = Aggregate()
        # An update queue orders rows that can be served at once; here a key keeps its place while its earlier window is
        # processed.
        self._wq: dict[int, int] = {}  # since when each key waits
        self._upq: collections.deque[int] = collections.deque()
        self._il: set[int] = set()
        self._bound = LOWEST
        self._busy_until: int | None = None
        self._emerging: list[Result] = []

    # --- what can be looked at

    def states(self, key: int) -> frozenset[KeyState]:
        """Return the states of a key; none before its first row."""
        found = {
            state
            for state, keys in ((KeyState.WAIT, self._wq), (KeyState.READY, self._upq), (KeyState.IDLE, self._il))
            if key in keys
        }
        if not found and key in self._buffers:
            found = {KeyState.ENQ if self._buffers[key].enqueued else KeyState.DONE}
        return frozenset(found)

    def waits_since(self, key: int) -> int | None:
        """Return when the key's pending update came: its queue staleness grows since then."""
        return self._wq.get(key)

    @property
    def processing(self) -> int | None:
        """The key whose window the operator reads, or would read next: the head of upq."""
        return self._upq[0] if self._upq else None

    def held(self, key: int) -> list[int]:
        """Return the ticks of the rows in the key's window buffer, without a row in process."""
        return self._buffers[key].held() if key in self._buffers else []

    def buffer(self, key: int) -> WindowBuffer:
        """Return a key's window buffer, for inspection."""
        return self._buffers[key]

    # --- events

    def arrive(self, time: int, key: int, now: int) -> None:
        """Accept a row. Rows of a key come in the order of time, one per tick of its windows.

        Parameters
        ----------
        time : int
            The row's tick, which windows are over.
        key : int
        now : int
            The operator's tick, which staleness is over. The same where the operator's clock is that of the rows.

        Raises
        ------
        MalformedRowError
            The row is not newer than what arrived.
        """
        buffer = self._buffers.get(key)
        if buffer is None:
            kind = LazyWindowBuffer if self._lazy else EagerWindowBuffer
            buffer = self._buffers[key] = kind(self._windows)
            buffer.bound = self._bound
        check_tick(time, key, buffer.bound)
        if buffer.enqueue(time):
            self._update(key, now)
        self._pass([key], time + 1, now)

    def progress(self, bound: int, now: int) -> None:
        """Raise the low-watermark: every row before `bound` has arrived, of all keys."""
        if bound <= self._bound:
            return
        self._bound = bound
        self._pass(list(self._buffers), bound, now)

    def serve(self, now: int) -> ServedTick:
        """Run the operator for a tick: finish a row whose time is up, and begin the next one.

        Returns
        -------
        ServedTick
            Results that are out at this tick, and whether the operator has committed to a key.
        """
        if self._busy_until is not None and now < self._busy_until:
            return ServedTick()
        results = self._finish()
        commit = None
        while True:
            if not self._upq:
                waiting = self._next_waiting()
                if waiting is None:
                    break
                commit = self._commit(waiting, now)
            key = self._upq[0]
            buffer = self._buffers[key]
            if buffer.dequeued:  # isAvail
                updated, self._emerging = self._aggregate.read(key, buffer.dequeued.popleft())
                self._busy_until = now + self._cost * updated
                break
            if buffer.fully_arrived:  # the low-watermark closed it, and no row is left to do so
                results += self._done(key, self._aggregate.close(key, buffer.bound))
            else:
                self._upq.popleft()
                self._il.add(key)
        return ServedTick(tuple(results), commit)

    # --- transitions

    def _pass(self, keys: list[int], bound: int, now: int) -> None:
        """Record that all rows of these keys before a bound have arrived."""
        for key in keys:
            self._buffers[key].bound = max(self._buffers[key].bound, bound)
        if self._lazy:
            self._overwrite(keys, bound, now)
            return
        for key in [key for key in keys if key in self._il]:  # doPromote
            if self._buffers[key].dequeued or self._buffers[key].fully_arrived:
                self._il.remove(key)
                self._upq.append(key)

    def _overwrite(self, keys: list[int], bound: int, now: int) -> None:
        """Supersede each key's waiting window by its latest fully arrived one: windows may have closed."""
        found = [(key, buffer) for key in keys if isinstance(buffer := self._buffers[key], LazyWindowBuffer)]
        starters = [(i, time) for i, (_, buffer) in enumerate(found) for time in buffer.starters]
        if not starters:
            return
        codes, x = np.array(starters, dtype=np.int64).T
        # A window has a starter, a row in its first SLIDE, or the report's buffers do not have it.
        through = self._windows.last_complete(bound)
        started = latest_started(self._windows, x)
        ids = np.where(started <= through, started, NONE)
        for (key, buffer), window in zip(found, latest_per_key(ids, codes, len(found)).tolist(), strict=True):
            if window != NONE:
                buffer.overwrite(window)
                self._update(key, now)

    def _update(self, key: int, now: int) -> None:
        """Let a key wait that has a more recent window (isUpdate)."""
        since = self._wq.get(key, now)
        if self._fifo:
            self._wq.pop(key, None)
        self._wq[key] = since

    def _next_waiting(self) -> int | None:
        return next((key for key in self._wq if key not in self._il), None)

    def _commit(self, key: int, now: int) -> Commit:
        since = self._wq.pop(key)
        self._upq.append(key)
        return Commit(key, self._buffers[key].commit(), since, now)

    def _finish(self) -> list[Result]:
        """Finish the row in process, if any, and return its results."""
        if self._busy_until is None:
            return []
        self._busy_until = None
        results, self._emerging = self._emerging, []
        return self._done(self._upq[0], results) if results else []

    def _done(self, key: int, results: list[Result]) -> list[Result]:
        self._upq.popleft()
        self._buffers[key].committed = None
        return results


def check_tick(time: int, key: int, bound: int) -> None:
    """Refuse a row that is not newer than what arrived of its key."""
    if time < max(bound, 1):
        raise MalformedRowError(
            f"a row of key {key} at tick {time}",
            expected=f"a tick from {max(bound, 1)} on: one row per key and tick, in order, the first at 1",
            hint="sort the rows by time",
        )


def check_cost(cost: int) -> None:
    """Refuse a cost that is no number of ticks."""
    if cost < 1:
        raise OptionError(f"a cost of {cost} ticks per row", expected="at least 1 tick")


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise OptionError(f"the {name} {value!r} is unknown for windows", expected="one of " + ", ".join(known))
