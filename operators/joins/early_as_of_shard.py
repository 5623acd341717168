"""One shard of a join as of a time that emits results at once, and revises them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.feedback.join_reports import JoinReport
from ...core.rows.exact_integers import Int64s
from ...core.rows.system_column import SYSTEM, system_array
from ..runtime.arrivals import micros
from ..runtime.entries import PANE
from ..runtime.feeds import ENDED
from ..runtime.key_pages import KeyPages
from ..runtime.store import Store
from .arriving import numbers_of, without_key
from .as_of_plan import AsOfPlan
from .as_of_shard import AsOfShard
from .band import LEFT, RIGHT
from .side import NUMBER, ROW

__all__ = ["EarlyAsOfShard"]

_PARTNER, _ARRIVAL = "__upstream_partner", "__upstream_arrival"
_FEW = 1024


class EarlyAsOfShard(AsOfShard):
    """One batch of one shard, as pure logic over the store.

    A row of the left leaves at once, with its newest row of the right so far. Each better partner re-emits it, with the
    same key and time, until the watermark of the right has passed it.
    """

    def __init__(self, number: int, plan: AsOfPlan, store: Store) -> None:
        own = (PANE, NUMBER, ROW, _PARTNER, _ARRIVAL)
        self._schema = pa.schema([*plan.left.schema, *(pa.field(name, pa.int64()) for name in own)])
        self._purged = 0
        self._waiting: KeyPages | None = None
        super().__init__(number, plan, store)
        self._waiting = KeyPages(self._store, "waiting", NUMBER, self._schema, self._head.get("waiting", {}))
        self._purged = int(self._head.get("purged", 0))

    def run(
        self, left: Sequence[bytes], right: Sequence[bytes], batch_id: int = -1
    ) -> tuple[pa.Table | None, JoinReport]:
        """Return results of left rows that arrived or got a better partner, then punctuation; None without either."""
        rows, bounds, now_us = self._taken(left, right)
        for side in (LEFT, RIGHT):
            self._progress.raised(side)
        # Rows meet first: a row that waits may have got a better partner in this batch.
        given_to = max(bounds[RIGHT], self._given_to)
        result = self._revised(rows[LEFT], rows[RIGHT], min(bounds[LEFT], given_to), bounds[RIGHT], given_to)
        self._given_to = given_to
        self._purge()
        return self._ended(result, bounds, now_us), self._report(batch_id, now_us, None)

    @property
    def _left_kept(self) -> int:
        return int(self._head.get("waiting", {}).get("rows", 0)) if self._waiting is None else self._waiting.rows

    @property
    def _pages(self) -> KeyPages:
        assert self._waiting is not None
        return self._waiting

    def _more(self) -> dict[str, Any]:
        return {"waiting": self._pages.to_json(), "purged": self._purged}

    def _revised(self, new: pa.Table, partners: pa.Table, needed: int, bound: int, given_to: int) -> pa.Table:
        """Return results of new rows of the left, and of waiting ones whose partner has changed.

        `new` and `partners` arrived on the left and the right. `needed` and `bound` are those of `_given`. Rows of the
        left before `given_to` are final from now on.
        """
        plan = self._plan
        keyless = without_key(new, plan.left.on)
        alone = new.filter(pa.array(keyless))
        new = new.filter(pa.array(~keyless)).combine_chunks()
        new = new.append_column(NUMBER, pa.array(numbers_of(new, plan.left.on)))
        nothing = np.full(new.num_rows, -1, dtype=np.int64)
        new = new.append_column(_PARTNER, pa.array(nothing)).append_column(_ARRIVAL, pa.array(micros(new, "arrival")))
        new = new.select(self._schema.names).cast(self._schema)
        touched = np.union1d(new.column(NUMBER).to_numpy(), partners.column(NUMBER).to_numpy())
        pages = self._pages.pages(touched)
        every = self._pages.read(pages)
        # Final rows may still be stored: nothing revises them.
        before = every.filter(pa.array(every.column(PANE).to_numpy() >= self._given_to))
        # Only waiting rows whose key has a new row on the right can change.
        asked = np.isin(before.column(NUMBER).to_numpy(), partners.column(NUMBER).to_numpy())
        others = before.filter(pa.array(~asked))
        asks = pa.concat_tables([before.filter(pa.array(asked)), new]).combine_chunks()
        right, found, gone = self._found(asks, partners, needed, bound)
        row = np.full(asks.num_rows, -1, dtype=np.int64)
        arrival = asks.column(_ARRIVAL).to_numpy()
        partner = np.full(asks.num_rows, -1, dtype=np.int64)
        if right.num_rows:
            met = found >= 0
            partner = np.where(met & ~gone[found], found, -1)
            row = np.where(partner >= 0, right.column(ROW).to_numpy()[partner], -1)
            arrival = np.where(met, np.maximum(arrival, micros(right, "arrival")[found]), arrival)
        was = asks.column(_PARTNER).to_numpy()
        fresh = np.arange(asks.num_rows) >= asks.num_rows - new.num_rows
        changed = row != was
        self._counts["unmatched"] += int(np.count_nonzero((row < 0) & (fresh | (was >= 0))))
        self._counts["unmatched"] -= int(np.count_nonzero((row >= 0) & ~fresh & (was < 0)))
        gives = changed | (fresh & (plan.how == "left"))
        asks = asks.set_column(asks.schema.get_field_index(_PARTNER), _PARTNER, pa.array(row))
        asks = asks.set_column(asks.schema.get_field_index(_ARRIVAL), _ARRIVAL, pa.array(arrival))
        now = pa.concat_tables([others, asks.cast(self._schema)])
        waits = now.column(PANE).to_numpy() >= given_to
        if len(touched):
            self._pages.write(pages, every.num_rows, now.filter(pa.array(waits)))
        tables = [self._results(asks.filter(pa.array(gives)), right, partner[gives])]
        self._counts["unmatched"] += alone.num_rows
        if plan.how == "left" and alone.num_rows:
            alone = alone.append_column(_ARRIVAL, pa.array(micros(alone, "arrival")))
            tables.append(self._results(alone, right, np.full(alone.num_rows, -1, dtype=np.int64)))
        return pa.concat_tables(tables)

    def _results(self, rows: pa.Table, right: pa.Table, partner: Int64s) -> pa.Table:
        """Return rows with their partners; in an inner join, a row that has lost its partner becomes a tombstone."""
        plan, schema = self._plan, self._plan.schema
        deleted = (partner < 0) & (plan.how == "inner")
        where = pa.array(partner, mask=partner < 0)
        named = {*plan.left.key, plan.left.time}
        columns: dict[str, Any] = {}
        for each in plan.columns:
            if each.side == RIGHT:
                columns[each.name] = right.column(each.source).take(where)
            elif each.name in named or not deleted.any():
                columns[each.name] = rows.column(each.source)
            else:  # a tombstone has its key and its time
                at = pa.array(np.arange(rows.num_rows), mask=deleted)
                columns[each.name] = rows.column(each.source).take(at)
        for name in plan.own_key:
            columns[name] = rows.column(ROW)
        first = int(self._head.get("seq", 0))
        self._head["seq"] = first + rows.num_rows
        system = system_array(
            source=f"join/{self._number}",
            seq=first + np.arange(rows.num_rows, dtype=np.int64),
            arrival_us=rows.column(_ARRIVAL).to_numpy(),
            deleted=deleted,
        )
        columns[SYSTEM] = pa.chunked_array([system]).cast(schema.field(SYSTEM).type)
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def _purge(self) -> None:
        """Drop all final rows, once the stored rows have doubled since the last purge."""
        pages = self._pages
        if not pages.rows or (pages.rows <= 2 * self._purged + _FEW and self._given_to != ENDED):
            return
        every = pages.all_pages
        rows = pages.read(every)
        pages.write(every, rows.num_rows, rows.filter(pa.array(rows.column(PANE).to_numpy() >= self._given_to)))
        self._purged = pages.rows
