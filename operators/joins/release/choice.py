"""The two ways to the order of time (Hammad et al. §4-6), and the choice between them from batch to batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

from ....conf.errors import OptionError
from ....conf.options import flag_argument
from ....core.feedback.reports import JoinReport, read_reports
from ....core.rows.exact_integers import HIGHEST
from ...runtime.ticks import TickSource

Release = Literal["sync", "filter", "adaptive"]
"""The way of results to the order of time: order rows, hold results, or choose between the two."""

Mode = Literal["sync", "filter"]
"""A shard's way to the order of time. ``sync`` orders the input: a row enters the join once neither input can bring an
earlier one. ``filter`` orders the output: rows meet at once, and results are held. It works while it waits, and holds
more.
"""

ALPHA = 0.3
"""The load from which on results are held: α of §6, with the value of its experiments."""


@dataclasses.dataclass(frozen=True)
class ReleasePlan:
    """The release of a join's results in the order of time."""

    release: Release = "filter"
    cost_s: float | None = None  # c: seconds to compare two rows; None to measure it
    alpha: float = ALPHA  # the load from which on results are held, for ``adaptive``
    # w: seconds over which a row looks back on the other side; None if the unit of time is unknown
    window_s: float | None = None

    @property
    def first(self) -> Mode:
        """The mode of shards before anything is measured."""
        return "filter" if self.release == "filter" else "sync"

    @property
    def adaptive(self) -> bool:
        """True if the mode is chosen from batch to batch."""
        return self.release == "adaptive"

    def options(self) -> dict[str, str]:
        cost = {} if self.cost_s is None else {"cost": repr(self.cost_s)}
        return {"alpha": repr(self.alpha), "window": repr(self.window_s), **cost}

    def identity(self) -> str:
        """Return the setting to which a checkpoint is bound, in words: an adaptive choice has an input of its own."""
        return "event_time, adaptive" if self.adaptive else "event_time"

    def changeable(self) -> dict[str, str]:
        if not self.adaptive:
            return {"release": self.release}
        return {"alpha": str(self.alpha), **({} if self.cost_s is None else {"cost": f"{self.cost_s} s"})}


def enters_up_to(mode: Mode, bounds: Sequence[int]) -> int:
    """Return the last time of rows that enter, by both bounds: one at the bound need not wait (Bai et al. §4.1)."""
    return HIGHEST if mode == "filter" else min(bounds)


def bounds_inside(mode: Mode, bounds: Sequence[int]) -> list[int]:
    """Return the bounds of the rows that will enter the join; waiting rows are among these."""
    return list(bounds) if mode == "filter" else [min(bounds)] * len(bounds)


def load_of(cost_s: float, window_s: float, rates: Iterable[tuple[float, float]]) -> float:
    """Return c·w·λ₁·λ₂: half of the time that goes into comparing rows.

    `rates` has λ₁ and λ₂ of each shard. A row is compared only with those of its own shard, so the loads of shards add
    up.
    """
    return sum(cost_s * window_s * left * right for left, right in rates)


def choose(load: float, alpha: float) -> Mode:
    """Return the mode for a load: from α on, holding results takes at least α / (1 + α) off the response time."""
    return "filter" if load >= alpha else "sync"


@dataclasses.dataclass(frozen=True)
class OrderedRelease:
    """Results of a join in the order of event time: an argument `emit` of :meth:`~upstream.UpdateStream.join`.

    If the order is all that you need, give the word: ``emit="ordered"``.

    Parameters
    ----------
    method
        ``filter`` holds results, ``sync`` holds rows, and ``adaptive`` chooses: it holds results while `cost` times the
        window times both arrival rates is at least `alpha`.
    cost
        For ``adaptive``: seconds to compare two rows [default: as measured].
    alpha
        For ``adaptive``: the load from which on results are held [default: 0.3].
    dead_letters
        Write results that come too late for the order to the dead-letter table. They are counted in any case.

    Raises
    ------
    OptionError
        An argument makes no sense, or two do not go together.

    Examples
    --------
    >>> near = us.Interval(before="2 minutes", after="3 minutes")
    >>> both = stream.join(other, on="vehicle_id", within=near, emit=us.OrderedRelease("sync"))
    """

    method: Release = "filter"
    _: dataclasses.KW_ONLY
    cost: float | None = None
    alpha: float | None = None
    dead_letters: bool = False

    def __post_init__(self) -> None:
        flag_argument("dead_letters", self.dead_letters)
        alpha, cost = cast("Any", self.alpha), cast("Any", self.cost)  # whatever was given
        if self.method not in get_args(Release):
            raise OptionError(
                f"method={self.method!r}",
                expected="'filter', which holds results, 'sync', which orders rows, or 'adaptive', which chooses",
                hint="correct method",
            )
        if self.method != "adaptive" and (cost is not None or alpha is not None):
            raise OptionError(
                f"cost and alpha with method={self.method!r}",
                expected="method='adaptive', which chooses by them",
                hint="leave them out",
            )
        if alpha is not None and (isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha < 1):
            raise OptionError(
                f"alpha={alpha!r}",
                expected="a number from 0 to below 1: the share of the time from which on results are held",
                hint="0.3 takes a quarter or more off the response time",
            )
        if cost is not None and (
            isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 < cost < math.inf
        ):
            raise OptionError(
                f"cost={cost!r}",
                expected="seconds, more than 0: what it takes to compare two rows, such as 5e-8",
                hint="leave it out: it is measured",
            )


