"""The low-watermark of a feed: the policies, each behind the outlier guard (Li's thesis §8.1; Bai et al. §5)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ..rows.event_times import NO_TIME
from ..rows.exact_integers import Int64s
from .bounds import AFTER_ALL, BEFORE_ALL

# Bins to the octave: a quantile is right to 9 %, and never too small.
_PER_OCTAVE = 8


class Lags:
    """A histogram of lags with logarithmic bins, in which a row's weight halves with each `half_life` further rows.

    It decays at fixed row numbers, so the result does not depend on how the rows were split into calls.
    """

    def __init__(self, half_life: int, saved: Mapping[str, Any] | None = None) -> None:
        self._half_life = half_life
        self.rows: int = saved["rows"] if saved else 0
        self._counts = np.zeros(64 * _PER_OCTAVE + 1)
        for number, count in saved["bins"] if saved else ():
            self._counts[number] = count

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "bins": [[int(n), float(self._counts[n])] for n in np.flatnonzero(self._counts)]}

    def add(self, lag_us: Int64s) -> None:
        """Add the lags of further rows, none below 0, in the order of arrival."""
        at = 0
        while at < len(lag_us):
            part = lag_us[at : at + self._half_life - self.rows % self._half_life]
            octaves = np.log2(np.maximum(part, 1))
            number = np.where(part > 0, np.floor(octaves * _PER_OCTAVE).astype(np.int64) + 1, 0)
            self._counts += np.bincount(number, minlength=len(self._counts))
            self.rows += len(part)
            at += len(part)
            if self.rows % self._half_life == 0:
                self._counts /= 2  # exact: what is halved are whole numbers and halves of them

    def exceeded_by(self, share: float) -> int:
        """Return the least delay in microseconds that at most this share of rows exceeds, to the width of a bin.

        Before the first row it is 0.
        """
        beyond = np.cumsum(self._counts[::-1])[::-1]  # with a lag in this bin or a later one
        allowed = share * beyond[0]
        number = int(np.argmax(beyond[1:] <= allowed))  # the last bins are beyond all int64
        return math.ceil(2 ** (number / _PER_OCTAVE)) - 1


# A span of time is over after so long, and not before so many batches: a feed of a row an hour has its days remembered.
_SPAN_US = 600_000_000
_SPAN_BATCHES = 32
# The skews of fewer batches do not predict those of later ones.
_ENOUGH = 8


class Skew:
    """The measured skew of one feed: the clock of the batch that saw a row, less the row's time.

    The batch's clock counts, not the arrival in the row: only a row that is *seen* after a watermark can be late for
    it. The extremes cover the present span and the one before, so outages and backlogs are forgotten, but quiet feeds
    are not. The skew is negative if the feed's clock is ahead.
    """

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        saved = saved or {}
        self.latest: int | None = saved.get("latest")
        self._since: int = saved.get("since", 0)
        self._batches: int = saved.get("batches", 0)
        self._now: list[int] | None = saved.get("now")
        self._before: list[int] | None = saved.get("before")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value, with ``smallest``, ``largest`` and ``latest`` for people."""
        return {
            "smallest": self.smallest,
            "largest": self.largest,
            "latest": self.latest,
            "since": self._since,
            "batches": self._batches,
            "now": self._now,
            "before": self._before,
        }

    def observe(self, least_us: int, greatest_us: int, now_us: int) -> None:
        """Add the least and the greatest time of the rows in a batch whose clock reads `now_us`."""
        if self._now is not None and now_us - self._since >= _SPAN_US and self._batches >= _SPAN_BATCHES:
            self._before, self._now, self._batches = self._now, None, 0
        if self._now is None:
            self._since, self._now = now_us, [now_us - greatest_us, now_us - least_us]
        else:
            self._now = [min(self._now[0], now_us - greatest_us), max(self._now[1], now_us - least_us)]
        self.latest = now_us - greatest_us
        self._batches += 1

    @property
    def smallest(self) -> int | None:
        """The smallest skew in microseconds."""
        return min((each[0] for each in (self._now, self._before) if each is not None), default=None)

    @property
    def largest(self) -> int | None:
        """The largest skew in microseconds."""
        return max((each[1] for each in (self._now, self._before) if each is not None), default=None)

    @property
    def spread(self) -> int | None:
        """The largest skew less the smallest: δ of on-demand timestamps; None until enough batches are measured."""
        if self.smallest is None or self.largest is None or (self._before is None and self._batches < _ENOUGH):
            return None
        return self.largest - self.smallest


PolicyName = Literal["ordered", "bounded", "displaced", "embedded", "arrival", "none", "adaptive", "from_table"]

# Rows looked at in one step while outliers are about; doubled while there are none, as far as the cache likes it.
_STEP = 1024
_MAX_STEP = 1 << 16

# `adaptive` believes its quantile once so many rows of those it may leave late are to be expected, and forgets as
# slowly as keeps it steady.
_LATE_TO_JUDGE = 10
_LATE_IN_HALF_LIFE = 64
_LEAST_HALF_LIFE = 4096


