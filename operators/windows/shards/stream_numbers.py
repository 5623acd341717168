"""The numbers of a stream's rows in the order of arrival, by one shard that receives all rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from ....core.feedback.reports import NumberingReport
from ....core.rows.frames import from_frame, some_at_once, split_punctuation, to_frame
from ....core.rows.system_column import deleted_mask, system_field
from ...runtime.feeds import punctuation_rows
from ...runtime.pack import by_arrival, micros, packed
from ...state.store import Store, check_identity, other_layout, read_head
from .plan import NUMBER

Batches = Iterator[pa.RecordBatch]

_LAYOUT = 1


@dataclasses.dataclass(frozen=True)
class NumberingPlan:
    """The settings of row numbering."""

    schema: pa.Schema  # of numbered rows: the columns that the windows need, including the number

    @property
    def needed(self) -> list[str]:
        return [name for name in self.schema.names if name != NUMBER]

    def identity(self) -> dict[str, str]:
        return {"order": "arrival"}

    def changeable(self) -> dict[str, str]:
        return {}


def numbering_pack(slot: int) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that packs a task's rows into frames, without punctuation."""

    def run(batches: Batches) -> Batches:
        for table in some_at_once(batches):
            rows = split_punctuation(table)[0]
            if rows.num_rows:
                yield packed([(0, to_frame(rows))], [slot])

    return run


class NumberingShard:
    """One batch of row numbering.

    Rows leave with their number, and with punctuation: all rows below the count so far have arrived. For the windows
    that follow, the number is a time that is in order and never late. State of another version is refused.
    """

    def __init__(self, plan: NumberingPlan, store: Store) -> None:
        self._plan = plan
        self._store = store
        self._head = read_head(store)
        if self._head:
            check_identity(
                self._head["plan"],
                plan.identity(),
                "the row numbers of this checkpoint were begun",
                "order",
                other_layout(self._head["layout"], _LAYOUT),
            )

    def run(self, frames: Sequence[bytes], batch_id: int = -1) -> tuple[pa.Table | None, NumberingReport]:
        """Return arrived rows, numbered and in order, then punctuation; None without rows. Tombstones get no number."""
        schema = self._plan.schema
        before = self._head.get("counted", 0)
        tables = sorted((from_frame(frame) for frame in frames), key=_first)  # mostly, nothing else is to be sorted
        needed = pa.schema([schema.field(name) for name in self._plan.needed])
        rows = by_arrival(
            pa.concat_tables([needed.empty_table(), *(table.select(needed.names).cast(needed) for table in tables)])
        )
        counts = ~deleted_mask(rows).to_numpy()
        number = before - 1 + np.cumsum(counts, dtype=np.int64)
        counted = before + int(np.count_nonzero(counts))
        rows = rows.append_column(NUMBER, pa.array(number, mask=~counts)).select(schema.names)
        now_us = int(micros(rows, "arrival").max(initial=self._head.get("now_us", 0)))
        head = {"layout": _LAYOUT, "plan": self._plan.identity(), "counted": counted, "now_us": now_us}
        self._store.put("head", 0, json.dumps(head).encode())
        report = NumberingReport(shard=0, batch_id=batch_id, now_us=now_us, rows=counted - before, counted=counted)
        if rows.num_rows == 0:
            return None, report
        said = punctuation_rows(schema, ["rows"], now_us, **{NUMBER: pa.array([counted], pa.int64())})
        return pa.concat_tables([rows.cast(said.schema), said]), report


def _first(rows: pa.Table) -> tuple[int, int]:
    """Return the arrival and the sequence number of a frame's first row."""
    row = rows.slice(0, 1)
    return int(micros(row, "arrival")[0]), int(system_field(row, "seq")[0].as_py() or 0)
