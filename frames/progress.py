"""How the low-watermark of a feed is found: the policies, each behind the outlier guard.

Pure logic: times come in as arrays in arrival order, the clock is an argument, and the whole state is a small JSON value.
The answer does not depend on how the rows were split into calls. (semantics: streams; Li's thesis §8.1; Bai et al. §5)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .times import NO_TIME

__all__ = ["Policy", "PolicyName", "Progress"]

Int64s = npt.NDArray[np.int64]
PolicyName = Literal["ordered", "bounded", "displaced", "embedded", "heartbeat", "latent"]

# Rows looked at in one step while outliers are about; doubled while there are none, as far as the cache likes it.
_STEP = 1024
_MAX_STEP = 1 << 16


@dataclasses.dataclass(frozen=True)
class Policy:
    """How a feed's progress is judged.

    Attributes
    ----------
    name
        ``ordered``: the bound is the largest time seen. ``bounded``: that minus `delay_us`. ``displaced``: the largest time among
        all rows but the last `displacement`. ``embedded``: what the feed's own punctuation rows say. ``heartbeat``: the
        clock, rows being stamped on entry. ``latent``: none.
    delay_us
        δ of ``bounded``, in microseconds.
    displacement
        n of ``displaced``, in rows.
    max_jump_us
        A row further than this beyond the largest confirmed time is suspect and does not move progress …
    confirmations
        … until so many rows in succession, it included, lie beyond it.
    """

    name: PolicyName = "latent"
    delay_us: int = 0
    displacement: int = 0
    max_jump_us: int = 3_600_000_000
    confirmations: int = 5


class Progress:
    """The progress of one feed.

    Parameters
    ----------
    policy
        How to judge it.
    state
        What :meth:`snapshot` returned; None at the beginning.

    Attributes
    ----------
    bound : int or None
        Exclusive, in microseconds since the epoch: every row with a time below it has arrived, as far as the policy can tell.
        Never decreases.
    late : int
        Rows that came below the bound promised before them.
    suspects : int
        Rows that the outlier guard has kept from moving progress and no later row has confirmed.
    """

    def __init__(self, policy: Policy, state: Mapping[str, Any] | None = None) -> None:
        self._policy = policy
        saved = state or {}
        self.bound: int | None = saved.get("bound")
        self.late: int = saved.get("late", 0)
        self.suspects: int = saved.get("suspects", 0)
        self._confirmed: int | None = saved.get("confirmed")
        self._run = np.array(saved.get("run", []), dtype=np.int64)
        self._delayed = np.array(saved.get("delayed", []), dtype=np.int64)
        self._claimed: int | None = saved.get("claimed")

    def snapshot(self) -> dict[str, Any]:
        """The state as a JSON value."""
        return {
            "bound": self.bound,
            "late": self.late,
            "suspects": self.suspects,
            "confirmed": self._confirmed,
            "run": self._run.tolist(),
            "delayed": self._delayed.tolist(),
            "claimed": self._claimed,
        }

    def observe(self, times_us: Int64s) -> None:
        """Take the times of further rows, in arrival order; :data:`NO_TIME` entries are passed over."""
        times = times_us[times_us != NO_TIME]
        if self.bound is not None:
            self.late += int(np.count_nonzero(times < self.bound))
        if self._policy.name == "displaced":
            held = np.concatenate([self._delayed, times])
            ready = max(len(held) - self._policy.displacement, 0)
            times, self._delayed = held[:ready], held[ready:]
        self._guard(times)

    def observe_punctuation(self, time_us: int) -> None:
        """Take a punctuation row of the feed itself (``embedded``)."""
        self._claimed = time_us if self._claimed is None else max(self._claimed, time_us)

    def close_batch(self, now_us: int) -> None:
        """Draw the conclusion from what has been observed, at the end of a batch whose clock reads `now_us`."""
        self._raise_to(self._conclusion(now_us))

    def end(self) -> None:
        """The feed has said that it sends nothing more: every time it has shown lies behind."""
        seen = [time for time in (self._confirmed, self.bound, self._claimed) if time is not None]
        waiting = np.concatenate([self._run, self._delayed])
        if len(waiting):
            seen.append(int(waiting.max()))
        if seen and self._policy.name != "latent":
            self._raise_to(max(seen) + 1)

    def _conclusion(self, now_us: int) -> int | None:
        name = self._policy.name
        if name == "heartbeat":
            return now_us
        if name == "latent" or self._confirmed is None:
            return None
        if name == "embedded":
            believable = self._claimed is not None and self._claimed <= self._confirmed + self._policy.max_jump_us
            return self._claimed if believable else None
        return self._confirmed - (self._policy.delay_us if name == "bounded" else 0)

    def _raise_to(self, bound: int | None) -> None:
        if bound is not None and (self.bound is None or bound > self.bound):
            self.bound = bound

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
                self._confirmed = int(reached[-1])
                at, step = at + len(ahead), min(step * 2, _MAX_STEP)
                continue
            self._confirmed = int(reached[beyond[0]])
            at, step = self._suspect_run(times, at + int(beyond[0])), _STEP

    def _first_confirmation(self, times: Int64s, at: int) -> int:
        # Nothing is known yet: the median of the first few rows is taken for true, whatever one of them says.
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
        # So many in succession agree that time has moved on. The earliest of them is believed; the others are judged anew.
        self._confirmed = int(run.min())
        return at

    def _hold(self, run: Int64s) -> None:
        self._run = run
        self.suspects += len(run)
