"""The numbers of a stream's rows in the order of arrival, by one shard that receives all rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ....core.feedback.reports import NumberingReport
from ....core.rows.frames import from_frame, some_at_once, split_punctuation, to_frame
from ....core.rows.system_column import deleted_mask, system_field
from ...runtime.feeds import punctuation_rows
from ...runtime.pack import by_arrival, micros, packed
from ...runtime.shard import Shard, ShardInput
from .plan import NUMBER

Batches = Iterator[pa.RecordBatch]


@dataclasses.dataclass(frozen=True)
class NumberingPlan:
    """The settings of row numbering."""

    schema: pa.Schema  # of numbered rows: the columns that the windows need, including the number
    shards: int = 1

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


class NumberingShard(Shard[NumberingPlan, NumberingReport]):
    """The one shard of row numbering.

    Rows leave with their number, and with punctuation: all rows below the count so far have arrived. For the windows
    that follow, the number is a time that is in order and never late.
    """

    began = "the row numbers of this checkpoint were begun"
    same = "order"
    report = NumberingReport
    counted = ("counted",)

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return arrived rows, numbered and in order, then punctuation. Tombstones get no number."""
        schema = self._plan.schema
        before = self._counts["counted"]
        tables = sorted((from_frame(frame) for frame in given.left), key=_first)  # mostly, nothing else is to be sorted
        needed = pa.schema([schema.field(name) for name in self._plan.needed])
        rows = by_arrival(
            pa.concat_tables([needed.empty_table(), *(table.select(needed.names).cast(needed) for table in tables)])
        )
        counts = ~deleted_mask(rows).to_numpy()
        number = before - 1 + np.cumsum(counts, dtype=np.int64)
        counted = self._counts["counted"] = before + int(np.count_nonzero(counts))
        rows = rows.append_column(NUMBER, pa.array(number, mask=~counts)).select(schema.names)
        self._advance_clock([rows])
        figures = {"rows": counted - before}
        if rows.num_rows == 0:
            return None, figures
        said = punctuation_rows(schema, ["rows"], self._now_us, **{NUMBER: pa.array([counted], pa.int64())})
        return pa.concat_tables([rows.cast(said.schema), said]), figures


def _first(rows: pa.Table) -> tuple[int, int]:
    """Return the arrival and the sequence number of a frame's first row."""
    row = rows.slice(0, 1)
    return int(micros(row, "arrival")[0]), int(system_field(row, "seq")[0].as_py() or 0)
