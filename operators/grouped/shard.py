"""One shard of aggregates by group, as pure logic over a store: from changes of newest rows to changed groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...core.feedback.reports import LatestJoinReport
from ...core.rows.exact_integers import Int64s
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array
from ..joins.side import rows_in, without_key
from ..joins.versions import LatestVersions
from ..runtime.shard import Shard, ShardInput
from ..state.runs import RunFiles
from ..state.store import Store
from .groups import KeptGroups
from .plan import GroupPlan


class GroupShard(Shard[GroupPlan, LatestJoinReport]):
    """A shard of aggregates by group."""

    began = "the groups in this checkpoint were aggregated"
    same = "groups, key, aggregates and number of shards"
    report = LatestJoinReport
    counted = ("left_rows", "results", "retracted", "without_key")

    def __init__(self, number: int, plan: GroupPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        head = self._head
        side = plan.side
        self._versions = LatestVersions(self._store, "keys", side, head.get("keys", {}), files) if side.stays else None
        self._groups = KeptGroups(self._store, "groups", plan, head.get("groups", {}), files)

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Add the newest rows, retract those they replace, and return the changed groups.

        A group without keys becomes a tombstone.
        """
        side = self._plan.side
        schema = side.versioned if self._versions is None else side.schema
        rows, punctuation = rows_in(given.left, schema)
        self._counts["left_rows"] += rows.num_rows
        self._advance_clock([rows])
        changes = rows
        if self._versions is not None:
            self._versions.hear(punctuation)
            changes = self._versions.changes(rows.combine_chunks())
        keyless = without_key(changes, side.on)
        self._counts["without_key"] += int(np.count_nonzero(keyless & ~deleted_mask(changes).to_numpy()))
        changes = changes.filter(pa.array(~keyless)).combine_chunks()
        result = self._changed(changes) if changes.num_rows else None
        if result is not None:
            self._counts["results"] += result.num_rows
            self._counts["retracted"] += int(np.count_nonzero(deleted_mask(result).to_numpy()))
        expired = 0 if self._versions is None else self._versions.expired
        return result, {"left_kept": self._groups.rows, "left_expired": expired}

    def _changed(self, changes: pa.Table) -> pa.Table:
        found = self._groups.changed(changes)
        given = [self._given(found.groups, found.values, found.arrival)]
        if found.gone.num_rows:
            given.append(self._given(found.gone, None, found.gone_arrival))
        return pa.concat_tables(given)

    def _given(self, groups: pa.Table, values: pa.Table | None, arrival: Int64s) -> pa.Table:
        """Return results, or tombstones of groups without values."""
        schema, n = self._plan.schema, groups.num_rows
        columns: dict[str, Any] = {name: groups.column(name) for name in groups.column_names}
        for name in self._plan.aggregates:
            columns[name] = pa.nulls(n, schema.field(name).type) if values is None else values.column(name)
        system = system_array(
            source=f"groups/{self._number}",
            seq=self._sequence(n),
            arrival_us=arrival,
            deleted=np.full(n, values is None),
        )
        columns[SYSTEM] = pa.chunked_array([system]).cast(schema.field(SYSTEM).type)
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def saved(self) -> dict[str, Any]:
        keys = {} if self._versions is None else self._versions.to_json()
        return {"groups": self._groups.to_json(), "keys": keys}
