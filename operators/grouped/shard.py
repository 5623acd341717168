"""One shard of aggregates by group: changes of keys' newest rows in, changed groups out.

Pure logic over a :class:`~upstream.operators.runtime.store.Store`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.feedback.latest_join_reports import LatestJoinReport
from ...core.rows.exact_integers import Int64s
from ...core.rows.newest import key_codes
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array
from ..joins.arriving import numbers_of, rows_in, without_key
from ..joins.side import NUMBER
from ..joins.versions import LatestVersions
from ..runtime.arrivals import micros
from ..runtime.key_pages import KeyPages
from ..runtime.state_head import check_identity, other_layout, read_head
from ..runtime.store import CountingStore, Store
from .plan import GroupPlan

__all__ = ["GroupShard"]

_LAYOUT = 1
_ROWS = "__upstream_rows"


class GroupShard:
    """One batch of one shard.

    Parameters
    ----------
    number : int
        The shard's.
    plan : GroupPlan
    store : Store
        The shard's state.

    Raises
    ------
    CheckpointError
        The state was written for other groups or aggregates, or by another version.
    """

    def __init__(self, number: int, plan: GroupPlan, store: Store) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        self._head = head = read_head(store)
        if head:
            check_identity(
                head["plan"],
                plan.identity(),
                "the groups in this checkpoint were aggregated",
                "groups, key, aggregates and number of shards",
                other_layout(head["layout"], _LAYOUT),
            )
        side = plan.side
        self._versions = LatestVersions(self._store, "keys", side, head.get("keys", {})) if side.stays else None
        own = [pa.field(name, pa.int64()) for name in (_ROWS, NUMBER)]
        groups = [side.schema.field(name) for name in side.on]
        self._schema = pa.schema([*groups, *plan.algebra.state_schema, *own])
        self._pages = KeyPages(self._store, "groups", NUMBER, self._schema, head.get("groups", {}))
        self._counts = {name: int(head.get(name, 0)) for name in ("left_rows", "results", "retracted")}
        self._without_key = int(head.get("without_key", 0))

    def run(self, frames: Sequence[bytes], batch_id: int = -1) -> tuple[pa.Table | None, LatestJoinReport]:
        """Add the newest rows, take out those before them, and return the groups that have changed.

        Returns
        -------
        pyarrow.Table or None
            One row for each changed group, a tombstone for one that has no key any more; None if there are none.
        LatestJoinReport
        """
        side = self._plan.side
        schema = side.versioned if self._versions is None else side.schema
        rows, _ = rows_in(frames, schema)
        self._counts["left_rows"] += rows.num_rows
        now_us = int(micros(rows, "arrival").max(initial=0))
        changes = rows if self._versions is None else self._versions.changes(rows.combine_chunks())
        keyless = without_key(changes, side.on)
        self._without_key += int(np.count_nonzero(keyless & ~deleted_mask(changes).to_numpy()))
        changes = changes.filter(pa.array(~keyless)).combine_chunks()
        result = self._changed(changes) if changes.num_rows else None
        if result is not None:
            self._counts["results"] += result.num_rows
            self._counts["retracted"] += int(np.count_nonzero(deleted_mask(result).to_numpy()))
        self._save()
        report = LatestJoinReport(
            shard=self._number,
            batch_id=batch_id,
            now_us=now_us,
            left_kept=self._pages.rows,
            without_key=self._without_key,
            state_bytes=self._store.written,
            **self._counts,
        )
        return result, report

    def _changed(self, changes: pa.Table) -> pa.Table:
        side, algebra = self._plan.side, self._plan.algebra
        numbers = numbers_of(changes, side.on)
        pages = self._pages.pages(numbers)
        kept = self._pages.read(pages)
        both = [(kept.column(name).chunks, changes.column(name)) for name in side.on]
        codes, size = key_codes([pa.chunked_array([*one, *two.chunks], two.type) for one, two in both])
        before, now = codes[: kept.num_rows], codes[kept.num_rows :]
        touched, first, group = np.unique(now, return_index=True, return_inverse=True)
        deleted = deleted_mask(changes).to_numpy()
        n = len(touched)
        place = np.full(size, -1, dtype=np.int64)
        place[touched] = np.arange(n)
        old = place[before]
        was = kept.filter(pa.array(old >= 0))
        state = algebra.combine(
            pa.concat_tables(
                [was.select(algebra.state_schema.names), self._lifted(changes, group, ~deleted, n)]
            ).combine_chunks(),
            np.concatenate([old[old >= 0], np.arange(n)]),
            n,
        )
        state = algebra.retract(state, self._lifted(changes, group, deleted, n))
        count = np.zeros(n, dtype=np.int64)
        count[old[old >= 0]] = was.column(_ROWS).to_numpy()
        known = np.zeros(n, dtype=np.bool_)
        known[old[old >= 0]] = True
        count += np.bincount(group[~deleted], minlength=n) - np.bincount(group[deleted], minlength=n)
        groups = changes.select(list(side.on)).take(pa.array(first))
        there = pa.array(count > 0)
        new = groups
        for name in algebra.state_schema.names:
            new = new.append_column(name, state.column(name))
        new = new.append_column(_ROWS, pa.array(count)).append_column(NUMBER, pa.array(numbers[first]))
        self._pages.write(
            pages,
            kept.num_rows,
            pa.concat_tables([kept.filter(pa.array(old < 0)), new.filter(there).cast(self._schema)]),
        )
        arrival = np.zeros(n, dtype=np.int64)
        np.maximum.at(arrival, group, micros(changes, "arrival"))
        given = [self._given(groups.filter(there), algebra.lower(state.filter(there)), arrival[count > 0])]
        gone = (count == 0) & known
        if gone.any():
            mask = pa.array(gone)
            given.append(self._given(groups.filter(mask), None, arrival[gone]))
        return pa.concat_tables(given)

    def _lifted(self, changes: pa.Table, group: Int64s, which: Any, groups: int) -> pa.Table:
        return self._plan.algebra.lift(changes.filter(pa.array(which)).combine_chunks(), group[which], groups)

    def _given(self, groups: pa.Table, values: pa.Table | None, arrival: Int64s) -> pa.Table:
        """Return results, or tombstones of groups without values."""
        schema, n = self._plan.schema, groups.num_rows
        first = int(self._head.get("seq", 0))
        self._head["seq"] = first + n
        columns: dict[str, Any] = {name: groups.column(name) for name in groups.column_names}
        for name in self._plan.aggregates:
            columns[name] = pa.nulls(n, schema.field(name).type) if values is None else values.column(name)
        system = system_array(
            source=f"groups/{self._number}",
            seq=first + np.arange(n, dtype=np.int64),
            arrival_us=arrival,
            deleted=np.full(n, values is None),
        )
        columns[SYSTEM] = pa.chunked_array([system]).cast(schema.field(SYSTEM).type)
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def _save(self) -> None:
        head = {
            **self._counts,
            "without_key": self._without_key,
            "layout": _LAYOUT,
            "plan": self._plan.identity(),
            "seq": self._head.get("seq", 0),
            "groups": self._pages.to_json(),
            "keys": {} if self._versions is None else self._versions.to_json(),
        }
        self._store.put("head", 0, json.dumps(head).encode())
