"""One shard of aggregates by group, as pure logic over a store: from changes of newest rows to changed groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.feedback.reports import LatestJoinReport
from ...core.rows.exact_integers import Int64s
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array
from ..joins.side import rows_in, without_key
from ..joins.versions import LatestVersions
from ..runtime.pack import micros
from ..state.runs import RunFiles
from ..state.store import CountingStore, Store, check_identity, other_layout, read_head
from .groups import KeptGroups
from .plan import GroupPlan

_LAYOUT = 2


class GroupShard:
    """One batch of one shard. Raises CheckpointError for state of another plan or version."""

    def __init__(self, number: int, plan: GroupPlan, store: Store, files: RunFiles | None = None) -> None:
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
        self._versions = LatestVersions(self._store, "keys", side, head.get("keys", {}), files) if side.stays else None
        self._groups = KeptGroups(self._store, "groups", plan, head.get("groups", {}), files)
        self._counts = {name: int(head.get(name, 0)) for name in ("left_rows", "results", "retracted")}
        self._without_key = int(head.get("without_key", 0))

    def run(self, frames: Sequence[bytes], batch_id: int = -1) -> tuple[pa.Table | None, LatestJoinReport]:
        """Add the newest rows, retract those they replace, and return the changed groups; None if there are none.

        A group without keys becomes a tombstone.
        """
        side = self._plan.side
        schema = side.versioned if self._versions is None else side.schema
        rows, punctuation = rows_in(frames, schema)
        self._counts["left_rows"] += rows.num_rows
        now_us = int(micros(rows, "arrival").max(initial=0))
        changes = rows
        if self._versions is not None:
            self._versions.hear(punctuation)
            changes = self._versions.changes(rows.combine_chunks())
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
            left_kept=self._groups.rows,
            left_expired=0 if self._versions is None else self._versions.expired,
            without_key=self._without_key,
            state_bytes=self._store.written,
            **self._counts,
        )
        return result, report

    def _changed(self, changes: pa.Table) -> pa.Table:
        found = self._groups.changed(changes)
        given = [self._given(found.groups, found.values, found.arrival)]
        if found.gone.num_rows:
            given.append(self._given(found.gone, None, found.gone_arrival))
        return pa.concat_tables(given)

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
            "groups": self._groups.to_json(),
            "keys": {} if self._versions is None else self._versions.to_json(),
        }
        self._store.put("head", 0, json.dumps(head).encode())
