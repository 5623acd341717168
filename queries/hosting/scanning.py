"""The scan: takes rows of a stream, and emits frames for the shards of the first stage."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.deep_stack import on_deep_stack
from ...core.pushdown.ipc_frames import to_frame
from ...core.rows.event_times import NO_TIME, event_time_us
from ...core.rows.split import some_at_once, split_punctuation
from ...core.rows.system_column import SYSTEM, system_field
from ...core.watermark.bounds import bounds_in
from ...operators.runtime.arrivals import micros
from ...operators.runtime.feeds import key_mask
from ..deltas.computing import computed
from ..deltas.failures import FAILURES, attributed
from ..expressions.nodes import Expression
from ..placing.slots import slots_of
from .arrived_rows import as_sent
from .commands import Command
from .host_plan import HostPlan, HostPlans, Routing
from .messages import Outbox, control_of

__all__ = ["ScanStep", "divided", "shards_of"]


class ScanStep:
    """The step from a stream's rows, with the system column, to the messages for the first stage.

    Each routing sends its rows once for all queries. Each shard also gets the bounds of all feeds and the newest
    arrival, so a batch runs either all shards or none.
    """

    def __init__(self, commands: Callable[[], Command], plans: HostPlans, stream: str) -> None:
        self._commands = commands
        self._plans = plans
        self._stream = stream

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan: HostPlan | None = None
        for table in some_at_once(batches):
            if plan is None:
                plan = self._plans(self._commands().version)
            yield on_deep_stack(functools.partial(self._scanned, table, plan))

    def _scanned(self, table: pa.Table, plan: HostPlan) -> pa.RecordBatch:
        out = Outbox(plan.slots)
        rows, punctuation = split_punctuation(table)
        for routing in plan.routings.get(self._stream, ()):
            if rows.num_rows:
                _send(out, rows, routing, plan.shards)
        bounds = self._bounds(punctuation, plan)
        arrival = int(micros(table, "arrival").max(initial=0))
        newest = self._newest(rows, plan)
        out.put_to_all(control_of("scan", stream=self._stream, bounds=bounds, arrival=arrival, newest=newest))
        return out.batch()

    def _newest(self, rows: pa.Table, plan: HostPlan) -> int | None:
        """Return the largest event time of some rows; None if they have none."""
        stream = plan.stream(self._stream)
        if not stream.event_time or rows.num_rows == 0:
            return None
        newest = int(event_time_us(rows.column(stream.event_time), None, "UTC").max())
        return None if newest == NO_TIME else newest

    def _bounds(self, punctuation: pa.Table, plan: HostPlan) -> dict[str, int]:
        """Return the bounds by feed. Punctuation of single keys is ignored, since queries cannot use it."""
        stream = plan.stream(self._stream)
        if not stream.event_time or punctuation.num_rows == 0:
            return {}
        others = [name for name in punctuation.column_names if name not in (SYSTEM, stream.event_time)]
        whole = punctuation.filter(pa.array(~key_mask(punctuation, others)))
        feeds = pc.fill_null(system_field(whole, "source").cast(pa.string()), "").to_pylist()
        found: dict[str, int] = {}
        bounds = bounds_in(whole.column(stream.event_time), lambda times: event_time_us(times, None, "UTC"))
        for feed, bound in zip(feeds, bounds.tolist(), strict=True):
            found[feed] = max(bound, found.get(feed, bound))
        return found


def _send(out: Outbox, rows: pa.Table, routing: Routing, shards: int) -> None:
    sent = as_sent(rows, routing.stream.schema)
    control = control_of("rows", stream=routing.stream.name, routing=routing.name)
    if routing.shard is not None:
        out.put(routing.shard, control, to_frame(sent))
        return
    frame = pl.from_arrow(sent)
    assert isinstance(frame, pl.DataFrame)
    try:
        shard = shards_of(frame, routing.by, routing.stream.schema, shards)
    except FAILURES as error:
        out.put_to_all(control_of("unroutable", routing=routing.name, reason=str(attributed(error))))
        return
    for number, at in divided(shard, shards):
        out.put(number, control, to_frame(sent.take(pa.array(at))))


def shards_of(frame: pl.DataFrame, by: Sequence[Expression], schema: pa.Schema, shards: int) -> np.ndarray:
    """Return the shard of each row by the values of some expressions."""
    columns = [computed(each, schema).series(frame, f"__by{number}") for number, each in enumerate(by)]
    return slots_of(columns, shards)


def divided(shard: np.ndarray, shards: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each shard that has rows, and their positions in order."""
    order = np.argsort(shard, kind="stable")
    ends = np.searchsorted(shard[order], np.arange(shards + 1))
    for number in np.flatnonzero(np.diff(ends)).tolist():
        yield number, order[ends[number] : ends[number + 1]]
