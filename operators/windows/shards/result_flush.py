"""The release of closed windows' results from a shard: eager, slow or lazy flush (thesis §8.3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ....conf.errors import CheckpointError
from ....core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ....core.rows.system_column import system_field
from ...state.entries import PANE, Entries, Keys
from ...state.pages import KeyPages
from ...state.runs import Runs
from ...state.store import Store
from ..emission import latest_per_key
from ..sessions import key_numbers
from .plan import WindowPlan
from .results import result_schema

_NUMBER = "__upstream_number"
_PARTS = 64


class ResultFlush:
    """The results of a shard that are computed and have not left yet.

    Slow flush numbers results as their windows close, and releases them in that order. Lazy flush finds them by their
    keys. Neither changes the results or their number. Results that wait are refused if the aggregates have changed.
    """

    def __init__(self, plan: WindowPlan, store: Store, head: dict[str, Any]) -> None:
        saved = head.get("flush") or {}
        self._plan = plan
        self._numbered = Runs(store, "due", saved.get("runs", ()), 1)
        self._next: int = saved.get("next", 0)
        self._gone: int = saved.get("gone", 0)
        # Of each part that was added: the number after its last result, the least window-id of those that wait, and
        # whether its results lie in the order of windows.
        self._parts: list[list[int]] = [list(each) for each in saved.get("parts", ())]
        by_key = result_schema(plan).append(pa.field(_NUMBER, pa.int64()))
        self._by_key = KeyPages(store, "waiting", _NUMBER, by_key, saved.get("pages", {}))
        self._of_window: dict[int, int] = {int(wid): n for wid, n in saved.get("windows", {}).items()}
        if self.waiting and head.get("aggregates") != plan.aggregates_text:
            raise CheckpointError(
                f"{self.waiting} results wait in this checkpoint that were computed with other aggregates: "
                f"{head.get('aggregates')}; now {plan.aggregates_text}",
                expected="the same aggregates until all results have left",
                hint="let the query as it was run until nothing waits, or start with a new checkpointLocation",
            )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value; empty if no result waits."""
        if not self.waiting:
            return {}
        return {
            "runs": self._numbered.known,
            "next": self._next,
            "gone": self._gone,
            "parts": self._parts,
            "pages": self._by_key.to_json(),
            "windows": {str(wid): n for wid, n in self._of_window.items()},
        }

    @property
    def due(self) -> int:
        """Results that the next batch may release, whatever arrives."""
        return self._next - self._gone

    @property
    def waiting(self) -> int:
        return self.due + self._by_key.rows

    @property
    def least(self) -> int | None:
        """The least window of a result that has not left, or a lesser one; None if all have left."""
        return min([*(least for _, least, _ in self._parts), *self._of_window], default=None)

    @property
    def needs(self) -> int | None:
        """The least low-watermark that releases a result which is not due; None if there is none."""
        if not self._of_window:
            return None
        return int(self._plan.windows.extent(min(self._of_window) + self._plan.flush_windows)[1])

    def leaving(self, results: pa.Table, new: Entries, closed: int, *, ended: bool) -> pa.Table:
        """Add a batch's results, which are of complete windows, and return those that leave with it.

        `new` are the batch's entries, and `closed` is the greatest window that is closed for all keys. If `ended`, all
        input partitions have ended, and no more rows arrive.
        """
        if self._plan.flush == "slow":
            return self._some(results)
        if self._plan.flush == "eager" and not self.waiting:
            return results
        return self._of_keys(results, new, closed, everything=ended or self._plan.flush == "eager")

    def _some(self, results: pa.Table) -> pa.Table:
        """Return the oldest results, as many as a batch may release."""
        most = self._plan.flush_rows
        assert most is not None
        if results.num_rows:
            results = results.take(pa.array(np.argsort(_wids(results), kind="stable")))
        found: list[pa.Table] = []
        if self.due == 0:  # what leaves at once is never written
            found, results = [results.slice(0, most)], results.slice(most)
            most = 0
        if results.num_rows:
            numbers = np.arange(self._next, self._next + results.num_rows, dtype=np.int64)
            self._numbered.add(results.append_column(PANE, pa.array(numbers)))
            self._next += results.num_rows
            self._parts.append([self._next, int(_wids(results)[0]), 1])
            if len(self._parts) > _PARTS:  # rather too low than too high
                (_, one, _), (end, other, _) = self._parts[:2]
                self._parts[:2] = [[end, min(one, other), 0]]
        if most and self.due:
            found.append(self._oldest(most))
        return pa.concat_tables(found) if found else results.slice(0, 0)

    def _oldest(self, most: int) -> pa.Table:
        tables = self._numbered.tables(self._gone, self._gone + most)  # and the one after them
        table = pa.concat_tables(tables)
        table = table.take(pa.array(np.argsort(table.column(PANE).to_numpy(), kind="stable")))
        found = table.slice(0, most).drop_columns([PANE])
        self._gone += found.num_rows
        self._numbered.drop_below(self._gone)
        self._parts = [each for each in self._parts if each[0] > self._gone]
        if self._parts and self._parts[0][2]:
            self._parts[0][1] = int(_wids(table.slice(most, 1))[0])
        return found

    def _of_keys(self, results: pa.Table, new: Entries, closed: int, *, everything: bool) -> pa.Table:
        """Return the results whose keys have rows for a later window, and those that have waited long enough."""
        plan = self._plan
        if results.num_rows == 0 and self._by_key.rows == 0:
            return results
        deadline = closed if everything or closed == LOWEST else closed - plan.flush_windows
        come = key_numbers(new.keys)
        passed = min(self._of_window, default=HIGHEST) <= deadline
        pages = self._by_key.all_pages if everything or passed else self._by_key.pages(come)
        held = self._by_key.read(pages)
        before = held.num_rows
        own = results.append_column(_NUMBER, pa.array(key_numbers(results.select(list(plan.key)))))
        all_of = pa.concat_tables([held, own.cast(held.schema)])
        wids = _wids(all_of)
        # A window closed by its key's own punctuation is ahead of the others, so it makes no burst.
        leaves = (wids <= deadline) | (wids > closed) | everything
        if len(new):
            keys = Keys([new.keys, all_of.select(list(plan.key))])
            newest = latest_per_key(new.panes, keys.codes[0], keys.size)[keys.codes[1]]
            leaves |= newest > plan.paned.first_and_last(wids)[1]
        moved = np.concatenate([leaves[:before], ~leaves[before:]])
        if moved.any():
            numbers = all_of.column(_NUMBER).to_numpy()
            changed = self._by_key.pages(numbers[moved])
            inside = self._by_key.among(numbers, changed)
            others = self._by_key.read(np.setdiff1d(changed, pages))
            kept = pa.concat_tables([all_of.filter(pa.array(inside & ~leaves)), others])
            was = int(np.count_nonzero(inside[:before])) + others.num_rows
            self._by_key.write(changed, was, kept)
            self._count(wids[:before][leaves[:before]], -1)
            self._count(wids[before:][~leaves[before:]], 1)
        found = all_of.filter(pa.array(leaves)).drop_columns([_NUMBER])
        return found.take(pa.array(np.argsort(system_field(found, "seq").to_numpy(), kind="stable")))

    def _count(self, wids: Int64s, sign: int) -> None:
        for wid, n in zip(*(each.tolist() for each in np.unique(wids, return_counts=True)), strict=True):
            self._of_window[wid] = self._of_window.get(wid, 0) + sign * n
            if self._of_window[wid] == 0:
                del self._of_window[wid]


def _wids(results: pa.Table) -> Int64s:
    return results.column("window_id").to_numpy()
