"""The update queue (tr620 §4-5): pending rows, order of service, supersession; its settings and instructions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np

from ...conf.errors import CheckpointError, OptionError
from ...conf.options import count_argument
from ...conf.units import length_text, parse_duration_us
from ...core.rows.exact_integers import Int64s, Mask
from ...core.rows.key import Key
from ...core.rows.newest import NewestPerKey, ties_within
from .cells import PENDING, RESTING, SHED, Cells, OnDemandPages, Updates
from .keys import LocatedKeys, LocationIndex
from .monitor import StatisticsMonitor


def none() -> Int64s:
    """Return no rows."""
    return np.empty(0, dtype=np.int64)


def pairs() -> Int64s:
    """Return no pairs."""
    return np.empty((0, 2), dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class EnqueueResult:
    """The result of enqueueing a batch of arriving rows."""

    rows: Int64s  # rows of the batch to keep
    locations: Int64s  # where the caller must put them
    ties: Int64s  # pairs: a row of the batch, and the location of the row that it replaces at the same event time
    batch_ties: Int64s  # pairs of rows of the batch with one key and time: the kept one, the dropped one
    superseded: int = 0  # updates that are not applied because a newer one of their key is
    older: int = 0  # rows among these that arrived after a newer one of their key (late within the queue)
    shed: int = 0  # rows dropped by random shedding
    outdated: int = 0  # superseded updates that are older than an applied row of their key

    @classmethod
    def nothing(cls) -> EnqueueResult:
        return cls(none(), none(), pairs(), pairs())


@dataclasses.dataclass(frozen=True)
class ServiceBatch:
    """Rows to process, in the order of service."""

    locations: Int64s  # to be read before the next enqueue
    cells: Cells
    superseded: int = 0  # updates dropped because `auto` found more than the budget
    # pairs of locations with one key and time: the kept one, the dropped one; all tie if rows have no time
    ties: Int64s = dataclasses.field(default_factory=pairs)


Policy = Literal["append", "shed", "fifo", "in-place", "linecutting", "auto"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

ONE_PER_KEY: tuple[Policy, ...] = ("fifo", "in-place", "linecutting")
"""Policies that need only the newest row of a key, so rows may be coalesced before they arrive."""
# Places of keys that have cut the line: before all others, among themselves by arrival.
_FRONT = -(1 << 61)
_VERSION = 1


def check_policy(policy: str) -> None:
    """Refuse an unknown policy."""
    if policy not in POLICIES:
        raise OptionError(f"the policy {policy!r} is unknown", expected="one of " + ", ".join(POLICIES))


class UpdateQueue:
    """Pending updates, and their order of service.

    ``append`` serves every row in the order of arrival. ``shed`` does too, but drops a random part of the arrivals.
    With the others, a newer update supersedes the key's older one. ``fifo`` gives it a place at the tail. ``in-place``
    gives it the older one's place: least staleness when keys update equally often (tr620 §5.2). ``linecutting`` also
    moves a slow updater to the front (§5.3). ``auto`` appends while all waiting rows fit into a budget, else uses
    linecutting until the queue is empty.

    Places are arrival times, so that the queues of several shards have one order. The queue reads no clock: results
    depend on arguments and state alone. `index` belongs to this queue alone. `stored` pages are read and written as a
    whole. So a newer row is placed beside others of its batch, not at the older row's location, and a batch writes
    fewer pages.
    """

    def __init__(
        self,
        policy: Policy,
        index: LocationIndex,
        *,
        monitor: StatisticsMonitor | None = None,
        page_slots: int = 1024,
        seed: int = 0,
        stored: bool = False,
    ) -> None:
        check_policy(policy)
        self.policy: Policy = policy
        self.monitor = monitor or StatisticsMonitor()
        self.pages = OnDemandPages(page_slots, stored=stored)
        self._index = index
        self._cells = Cells.empty()
        self._seed = seed
        self._drawn = 0
        self._serial = 0
        self._waiting = 0
        self._overloaded = False
        self._touched: list[Int64s] = []

    def __len__(self) -> int:
        """Return the number of rows that wait for service."""
        return self._waiting

    @property
    def locations(self) -> Int64s:
        """The locations of the rows that wait, increasing."""
        held = np.flatnonzero(self.pages.held)
        return held if len(held) == self._waiting else held[self._cells.state[held] == PENDING]

    def cells(self, locations: Int64s) -> Cells:
        return self._cells.take(locations)

    def column(self, name: str, locations: Int64s) -> Int64s:
        return getattr(self._cells, name)[locations]

    def changed(self) -> Int64s:
        """Return the numbers of pages, increasing, with cells that changed since the queue was made or restored."""
        touched = np.concatenate(self._touched) if self._touched else np.empty(0, dtype=np.int64)
        return self.pages.of(touched[self.pages.held.reshape(-1)[touched]])

    def read(self, n: int, now_us: int) -> ServiceBatch:
        """Return the `n` rows that a dequeue would serve, without removing them."""
        chosen = self._next(self._ready(now_us), n, now_us)
        return ServiceBatch(chosen, self._cells.take(chosen))

    def enqueue(self, batch: Updates, now_us: int, *, drop: float = 0.0) -> EnqueueResult:
        """Enqueue arriving rows; return those to keep, and the locations where the caller must put them.

        `drop` is the share of the rows that the policy ``shed`` drops.
        """
        n = len(batch.arrival)
        if n == 0:
            return EnqueueResult.nothing()
        if self.policy == "append" or (self.policy == "auto" and not self._overloaded):
            return self._append(batch, self._codes(batch, now_us))
        if self.policy == "shed":
            return self._append_some(batch, self._index.find(batch.keys), drop)
        return self._update(batch, self._index.find(batch.keys), now_us)

    def dequeue(self, budget: int | None, now_us: int) -> ServiceBatch:
        """Remove and return at most `budget` rows, None for all, of keys whose access interval has passed."""
        superseded, ties = 0, pairs()
        self._wake(now_us)
        if self.policy == "auto" and budget is not None and not self._overloaded and self._waiting > budget:
            superseded, ties = self._collapse()
        chosen = self._next(self._ready(now_us), self._waiting if budget is None else budget, now_us)
        cells = self._cells.take(chosen)
        self._waiting -= len(chosen)
        resting = cells.interval_us > 0
        if self.one_per_key and resting.any():
            rest = chosen[resting]
            self._cells.state[rest] = RESTING
            self._cells.ready_at_us[rest] = now_us + cells.interval_us[resting]
            self._touch(rest)
            self._release(chosen[~resting])
        else:
            self._release(chosen)
        if self._overloaded and self.pages.used == 0:
            self._overloaded = False
        return ServiceBatch(chosen, cells, superseded, ties)

    def next_ready_us(self) -> int | None:
        """Return when the first waiting row may be served; None if none waits."""
        waiting = self.locations
        return int(self._cells.ready_at_us[waiting].min()) if len(waiting) else None

    def snapshot(self) -> dict[str, Any]:
        """Return the state that must survive a restart, without the rows: locations with their cells, and counters."""
        held = np.flatnonzero(self.pages.held)
        return {"held": held, "cells": self._cells.take(held), **self.counters()}

    def counters(self) -> dict[str, Any]:
        """Return the small part of a snapshot, as a JSON value with the monitor's arrays."""
        return {
            "version": _VERSION,
            "slots": self.pages.slots,
            "drawn": self._drawn,
            "serial": self._serial,
            "overloaded": self._overloaded,
            "one_per_key": self.one_per_key,
            "monitor": self.monitor.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a snapshot of any policy, with only each key's newest row if this policy keeps one per key."""
        if state["version"] != _VERSION or state["slots"] != self.pages.slots:
            raise CheckpointError(
                f"queue state of version {state['version']} with pages of {state['slots']}",
                expected=f"version {_VERSION} with pages of {self.pages.slots}",
                hint="run the version that wrote it, or start with a new checkpoint",
            )
        held: Int64s = state["held"]
        self.pages.restore(held)
        # With room for what comes: to make room later would copy all.
        self._cells = Cells.empty(2 * self.pages.capacity)
        self._cells.put(held, state["cells"])
        self._drawn, self._serial = state["drawn"], state["serial"]
        self._overloaded = self.policy == "auto" and state["overloaded"]
        self.monitor.restore(state["monitor"])
        kinds = state["cells"].state
        self._waiting = int((kinds == PENDING).sum())
        if self.one_per_key and state["one_per_key"]:
            self._index.put(self._cells.number[held], held)
        elif self.one_per_key:
            self._collapse()
        else:
            shed = held[(kinds == SHED) & (self.policy == "shed")]
            self._index.put(self._cells.number[shed], shed)
            self.pages.free(held[(kinds != PENDING) & ((kinds != SHED) | (self.policy != "shed"))])

    @property
    def one_per_key(self) -> bool:
        """True if at most one row of each key waits."""
        return self.policy in ONE_PER_KEY or (self.policy == "auto" and self._overloaded)

    # --- arriving rows

    def _codes(self, batch: Updates, now_us: int) -> Int64s:
        # Appended rows need no look-up; auto counts rates so that it knows the slow updaters when load rises.
        keys: Any = batch.keys
        number: Int64s = keys[1] if isinstance(keys, tuple) else keys
        if self.policy == "auto":
            self.monitor.arrived(number, now_us, batch.covered)
        return number

    def _append(self, batch: Updates, number: Int64s) -> EnqueueResult:
        locations = self._store(self._cells_of(batch, np.arange(len(batch.arrival)), number))
        return EnqueueResult(np.arange(len(locations)), locations, pairs(), pairs())

    def _append_some(self, batch: Updates, found: LocatedKeys, drop: float) -> EnqueueResult:
        """Append the admitted rows (AQ-RLS); the next admitted row of a key represents the dropped ones before it."""
        n = len(batch.arrival)
        generator = np.random.Generator(np.random.Philox(key=self._seed, counter=self._drawn))
        self._drawn += 1
        dropped = generator.random(n) < drop
        rows = np.arange(n)
        cells = self._cells_of(batch, rows, found.number[found.codes])
        # Each admitted row takes over what was dropped of its key since the row before it; order by key, then arrival.
        order = np.argsort(found.codes, kind="stable")
        first, covered = cells.first_arrival[order].copy(), cells.covered[order].copy()
        held = found.location[found.codes[order]]
        starts = np.flatnonzero(np.diff(found.codes[order], prepend=-1))
        old = held[starts]
        has = old >= 0
        first[starts[has]] = np.minimum(first[starts[has]], self._cells.first_arrival[old[has]])
        covered[starts[has]] += self._cells.covered[old[has]]
        # A run is some dropped rows and the admitted one that ends it, or dropped rows at the key's end.
        ends = np.zeros(n, dtype=np.bool_)
        ends[~dropped[order]] = True
        begins = np.zeros(n, dtype=np.bool_)
        begins[starts] = True
        begins[1:] |= ends[:-1]
        run = np.flatnonzero(begins)
        first, covered = np.minimum.reduceat(first, run), np.add.reduceat(covered, run)
        last = np.append(run[1:], n) - 1
        stays = order[last]
        cells = cells.take(stays)
        cells.first_arrival, cells.covered = first, covered
        cells.state[:] = np.where(dropped[stays], SHED, PENDING)
        self._release(old[has], numbers=self._cells.number[old[has]])
        by_arrival = np.argsort(stays, kind="stable")
        cells, stays = cells.take(by_arrival), stays[by_arrival]
        locations = self._store(cells)
        ghosts = cells.state == SHED
        self._index.put(cells.number[ghosts], locations[ghosts])
        return EnqueueResult(stays, locations, pairs(), pairs(), shed=int(dropped.sum()))

    def _update(self, batch: Updates, found: LocatedKeys, now_us: int) -> EnqueueResult:
        n, keys = len(batch.arrival), len(found.location)
        codes = found.codes
        self.monitor.arrived(found.number[codes], now_us, batch.covered)
        time = batch.time
        newest = NewestPerKey(
            codes,
            keys,
            time,
            batch.arrival if batch.first_arrival is None else batch.first_arrival,
            1 if batch.covered is None else batch.covered,
        )
        cells = self._cells_of(batch, newest.rows, found.number[codes[newest.rows]])
        cells.first_arrival, cells.covered = newest.first_arrival_us, newest.covered
        code = codes[newest.rows]
        old = found.location[code]
        there = old >= 0
        state = np.full(len(old), -1, dtype=np.int8)
        state[there] = self._cells.state[old[there]]
        pending = state == PENDING
        self._places(batch, found, pending[_inverse(code, keys)], code, cells)
        # A row older than the one that waits, or that was served last, never replaces it.
        older, tied = np.zeros((2, len(old)), dtype=np.bool_)
        if time is not None:
            older[there] = self._cells.time[old[there]] > cells.time[there]
            tied[pending] = self._cells.time[old[pending]] == cells.time[pending]
        outdated = int(cells.covered[older & ~pending].sum())
        at = old[pending]
        cells.first_arrival[pending] = np.minimum(cells.first_arrival[pending], self._cells.first_arrival[at])
        cells.covered[pending] += self._cells.covered[at]
        cells.ready_at_us[there] = self._cells.ready_at_us[old[there]]
        stays = pending & older  # the waiting row remains, and stands for the arriving one too
        kept = old[stays]
        if self.policy != "fifo":
            self._cells.place[kept], self._cells.turn[kept] = cells.place[stays], cells.turn[stays]
        self._cells.first_arrival[kept], self._cells.covered[kept] = cells.first_arrival[stays], cells.covered[stays]
        self._touch(kept)
        written = ~older
        fresh = written if self.pages.stored else written & ~there
        locations = old.copy()
        locations[fresh] = self._allocate(int(fresh.sum()))
        self._put(locations[written], cells.take(np.flatnonzero(written)))
        moved = fresh & there
        self._release(old[moved])
        self._index.put(cells.number[fresh], locations[fresh])
        self._waiting += int((written & ~pending).sum())
        arrived = n if batch.covered is None else int(batch.covered.sum())
        superseded = arrived - int((written & ~pending).sum())
        ties = np.stack([newest.rows[tied], old[tied]], axis=1) if tied.any() else pairs()
        return EnqueueResult(
            newest.rows[written],
            locations[written],
            ties,
            ties_within(codes, keys, time, newest.rows),
            superseded=superseded,
            older=int(older.sum()),
            outdated=outdated,
        )

    def _places(self, batch: Updates, found: LocatedKeys, pending: Mask, code: Int64s, cells: Cells) -> None:
        """Set the places of `cells`, which are in the order of `code`; `pending` is by code."""
        if self.policy == "fifo":
            return
        codes, keys, n = found.codes, len(found.location), len(batch.arrival)
        arrival = batch.arrival if batch.first_arrival is None else batch.first_arrival
        # A key that waits keeps its place; a new one stands where its first row of this batch arrived.
        first = np.zeros(keys, dtype=np.int64)
        first[codes[::-1]] = np.arange(n)[::-1]
        turn = self._serial - n + first
        place = np.full(keys, np.iinfo(np.int64).max, dtype=np.int64)
        np.minimum.at(place, codes, arrival)
        at = found.location[pending]
        place[pending], turn[pending] = self._cells.place[at], self._cells.turn[at]
        if self.policy != "in-place":
            newcomers = np.zeros(n, dtype=np.bool_)
            newcomers[first[~pending]] = True
            slow = self.monitor.slow(found.number[codes], self._waiting + np.cumsum(newcomers))
            cut = np.full(keys, n, dtype=np.int64)
            np.minimum.at(cut, codes[slow], np.flatnonzero(slow))
            # Who has cut the line already stays where it is: no slow updater overtakes another that came before.
            cutting = np.flatnonzero((cut < n) & (place >= 0))
            place[cutting], turn[cutting] = _FRONT + arrival[cut[cutting]], self._serial - n + cut[cutting]
        cells.place, cells.turn = place[code], turn[code]

    def _cells_of(self, batch: Updates, rows: Int64s, number: Int64s) -> Cells:
        """Return cells for some of the batch's rows, with places at the tail."""
        cells = Cells.empty(len(rows))
        cells.number[:] = number
        cells.serial[:] = cells.turn[:] = self._serial + rows
        cells.arrival[:] = cells.place[:] = batch.arrival[rows]
        cells.time[:] = 0 if batch.time is None else batch.time[rows]
        cells.first_arrival[:] = (batch.arrival if batch.first_arrival is None else batch.first_arrival)[rows]
        cells.covered[:] = 1 if batch.covered is None else batch.covered[rows]
        cells.weight[:] = 1.0 if batch.weight is None else batch.weight[rows]
        cells.interval_us[:] = 0 if batch.interval_us is None else batch.interval_us[rows]
        self._serial += len(batch.arrival)
        return cells

    # --- service

    def _ready(self, now_us: int) -> Int64s:
        waiting = self.locations
        return waiting[self._cells.ready_at_us[waiting] <= now_us]

    def _next(self, ready: Int64s, n: int, now_us: int) -> Int64s:
        """Return the `n` first rows in the order of service; of equal places, the one that was taken first."""
        place = self._cells.place[ready]
        weight = self._cells.weight[ready]
        if self.policy not in ("append", "shed", "fifo") and np.any(weight != weight[:1]):
            # Staleness counts `weight` times: the largest weighted age first, those who cut the line before all (tr620
            # §5.2).
            age = weight * (now_us - self._cells.first_arrival[ready])
            order = np.lexsort((self._cells.turn[ready], -age, place >= 0))[:n]
            return ready[order]
        if n < len(ready):
            last = np.partition(place, n - 1)[n - 1]
            near = np.flatnonzero(place <= last)
            ready, place = ready[near], place[near]
        order = np.lexsort((self._cells.turn[ready], place))[:n]
        return ready[order]

    def _wake(self, now_us: int) -> None:
        """Release the cells of served keys whose access interval has passed."""
        if self.pages.used == self._waiting:
            return
        held = np.flatnonzero(self.pages.held)
        awake = held[(self._cells.state[held] == RESTING) & (self._cells.ready_at_us[held] <= now_us)]
        self._release(awake)

    def _collapse(self) -> tuple[int, Int64s]:
        """Keep one row per key from now on, the newest in the place of the oldest; return how many went, and ties."""
        waiting = self.locations
        waiting = waiting[np.argsort(self._cells.serial[waiting])]  # ties on time go to the later arrival
        found = self._index.among(self._cells.number[waiting], waiting)
        newest = NewestPerKey(
            found.codes,
            len(found.location),
            self._cells.time[waiting],
            self._cells.first_arrival[waiting],
            self._cells.covered[waiting],
        )
        place = np.full(len(found.location), np.iinfo(np.int64).max, dtype=np.int64)
        np.minimum.at(place, found.codes, self._cells.place[waiting])
        kept = waiting[newest.rows]
        turn = np.full(len(place), np.iinfo(np.int64).max, dtype=np.int64)
        np.minimum.at(turn, found.codes, self._cells.turn[waiting])
        self._cells.place[kept], self._cells.turn[kept] = (
            place[found.codes[newest.rows]],
            turn[found.codes[newest.rows]],
        )
        self._touch(kept)
        self._cells.first_arrival[kept], self._cells.covered[kept] = newest.first_arrival_us, newest.covered
        ties = waiting[ties_within(found.codes, len(place), self._cells.time[waiting], newest.rows)]
        gone = self.pages.held.reshape(-1).copy()
        gone[kept] = False
        self.pages.free(np.flatnonzero(gone))
        self._waiting = len(kept)
        self._index.put(self._cells.number[kept], kept)
        self._overloaded = self.policy == "auto"
        return len(waiting) - len(kept), ties

    # --- locations

    def _store(self, cells: Cells) -> Int64s:
        locations = self._allocate(len(cells))
        self._put(locations, cells)
        self._waiting += int((cells.state == PENDING).sum())
        return locations

    def _put(self, locations: Int64s, cells: Cells) -> None:
        self._cells.put(locations, cells)
        self._touch(locations)

    def _touch(self, locations: Int64s) -> None:
        if self.pages.stored:
            self._touched.append(locations)

    def _allocate(self, n: int) -> Int64s:
        locations = self.pages.allocate(n)
        self._cells = self._cells.grown(self.pages.capacity)
        return locations

    def _release(self, locations: Int64s, numbers: Int64s | None = None) -> None:
        if len(locations) == 0:
            return
        if self.one_per_key or numbers is not None:
            self._index.drop(self._cells.number[locations] if numbers is None else numbers, locations)
        self.pages.free(locations)


def _inverse(code: Int64s, keys: int) -> Int64s:
    inverse = np.zeros(keys, dtype=np.int64)
    inverse[code] = np.arange(len(code))
    return inverse


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """The settings of a queue. A checkpoint is bound to `key`, `time` and `shards`; the others may change."""

    key: Key  # columns of the update key
    time: str | None  # column that decides which of two rows of a key is newer; None for arrival
    shards: int
    policy: Policy
    budget: int | None = None  # rows per batch of all shards, unless a control has another; None for all
    auto: bool = False  # the planner finds the budget, and `budget` is the first one
    page_slots: int = 4096  # locations in a page of state
    half_life_s: float = 60.0  # of the update rates
    cost_s: float | None = None  # seconds per row, pinned; None to measure them
    seed: int = 0  # of the random shedding
    stalest_keys: int = 0  # number of longest-waiting keys that each shard reports

    def __post_init__(self) -> None:
        check_policy(self.policy)
        count_argument("shards", self.shards)
        count_argument("stalest_keys", self.stalest_keys, least=0)
        count_argument("seed", self.seed, least=0)

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, as text."""
        return {"key": ", ".join(self.key), "time": self.time or "none", "shards": str(self.shards)}

    def changeable(self) -> dict[str, str]:
        """Return the other settings, as text, which may change from run to run."""
        budget = "auto" if self.auto else "none" if self.budget is None else f"{self.budget} rows"
        half_life = {} if self.half_life_s == 60 else {"half life": length_text(round(self.half_life_s * 1e6))}
        keys = {"stalest keys": str(self.stalest_keys)} if self.stalest_keys else {}
        return {"policy": self.policy, "budget": budget, **half_life, **keys}


ALL, LAST = "all", "last"


@dataclasses.dataclass(frozen=True)
class Control:
    """The planner's instructions to a shard for a batch."""

    now_us: int  # the clock when the batch was planned
    budget: int | None = None  # rows that this shard may release; None for all
    cost_s: float | None = None  # seconds to process one row
    drop: float = 0.0  # share of the arriving rows to shed
    # settings in place of the program's from now on, also in batches without instructions; None: no change. `budget`:
    # rows to release, `ALL`, or as many as the `LAST` time. `cost_s`: None to measure it. `drop`: share of rows to shed
    kept: Mapping[str, Any] | None = None
    sample: int | None = None  # the version of the last control that asked for a sample of the rows released

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Control:
        return cls(**json.loads(text))


def is_duration(text: str) -> bool:
    """Return whether a text is a duration and not an expression."""
    try:
        parse_duration_us(text)
    except ValueError:
        return False
    return True