@dataclasses.dataclass(frozen=True)
class Policy:
    """The settings by which a feed's low-watermark follows from its rows.

    ``ordered``: the largest time. ``bounded``: the largest time less `delay_us`. ``displaced``: the largest time of all
    rows but the last `displacement`. ``embedded``: the feed's own punctuation rows. ``arrival``: the clock, which
    stamps rows on entry. ``none``: none. ``adaptive``: the largest time less a learned delay. ``from_table``: bounds
    from outside the rows, which the guard does not check.
    """

    name: PolicyName = "none"
    delay_us: int = 0  # δ of ``bounded``; of ``adaptive`` the least delay until enough rows have come
    displacement: int = 0  # in rows
    max_jump_us: int = 3_600_000_000  # a row further beyond the largest confirmed time is suspect and moves nothing …
    confirmations: int = 5  # … until this many rows in succession, including it, are beyond it
    target_late: float = 0.001  # the share of rows that ``adaptive`` leaves late


class FeedProgress:
    """The progress of one feed. It does not depend on how the rows were split into calls.

    `bound` is exclusive and never decreases: as far as the policy can judge, every row with an earlier time has
    arrived. It is None before the first row, :data:`~.bounds.BEFORE_ALL` while the feed has rows but no low-watermark,
    and :data:`~.bounds.AFTER_ALL` at the feed's end. Among the rows `received`, `late` ones came below the bound;
    `late_idle` are late only by the rule for silent feeds. `suspects` were kept by the outlier guard from moving the
    bound, and no later row has confirmed them. The `skew` excludes rows more than `max_jump_us` behind.
    """

    def __init__(self, policy: Policy, state: Mapping[str, Any] | None = None) -> None:
        self._policy = policy
        saved = state or {}
        self.bound: int | None = saved.get("bound")
        self._own: int | None = saved.get("own")
        self.received: int = saved.get("received", 0)
        self.late: int = saved.get("late", 0)
        self.late_idle: int = saved.get("late_idle", 0)
        self.suspects: int = saved.get("suspects", 0)
        self._confirmed: int | None = saved.get("confirmed")
        self._run = np.array(saved.get("run", []), dtype=np.int64)
        self._delayed = np.array(saved.get("delayed", []), dtype=np.int64)
        self._claimed: int | None = saved.get("claimed")
        self.skew = Skew(saved.get("skew"))
        # Least and greatest time of the batch, as far as they are believed.
        self._batch: list[int] | None = saved.get("batch")
        self._lags: Lags | None = None
        if policy.name == "adaptive":
            half_life = max(_LEAST_HALF_LIFE, math.ceil(_LATE_IN_HALF_LIFE / policy.target_late))
            self._lags = Lags(half_life, saved.get("lags"))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as a JSON value, which `__init__` takes as `state`."""
        return {
            "bound": self.bound,
            "own": self._own,
            "received": self.received,
            "late": self.late,
            "late_idle": self.late_idle,
            "suspects": self.suspects,
            "confirmed": self._confirmed,
            "run": self._run.tolist(),
            "delayed": self._delayed.tolist(),
            "claimed": self._claimed,
            "skew": self.skew.to_json(),
            "batch": self._batch,
            **({} if self._lags is None else {"lags": self._lags.to_json()}),
        }

    @property
    def largest(self) -> int | None:
        """The largest confirmed time."""
        return self._confirmed

    @property
    def empty(self) -> bool:
        """True if the feed is known downstream but has shown no row: its apparent rows held none."""
        return self.bound is not None and self._own is None and not self.received

    @property
    def likely(self) -> int | None:
        """The largest confirmed time; before there is one, the median of the waiting times, as the guard takes it."""
        if self._confirmed is not None:
            return self._confirmed
        waiting = np.sort(np.concatenate([self._run, self._delayed]))
        return int(waiting[(len(waiting) - 1) // 2]) if len(waiting) else None

    @property
    def delay_us(self) -> int:
        """The expected lag behind the largest time at present; 0 for a policy without a delay."""
        if self._policy.name == "bounded":
            return self._policy.delay_us
        if self._lags is None:
            return 0
        learned = self._lags.exceeded_by(self._policy.target_late)
        enough = self._lags.rows * self._policy.target_late >= _LATE_TO_JUDGE
        return learned if enough else max(learned, self._policy.delay_us)

    def observe(self, times_us: Int64s) -> None:
        """Add the times of further rows, in arrival order; :data:`NO_TIME` entries are skipped."""
        times = times_us[times_us != NO_TIME]
        self.received += len(times)
        if self.bound is not None:
            late = times[times < self.bound]
            self.late += len(late)
            if self.bound != AFTER_ALL:  # what comes after the end is late by no rule for silent feeds
                self.late_idle += len(late) if self._own is None else int(np.count_nonzero(late >= self._own))
        if self._policy.name == "displaced":
            held = np.concatenate([self._delayed, times])
            ready = max(len(held) - self._policy.displacement, 0)
            times, self._delayed = held[:ready], held[ready:]
        self._guard(times)

    def observe_punctuation(self, time_us: int) -> None:
        """Add a punctuation row of the feed itself (``embedded``), or a bound from elsewhere (``from_table``)."""
        self._claimed = time_us if self._claimed is None else max(self._claimed, time_us)

    def close_batch(self, now_us: int, waiting_us: int | None = None) -> None:
        """Update the bound from the rows observed, at the end of a batch whose clock reads `now_us`.

        `waiting_us` is the arrival of the feed's oldest row that has been seen but is not in the batch, or None.
        """
        if self._batch is not None:
            least, greatest = self._batch
            self.skew.observe(least, greatest, now_us)
            self._batch = None
        self._raise_to(self._conclusion(now_us if waiting_us is None else min(now_us, waiting_us)))
        if self.received:
            self.begin()

    def begin(self) -> None:
        """Set the bound of a feed that has shown a row to :data:`~.bounds.BEFORE_ALL`, unless it has a bound.

        The feed then holds the others back until it has a low-watermark. ``none`` never has a bound.
        """
        if self.bound is None and self._policy.name != "none":
            self.bound = BEFORE_ALL

    def promise(self, bound_us: int) -> None:
        """Raise the bound beyond the policy's, for a silent feed that others wait for."""
        self.bound = bound_us if self.bound is None else max(self.bound, bound_us)

    @property
    def reached(self) -> int | None:
        """The bound up to which others may follow the feed; after :meth:`close`, the point just beyond its last row."""
        return self._own if self.bound == AFTER_ALL else self.bound

    def close(self) -> None:
        """Raise the bound of an ended feed to :data:`~.bounds.AFTER_ALL`.

        The caller does so once it waits for no feed to begin. Until then the feed keeps its policy's bound, since the
        first rows of the others may be below its end.
        """
        if (self.bound is None and self._claimed is None) or self._policy.name == "none":
            return
        seen = [] if self._own is None else [self._own]
        seen += [time + 1 for time in (self._confirmed, self._claimed) if time is not None]
        seen += (np.concatenate([self._run, self._delayed]) + 1).tolist()
        self._own = max(seen, default=None)
        self.bound = AFTER_ALL

    def _conclusion(self, now_us: int) -> int | None:
        name = self._policy.name
        if name == "arrival":
            return now_us
        if name == "from_table":
            return self._claimed
        if name == "none" or self._confirmed is None:
            return None
        if name == "embedded":
            believable = self._claimed is not None and self._claimed <= self._confirmed + self._policy.max_jump_us
            return self._claimed if believable else None
        return self._confirmed - self.delay_us

    def _raise_to(self, bound: int | None) -> None:
        if bound is not None:
            self._own = bound if self._own is None else max(self._own, bound)
            self.promise(self._own)

    def _believe(self, times: Int64s, largest: Int64s) -> None:
        """Learn from rows that pass the guard; `largest` is the largest time before each."""
        if not len(times):
            return
        behind = np.maximum(largest - times, 0)
        if self._lags is not None:
            self._lags.add(behind)
        near = times[behind <= self._policy.max_jump_us]
        if len(near):
            both = [int(near.min()), int(near.max())]
            self._batch = both if self._batch is None else [min(self._batch[0], both[0]), max(self._batch[1], both[1])]

    def _guard(self, times: Int64s) -> None:
        # A run of suspects that earlier calls left open comes first, so that calls may split anywhere.
        if len(self._run):
            self.suspects -= len(self._run)
            times = np.concatenate([self._run, times])
            self._run = times[:0]
        at, step = 0, _STEP
        while at < len(times):
            if self._confirmed is None:
                at = self._first_confirmation(times, at)
                continue
            ahead = times[at : at + step]
            reached = np.maximum.accumulate(np.concatenate([[self._confirmed], ahead]))
            beyond = np.flatnonzero(ahead > reached[:-1] + self._policy.max_jump_us)
            if not len(beyond):
                self._believe(ahead, reached[:-1])
                self._confirmed = int(reached[-1])
                at, step = at + len(ahead), min(step * 2, _MAX_STEP)
                continue
            self._believe(ahead[: beyond[0]], reached[: beyond[0]])
            self._confirmed = int(reached[beyond[0]])
            at, step = self._suspect_run(times, at + int(beyond[0])), _STEP

    def _first_confirmation(self, times: Int64s, at: int) -> int:
        # No time is confirmed yet: the median of the first few rows is believed, whatever a single row has.
        needed = self._policy.confirmations
        first = times[at : at + needed]
        if len(first) < needed:
            self._hold(first)
            return len(times)
        self._confirmed = int(np.sort(first)[(needed - 1) // 2])
        return at

    def _suspect_run(self, times: Int64s, at: int) -> int:
        assert self._confirmed is not None
        limit = self._confirmed + self._policy.max_jump_us
        run = times[at : at + self._policy.confirmations]
        inside = np.flatnonzero(run <= limit)
        if len(inside):
            self.suspects += int(inside[0])
            return at + int(inside[0])
        if len(run) < self._policy.confirmations:
            self._hold(run)
            return len(times)
        # So many in succession agree that time has moved on. The earliest is believed; the others are judged again.
        self._confirmed = int(run.min())
        return at

    def _hold(self, run: Int64s) -> None:
        self._run = run
        self.suspects += len(run)
