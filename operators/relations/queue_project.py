"""The columns of the newest rows that an update queue releases, each computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ...conf.units import now_us
from ...core.feedback.ages import Ages
from ...core.rows.exact_integers import HIGHEST, Int64s
from ...core.rows.key import Key
from ..queue.cells import Cells, Floats, Updates
from ..queue.keys import HashedKeys
from ..queue.monitor import StatisticsMonitor
from ..queue.queue import ALL, Control, ShardPlan, UpdateQueue
from ..queue.state import QueueState, queue_figures
from .arrangement import OperatorState
from .operator import Evaluable
from .plan.nodes import QueueProject
from .stateless import ProjectOperator
from .zsets import WEIGHT, Span, consolidated, delta_frame, firsts_of, int64s, key_numbers, numbered

ARRIVAL = "__arrival"
"""The arrival of a stream's row in microseconds, beside its columns."""

_GONE = "__gone"


class QueueStep(NamedTuple):
    """The figures of a step."""

    report: dict[str, Any]  # values of a QueueReport
    service: tuple[int, int, int]  # of a ServiceReport


class QueueProjectOperator(ProjectOperator):
    """See :class:`~.plan.nodes.QueueProject`: a queue of keys, whose newest rows wait, and the results by key.

    The queue has one cell for the keys of one hash, which leave it together. A result is kept, so a function is not
    computed again to retract its value.
    """

    def __init__(
        self,
        node: QueueProject,
        stream: str,
        columns: Sequence[tuple[str, Evaluable]],
        where: Evaluable | None,
        weight: Evaluable | None,
        state: OperatorState,
    ) -> None:
        super().__init__(columns)
        self.query, self.stream = node.query, stream
        self.control: Control | None = None
        """The instructions of the next step; None releases all rows."""
        self.arrivals: pl.DataFrame | None = None
        """The rows of the stream in the next step, with :data:`ARRIVAL`."""
        self.figures: QueueStep | None = None
        self._key = [*node.key]
        self._names = [next(name for name, each in columns if each.column == column) for column in node.key]
        self._plan = ShardPlan(Key(node.key), None, 1, node.policy)
        self._interval_us, self._where, self._weight = node.interval_us, where, weight
        self._values = state.values
        self._store = state.queue("cells")
        self._waiting = state.arrangement("waiting", node.source.schema.append(pa.field(_GONE, pa.bool_())))
        self._results = state.arrangement("results", self.schema)

    @property
    def waits(self) -> bool:
        """True if a row waits after the last step."""
        return bool(self._values.get("waiting"))

    def acts(self, span: Span) -> bool:
        return self.waits

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        (changes,) = inputs
        control = self.control or Control(0)
        state = QueueState(self._store)
        monitor = StatisticsMonitor(cost_s=control.cost_s)
        queue = UpdateQueue(self._plan.policy, HashedKeys(None), monitor=monitor, page_slots=state.slots, stored=True)
        if state.head:
            queue.restore(state.queue())
        tick = int(self._values.get("tick", 0))
        clock_us = max(control.now_us if control.now_us > tick else span.until - 1, int(self._values.get("now", 0)))
        numbers = key_numbers(changes, self._key)
        updates = self._updates(changes, numbers, clock_us)
        took = queue.enqueue(updates, clock_us)
        kept = ALL if control.kept is None else control.kept["budget"]
        budget = control.budget if control.now_us > tick else None if kept == ALL else int(kept)
        out = queue.dequeue(budget, clock_us)
        state.save(queue, pa.schema([]), self._plan, {})
        self._values.update(tick=max(control.now_us, tick), now=clock_us, waiting=len(queue))
        released = self._released(changes, numbers, np.unique(out.cells.number))
        began_us = now_us()
        found = self._computed(released, out.cells)
        served = Ages.of(clock_us - out.cells.first_arrival)
        figures = queue_figures(queue, took, len(updates.arrival), served)
        self.figures = QueueStep({"now_us": clock_us, **figures}, (len(out.locations), began_us, now_us()))
        return found

    def _updates(self, changes: pl.DataFrame, numbers: Int64s, clock_us: int) -> Updates:
        """Return the rows that arrived for the keys that change; a key without any changes now."""
        mine, arrival = numbers[:0], numbers[:0]
        if self.arrivals is not None and len(numbers):
            mine, arrival = key_numbers(self.arrivals, self._key), int64s(self.arrivals, ARRIVAL)
            change = np.isin(mine, numbers)
            mine, arrival = mine[change], arrival[change]
        others = np.setdiff1d(numbers, mine)
        mine = np.concatenate([mine, others])
        arrival = np.concatenate([arrival, np.full(len(others), clock_us)])
        intervals = np.full(len(mine), self._interval_us)
        weights = self._weights(changes, numbers, mine)
        return Updates(
            ([pa.chunked_array([pa.array(mine)])], mine), None, arrival, weight=weights, interval_us=intervals
        )

    def _weights(self, changes: pl.DataFrame, numbers: Int64s, wanted: Int64s) -> Floats | None:
        """Return the weights of some of the keys that change, by their new rows; of a key that goes, by its last."""
        if self._weight is None:
            return None
        order = np.argsort(-int64s(changes, WEIGHT), kind="stable")
        number, first = np.unique(numbers[order], return_index=True)
        weights = self._weight.series(changes, "__key_weight").cast(pl.Float64).fill_null(1.0).to_numpy()
        return weights[order][first][np.searchsorted(number, wanted)]

    def _released(self, changes: pl.DataFrame, numbers: Int64s, served: Int64s) -> pl.DataFrame:
        """Let the keys that change wait, and return the rows of those that are served."""
        old = self._waiting.read(np.union1d(numbers, served))
        came = changes.with_columns((pl.col(WEIGHT) < 0).alias(_GONE)).sort(_GONE).select(old.columns)
        rows = pl.concat([came, old])
        rows = rows.filter(pl.Series(firsts_of([rows.get_column(name) for name in self._key], np.arange(rows.height))))
        of = key_numbers(rows, self._key)
        goes = np.isin(of, served)
        self._waiting.write(rows.filter(pl.Series(~goes)), of[~goes])
        return rows.filter(pl.Series(goes))

    def _computed(self, rows: pl.DataFrame, cells: Cells) -> pl.DataFrame:
        """Return the changes of the results of some keys."""
        if rows.height == 0:
            return self.nothing
        before = self._results.read(key_numbers(rows, self._key))
        keys = rows.select(pl.col(key).alias(name) for key, name in zip(self._key, self._names, strict=True))
        ids = numbered(pl.concat([keys, before.select(self._names)]), self._names).ids
        replaced = np.isin(ids[rows.height :], ids[: rows.height])
        rows = rows.filter(~pl.col(_GONE))
        if self._where is not None:
            rows = rows.filter(self._where.series(rows, "__where"))
        made = pl.DataFrame([each.series(rows, name) for name, each in self._columns])
        self._results.write(made, key_numbers(made, self._names), replaced)
        found = pl.concat([made, before.filter(pl.Series(replaced))])
        weights = np.repeat(np.array([1, -1]), [made.height, found.height - made.height])
        served, at = np.unique(cells.number, return_inverse=True)
        first = np.full(len(served), HIGHEST)
        np.minimum.at(first, at, cells.first_arrival)
        return consolidated(
            delta_frame(found, first[np.searchsorted(served, key_numbers(found, self._names))], weights)
        )
