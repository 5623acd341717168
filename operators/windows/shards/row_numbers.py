"""The numbers of rows, of a key by time or of a stream by arrival, where every n-th row ends a window."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....core.feedback.reports import NumberingReport
from ....core.rows.exact_integers import Int64s
from ....core.rows.frames import from_frame, some_at_once, split_punctuation, to_frame
from ....core.rows.system_column import deleted_mask, system_field
from ...runtime.feeds import punctuation_rows
from ...runtime.pack import by_arrival, micros, packed
from ...runtime.shard import Shard, ShardInput
from ...state.entries import Entries, Keys
from ...state.pages import KeyPages
from ...state.store import Store
from ..emission import ranks
from ..sessions import key_numbers
from .plan import NUMBER, OPENS, ROWS, WindowPlan
from .session_shard import latest_of_key

_NUMBER, _COUNTED = "__upstream_number", "__upstream_counted"


class KeyCounts:
    """A count for each key, on pages of keys."""

    def __init__(self, store: Store, key: pa.Schema, saved: Any) -> None:
        self._key = key
        self._schema = pa.schema([*key, *(pa.field(name, pa.int64()) for name in (_COUNTED, _NUMBER))])
        self._pages = KeyPages(store, "numbers", _NUMBER, self._schema, saved)

    def to_json(self) -> dict[str, Any]:
        return self._pages.to_json()

    def count(self, keys: pa.Table, rows: Int64s) -> Int64s:
        """Add `rows` to the counts of `keys`, each key once, and return the counts before."""
        numbers = key_numbers(keys)
        pages = self._pages.pages(numbers)
        kept = self._pages.read(pages)
        known, asked = Keys([kept.select(self._key.names), keys]).codes
        count = np.zeros(1 + max(int(known.max(initial=-1)), int(asked.max(initial=-1))), dtype=np.int64)
        count[known] = kept.column(_COUNTED).to_numpy()
        before = count[asked]
        others = kept.filter(pa.array(~np.isin(known, asked)))
        now = keys.append_column(_COUNTED, pa.array(before + rows)).append_column(_NUMBER, pa.array(numbers))
        now = now.select(self._schema.names).cast(self._schema)
        self._pages.write(pages, kept.num_rows, pa.concat_tables([others, now]))
        return before


class RowNumbers:
    """The number of rows of each key that the low-watermark has passed, for windows that slide by rows."""

    def __init__(self, store: Store, plan: WindowPlan, saved: Any) -> None:
        self._plan = plan
        self._counts = KeyCounts(store, plan.key_schema, saved)

    def to_json(self) -> dict[str, Any]:
        return self._counts.to_json()

    def opened(self, keys: Keys, codes: Int64s, entries: Entries, before: int, now: int) -> tuple[Int64s, Int64s]:
        """Count the rows of panes ``before < pane <= now``, and return the windows that they open.

        `entries` are all entries of these panes, which get no further rows. Windows are in the order of keys, then of
        time. Rows of one time open one window.
        """
        plan = self._plan
        inside = np.flatnonzero((entries.panes > before) & (entries.panes <= now))
        if len(inside) == 0:
            return inside, inside
        rows = plan.algebra.lower(entries.state.take(pa.array(inside))).column(ROWS).to_numpy()
        code, pane = codes[inside], entries.panes[inside]
        order = np.lexsort((pane, code))
        code, pane, rows = code[order], pane[order], rows[order]
        begins = np.ones(len(code), dtype=np.bool_)
        begins[1:] = (code[1:] != code[:-1]) | (pane[1:] != pane[:-1])
        at = np.flatnonzero(begins)
        code, pane, rows = code[at], pane[at], np.add.reduceat(rows, at)
        mine, first = np.unique(code, return_index=True)
        of_key = np.searchsorted(mine, code)
        total = np.cumsum(rows)
        sofar = total - (total - rows)[first][of_key]
        last = np.append(first[1:], len(code)) - 1
        through = sofar + self._counts.count(keys.take(mine), sofar[last])[of_key]
        opens = through // plan.rows_apart > (through - rows) // plan.rows_apart
        if not plan.every:
            opens = latest_of_key(code, opens)
        return code[opens], pane[opens]


class ArrivalNumbers:
    """The number of rows of each key that have arrived, for windows that slide by rows.

    A row that ends a window is marked. Its mark is kept with the partial aggregate of its instant, until the
    low-watermark passes it.
    """

    def __init__(self, store: Store, plan: WindowPlan, saved: Any) -> None:
        self._plan = plan
        self._counts = KeyCounts(store, plan.key_schema, saved)

    def to_json(self) -> dict[str, Any]:
        return self._counts.to_json()

    def marked(self, rows: pa.Table) -> pa.Table:
        """Count all rows that arrived, in that order, and add :data:`OPENS`: 1 for rows that end a window, else 0."""
        keys = Keys([rows.select(list(self._plan.key))])
        codes = keys.codes[0]
        sizes = np.bincount(codes, minlength=keys.size).astype(np.int64)
        started = self._counts.count(keys.take(np.arange(keys.size)), sizes)
        every = self._plan.rows_apart
        opens = ranks(codes, started)[0] % every == every - 1
        return rows.append_column(OPENS, pa.array(opens.astype(np.int64)))

    def opened(self, keys: Keys, codes: Int64s, entries: Entries, before: int, now: int) -> tuple[Int64s, Int64s]:
        """Return the windows that marked rows of panes ``before < pane <= now`` open.

        `entries` are all entries of these panes. Windows are in the order of keys, then of time. Rows of one time open
        one window.
        """
        del keys
        inside = np.flatnonzero((entries.panes > before) & (entries.panes <= now))
        marks = self._plan.algebra.lower(entries.state.take(pa.array(inside))).column(OPENS)
        inside = inside[pc.greater(marks, 0).to_numpy(zero_copy_only=False)]
        found = np.unique(np.column_stack((codes[inside], entries.panes[inside])), axis=0)
        code, pane = found[:, 0], found[:, 1]
        if self._plan.every:
            return code, pane
        latest = latest_of_key(code, np.ones(len(code), dtype=np.bool_))
        return code[latest], pane[latest]


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