def release_plan(asked: OrderedRelease, window: float, unit_us: int | None) -> ReleasePlan:
    """Return the release of a join.

    `window` is the distance over which a row looks back on the other side, in units of the time column. `unit_us` has
    the microseconds of one unit; None if unknown.
    """
    if asked.method == "adaptive" and unit_us is None:
        raise OptionError(
            "emit=us.OrderedRelease('adaptive'), and the time column holds numbers of an unknown unit",
            expected="a time in which the length of the window is known: it determines how many rows a row is compared "
            "with",
            hint="give time_format='epoch_ms' where the stream is made; or choose 'sync' or 'filter'",
        )
    return ReleasePlan(
        asked.method,
        None if asked.cost is None else float(asked.cost),
        ALPHA if asked.alpha is None else float(asked.alpha),
        None if unit_us is None else window * unit_us / 1e6,
    )


@dataclasses.dataclass
class MeasuredCost:
    """The cost of comparing two rows: c of §4.1."""

    seconds: float = 0.0  # of all batches, each of which counts half as much as the next
    comparisons: float = 0.0  # likewise
    batch_id: int = -1  # the last batch that counts

    def see(self, reports: Sequence[JoinReport]) -> None:
        """Count the last batch, once."""
        last = max((each.batch_id for each in reports), default=-1)
        mine = [each for each in reports if each.batch_id == last and each.comparisons]
        if last <= self.batch_id or not mine:
            return
        self.batch_id = last
        self.seconds = self.seconds / 2 + sum(each.spent_s for each in mine)
        self.comparisons = self.comparisons / 2 + sum(each.comparisons for each in mine)

    @property
    def each_s(self) -> float | None:
        """Seconds to compare two rows; None before any were compared."""
        return self.seconds / self.comparisons if self.comparisons else None


@dataclasses.dataclass
class ReleasePlanner:
    """The planner that starts a batch when another mode is worth it.

    The choice is in the offset of an input of its own, so a rerun of a batch makes the same one.
    """

    slots: tuple[int, ...]  # Spark's grouping number of each shard
    reports: Callable[[], list[JoinReport]]  # the last report of each shard
    choice: ReleasePlan
    # of this run: after a restart, the cost of the last choice counts until a batch is measured
    measured: MeasuredCost = dataclasses.field(default_factory=MeasuredCost)

    @classmethod
    def of(cls, slots: tuple[int, ...], options: Mapping[str, str]) -> ReleasePlanner:
        folder, cost = options["feedback"], options.get("cost")
        plan = ReleasePlan(
            "adaptive", None if cost is None else float(cost), float(options["alpha"]), float(options["window"])
        )
        return cls(slots, lambda: read_reports(folder, JoinReport), plan)

    def initial(self) -> dict[str, Any]:
        """Return the offset before the first choice: rows are ordered, as in §6."""
        return {"tick": 0, "now_us": 0, "mode": self.choice.first, "cost": None, "load": 0.0}

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of another choice; `start` if it stays as it is."""
        reports = self.reports()
        self.measured.see(reports)
        plan = self.choice
        cost = plan.cost_s
        if cost is None:
            cost = self.measured.each_s
        if cost is None:
            cost = start["cost"]
        if cost is None or plan.window_s is None:
            return start
        load = load_of(cost, plan.window_s, [(each.rates[0], each.rates[1]) for each in reports if each.rates])
        mode = choose(load, plan.alpha)
        if mode == start["mode"]:
            return start
        now_us = max(now_us, start["now_us"])
        return {"tick": start["tick"] + 1, "now_us": now_us, "mode": mode, "cost": cost, "load": load}

    def messages(self, offset: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return the choice for each shard; nothing for the offset before the first one."""
        return [(slot, offset["mode"]) for slot in self.slots] if offset["tick"] else []


class ReleaseTicks(TickSource):
    """The ``upstream_release`` format; made by the fluent stream, not by users."""

    @classmethod
    def name(cls) -> str:
        return "upstream_release"

    def planner(self) -> ReleasePlanner:
        return ReleasePlanner.of(self.slots(), self.options)
