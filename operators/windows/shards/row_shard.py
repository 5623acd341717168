"""One shard of windows over the rows of each key, such as its last hundred rows, every ten."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ....core.rows.buckets import bucket_of
from ....core.rows.exact_integers import Int64s, Mask
from ....core.rows.frames import from_frame, to_frame
from ...runtime.pack import by_arrival, split_punctuation
from ...runtime.shard import ShardInput
from ...state.entries import Entries, Keys, combined, lifted
from ...state.runs import RunFiles
from ...state.store import Store
from ..emission import every_window, ranks
from ..evaluate import WindowStates, combine_each
from .plan import WindowPlan
from .results import WindowStateShard, results_table

_KIND = "keys"
_COUNTED = "__upstream_counted"
_PAGES = 16


class RowWindowShard(WindowStateShard):
    """A shard of windows over rows.

    Each key's rows are counted as they arrive. So a window closes with its last row, needs no punctuation, and no row
    is late. State is in pages of keys, and a batch reads and writes the pages of its rows' keys.
    """

    def __init__(self, number: int, plan: WindowPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        self._kept: dict[str, int] = dict(self._head.get("kept", {}))

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Process the rows that arrived, and return the results of windows."""
        plan = self._plan
        tables = self._opened(given.left)
        rows = by_arrival(
            split_punctuation(pa.concat_tables([table.replace_schema_metadata(None) for table in tables]))[0]
        )
        keys = rows.select(list(plan.key))
        page = bucket_of(keys.columns, plan.shards * _PAGES) // plan.shards
        touched = np.unique(page).tolist()
        entries, counted = self._read(touched)
        numbers = Keys([counted.select(list(plan.key)), keys, entries.keys])
        known, mine, old = numbers.codes
        started = np.zeros(numbers.size, dtype=np.int64)
        started[known] = counted.column(_COUNTED).to_numpy()
        rank, count = ranks(mine, started)
        outside = self._outside(rank)
        new = lifted(plan.algebra, rows.filter(pa.array(~outside)), plan.key, plan.paned.pane_of(rank[~outside]))
        everything = Entries.concat([entries, new])
        codes = np.concatenate([old, Keys([numbers.take(np.arange(numbers.size)), new.keys]).codes[1]])
        before, now = (plan.windows.last_complete(each) for each in (started, count))
        closed, partial = self._closed(numbers, everything, codes, before, now, count > started)
        self._write(touched, self._needed(everything, codes, now), numbers, count)
        parts = [(closed, True), (partial, False)]
        result, self._seq = results_table(plan, parts, self._number, self._now_us, self._seq, {})
        return result, {
            "results": len(closed),
            "partial": len(partial),
            "outside": int(np.count_nonzero(outside)),
            "entries": sum(self._kept.values()),
            "runs_read": len(touched),
            "runs_written": len(touched),
            "plan": plan.identity(),
            **self._settings,
        }

    def saved(self) -> dict[str, Any]:
        return {**super().saved(), "kept": self._kept}

    def _needed(self, entries: Entries, codes: Int64s, now: Int64s) -> Entries:
        paned = self._plan.paned
        if not paned.endless:
            return entries.take(entries.panes >= paned.first_and_last(now + 1)[0][codes])
        # What is in a window is in all later ones, and may as well be in their first new pane.
        later = Entries(entries.keys, np.maximum(entries.panes, now[codes] + 1), entries.state)
        return combined(self._plan.algebra, later)

    def _outside(self, rank: Int64s) -> Mask:
        first, last = self._plan.windows.wids(rank)
        return last < first

    def _closed(
        self, numbers: Keys, entries: Entries, codes: Int64s, before: Int64s, now: Int64s, grown: Mask
    ) -> tuple[WindowStates, WindowStates]:
        plan = self._plan
        if plan.every:
            code, wid = every_window(plan.paned, codes, entries.panes, before[codes], now[codes])
        else:
            code = np.flatnonzero(now > before)
            wid = now[code]
        found = WindowStates(
            numbers.take(code), wid, combine_each(plan.paned, plan.algebra, entries, codes, (code, wid))
        )
        code = np.empty(0, dtype=np.int64)
        if plan.early:
            first = plan.paned.first_and_last(now + 1)[0]
            code = np.unique(codes[(entries.panes >= first[codes]) & grown[codes]])
        partial = WindowStates(
            numbers.take(code),
            now[code] + 1,
            combine_each(plan.paned, plan.algebra, entries, codes, (code, now[code] + 1)),
        )
        return found, partial

    def _read(self, pages: Sequence[int]) -> tuple[Entries, pa.Table]:
        plan = self._plan
        key = plan.key_schema
        entries = [Entries.none(plan.algebra, key)]
        counted = [key.append(pa.field(_COUNTED, pa.int64())).empty_table()]
        for page in pages:
            value = self._store.get(_KIND, page)
            if value is not None:
                (size,) = struct.unpack_from("<q", value)
                entries.append(Entries.of(from_frame(value[8 : 8 + size]), plan.key))
                counted.append(from_frame(value[8 + size :]))
        return Entries.concat(entries), pa.concat_tables(counted)

    def _write(self, pages: Sequence[int], entries: Entries, numbers: Keys, count: Int64s) -> None:
        plan = self._plan
        keys = numbers.take(np.arange(numbers.size))
        counted = keys.append_column(_COUNTED, pa.array(count))
        of_key = bucket_of(keys.columns, plan.shards * _PAGES) // plan.shards
        of_entry = bucket_of(entries.keys.columns, plan.shards * _PAGES) // plan.shards
        for number in pages:
            mine = entries.take(of_entry == number)
            frame = to_frame(mine.table())
            rest = to_frame(counted.filter(pa.array(of_key == number)))
            self._store.put(_KIND, number, struct.pack("<q", len(frame)) + frame + rest)
            self._kept[str(number)] = len(mine)
