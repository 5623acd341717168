"""The queues of a shard before and behind its join, for results in the order of time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ....core.rows.columns import with_nulls
from ....core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ....core.rows.sort_keys import ordered
from ....core.rows.system_column import system_field
from ...state.entries import PANE
from ...state.runs import Runs
from ...state.store import Store
from .choice import Mode, ReleasePlan, bounds_inside, enters_up_to

HALF_LIFE_S = 60.0
"""The age in seconds at which a row counts half."""


@dataclasses.dataclass(frozen=True)
class ArrivalRates:
    """λ₁ and λ₂ of Hammad et al. §6, as averages in which older rows count less."""

    left: float = 0.0  # number of rows, discounted by their age
    right: float = 0.0  # likewise
    seconds: float = 0.0  # the time in which they arrived, discounted likewise
    clock_us: int | None = None  # the last arrival; None before the first one

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ArrivalRates:
        """Return the inverse of :meth:`to_json`; no rates for an empty mapping."""
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def per_second(self) -> tuple[float, float]:
        """The rates of the left and the right; 0 before any time has passed."""
        if self.seconds <= 0:
            return 0.0, 0.0
        return self.left / self.seconds, self.right / self.seconds

    def seen(self, left: int, right: int, now_us: int, half_life_s: float = HALF_LIFE_S) -> ArrivalRates:
        """Return the rates after a batch with its last arrival at `now_us`.

        The clock never moves back. Rows of the first batch do not count, since the time in which they arrived is
        unknown.
        """
        if self.clock_us is None:
            return dataclasses.replace(self, clock_us=now_us or None)
        passed_s = max(now_us - self.clock_us, 0) / 1e6
        share = 0.5 ** (passed_s / half_life_s)
        return ArrivalRates(
            self.left * share + left,
            self.right * share + right,
            self.seconds * share + passed_s,
            max(now_us, self.clock_us),
        )


class TimeQueue:
    """Waiting rows by their time; `rows` counts them."""

    def __init__(self, store: Store, kind: str, schema: pa.Schema, time: str, saved: Mapping[str, Any]) -> None:
        self._schema = schema
        self._time = time
        whole = schema.append(pa.field(PANE, pa.int64()))
        self._runs = Runs(store, kind, saved.get("runs", ()), 1, fit=lambda table: with_nulls(table, whole))
        self._passed: int | None = saved.get("passed")
        self.rows = int(saved.get("rows", 0))

    def to_json(self) -> dict[str, Any]:
        return {"runs": self._runs.known, "passed": self._passed, "rows": self.rows}

    @property
    def first(self) -> int | None:
        """The least time of a row that waits; None without rows."""
        return self._runs.first_from(self._from) if self.rows else None

    def release(self, rows: pa.Table, bound: int) -> pa.Table:
        """Take rows, and return those that need not wait, with those that had waited for this bound, in no order.

        The bound is inclusive, and `LOWEST` if nothing is known. It may be less than an earlier one: rows up to that
        one still do not wait.
        """
        if self._passed is not None:
            bound = max(bound, self._passed)
        rows = rows.select(self._schema.names)
        if bound == LOWEST:
            self._wait(rows, self._times(rows))
            return self._schema.empty_table()
        found = self._due(bound)
        self._passed = bound
        times = self._times(rows)
        waits = times > bound
        if waits.any():
            self._wait(rows.filter(pa.array(waits)), times[waits])
            rows = rows.filter(pa.array(~waits))
        return pa.concat_tables([*found, rows], promote_options="default") if found else rows

    def drain(self) -> pa.Table:
        return pa.concat_tables([self._schema.empty_table(), *self._due(HIGHEST)], promote_options="default")

    @property
    def _from(self) -> int:
        return LOWEST if self._passed is None else self._passed + 1

    def _due(self, bound: int) -> list[pa.Table]:
        """Take the rows up to a time out of the queue."""
        if not self.rows or self._from > bound:
            return []
        found = [table.select(self._schema.names) for table in self._runs.tables(self._from, bound)]
        self._runs.drop_below(bound + 1)
        self.rows -= sum(table.num_rows for table in found)
        return found

    def _wait(self, rows: pa.Table, times: Int64s) -> None:
        self._runs.add(rows.append_column(PANE, pa.array(times)))
        self.rows += rows.num_rows

    def _times(self, rows: pa.Table) -> Int64s:
        if not rows.num_rows:
            return np.empty(0, dtype=np.int64)
        return ordered(rows.column(self._time)).astype(np.int64, copy=False)


class InputColumns(NamedTuple):
    """The rows of one input."""

    name: str
    schema: pa.Schema  # of the rows as they enter the join
    time: str


class ReleaseBuffer:
    """Both ways to the order of time, and the switch between them.

    In either mode, one queue releases results in the order of time, so a switch never breaks that order. With ``sync``,
    a second queue for each input holds rows until neither input can bring an earlier one.

    After :meth:`leave`, `late` has the batch's results below the time that had been released; `late_results` counts all
    of them. `comparisons` counts pairs of the batch's rows with kept ones, and `spent_s` is the time spent on them.
    """

    def __init__(
        self,
        plan: ReleasePlan,
        store: Store,
        inputs: Sequence[InputColumns],
        results: pa.Schema,
        time: str,
        saved: Mapping[str, Any],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._results, self._time = results, time
        self._queues = [
            TimeQueue(store, f"{each.name}_queue", each.schema, each.time, saved.get(f"{each.name}_queue", {}))
            for each in inputs
        ]
        self._held = TimeQueue(store, "held", results, time, saved.get("held", {}))
        # A fixed mode may differ from the last run's: that is a switch like any other.
        self.mode: Mode = saved.get("mode", plan.first) if plan.adaptive else plan.first
        self._rates = ArrivalRates.from_json(saved.get("rates", {}))
        self.late: pa.Table | None = None
        self.late_results = int(saved.get("late_results", 0))
        self.comparisons, self.spent_s = 0, 0.0
        self._began = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "rates": self._rates.to_json(),
            "left_queue": self._queues[0].to_json(),
            "right_queue": self._queues[1].to_json(),
            "held": self._held.to_json(),
            "late_results": self.late_results,
        }

    @property
    def rates(self) -> tuple[float, float]:
        return self._rates.per_second

    @property
    def queued(self) -> tuple[int, int]:
        """The numbers of rows of the left and the right that wait to enter the join."""
        return self._queues[0].rows, self._queues[1].rows

    @property
    def held(self) -> int:
        return self._held.rows

    @property
    def first_held(self) -> int | None:
        """The least time of a result that waits; None without any."""
        return self._held.first

    @property
    def first_queued(self) -> int | None:
        """The least time of a row that waits to enter the join; None without any."""
        return min((each for queue in self._queues if (each := queue.first) is not None), default=None)

    def enter(
        self, rows: Sequence[pa.Table], bounds: Sequence[int], now_us: int, asked: Mode | None = None
    ) -> tuple[list[pa.Table], list[int]]:
        """Take the rows that arrived, and return those that enter the join, and the bounds of those that enter later.

        `bounds` are those of rows that will arrive. `asked` changes the mode from this batch on.
        """
        if asked is not None and self._plan.adaptive:
            self.mode = asked
        left, right = rows
        self._rates = self._rates.seen(left.num_rows, right.num_rows, now_us)
        if self.mode == "filter":
            entering = [
                pa.concat_tables([queue.drain(), each], promote_options="default") if queue.rows else each
                for queue, each in zip(self._queues, rows, strict=True)
            ]
        else:
            until = enters_up_to(self.mode, bounds)
            entering = [queue.release(each, until) for queue, each in zip(self._queues, rows, strict=True)]
        return entering, bounds_inside(self.mode, bounds)

    def compare(self, new: Sequence[int], kept: Sequence[int]) -> None:
        """Start the clock for comparisons of new rows with kept ones and with each other."""
        self.comparisons = new[0] * kept[1] + new[1] * kept[0] + new[0] * new[1]
        self._began = self._clock()

    def compared(self) -> None:
        """Stop the clock that :meth:`compare` started."""
        self.spent_s = self._clock() - self._began

    def leave(self, results: pa.Table, before: int, promised: int) -> pa.Table:
        """Take the results of a batch, and return those that leave, in the order of time.

        `before` and `promised` are the results' low-watermark before and after the batch.
        """
        late = self._times(results) < before
        if late.any():
            # Later results have left already, so these would be out of order.
            self.late = results.filter(pa.array(late))
            self.late_results += int(np.count_nonzero(late))
            results = results.filter(pa.array(~late))
        found = self._held.release(results, promised)
        if found.num_rows > 1:
            seq = system_field(found, "seq").to_numpy()
            found = found.take(pa.array(np.lexsort((seq, self._times(found)))))
        return found

    def _times(self, rows: pa.Table) -> Int64s:
        if not rows.num_rows:
            return np.empty(0, dtype=np.int64)
        return ordered(rows.column(self._time)).astype(np.int64, copy=False)
