"""One shard of a join of newest rows: changes of both sides in, changes of the pairs out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.feedback.reports import LatestJoinReport
from ...core.rows.system_column import deleted_mask
from ..runtime.shard import Shard, ShardInput
from ..state.key_runs import KeyRuns
from ..state.runs import RunFiles
from ..state.store import Store
from .band import LEFT, RIGHT, SIDES
from .latest_changes import LatestChanges, LatestResults, NewestSide, kept_schema
from .latest_plan import LatestJoinPlan, VersionPlan
from .plan import check_columns, columns_to_json
from .side import rows_in
from .versions import DeletionRetention, Expiry, LatestVersions

_BEGAN, _SAME = "the state of the join in this checkpoint was written", "inputs, keys and number of shards"


class VersionShard(Shard[VersionPlan, LatestJoinReport]):
    """A shard of one side's keys, ahead of the join."""

    began, same = _BEGAN, _SAME
    report = LatestJoinReport

    def __init__(self, number: int, plan: VersionPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        self._versions = LatestVersions(self._store, "keys", plan.side, self._head.get("keys", {}), files)

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return the newest rows of keys that have new ones, and tombstones at the keys' former places."""
        versions, side = self._versions, self._plan.side
        rows, punctuation = rows_in(given.left, side.schema)
        self._advance_clock([rows])
        versions.hear(punctuation)
        changes = versions.changes(rows)
        if self._plan.limit is not None:
            self._plan.limit.check(self._number, side.on, lambda: versions.bytes, versions.compact)
        counts = {"left_rows": rows.num_rows, "results": changes.num_rows}
        return changes, {**counts, "left_kept": versions.rows, "left_expired": versions.expired}

    def saved(self) -> dict[str, Any]:
        return {"keys": self._versions.to_json()}


class LatestJoinShard(Shard[LatestJoinPlan, LatestJoinReport]):
    """A shard of a join of newest rows."""

    began, same = _BEGAN, _SAME
    report = LatestJoinReport
    counted = ("left_rows", "right_rows", "results", "retracted")

    def __init__(self, number: int, plan: LatestJoinPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        head = self._head
        self._turn = int(head.get("turn", 0))
        self._forgetting = [
            DeletionRetention(side, head.get(name, {})) for name, side in zip(SIDES, plan.sides, strict=True)
        ]
        self._expiry = [
            Expiry(self._store, name, side.ttl if side.stays else None, head.get(name, {}).get("expiry", {}))
            for name, side in zip(SIDES, plan.sides, strict=True)
        ]
        self._runs = [
            KeyRuns(
                self._store, name, kept_schema(side), head.get(name, {}), files,
                each.forget if side.stays else None,
            )
            for name, side, each in zip(SIDES, plan.sides, self._forgetting, strict=True)
        ]  # fmt: skip
        if head:
            check_columns(plan.sides, head["columns"], [each.rows for each in self._runs])

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return pairs that are new or have changed, and tombstones of those that are gone."""
        sides: list[NewestSide] = []
        for at, frames in ((LEFT, given.left), (RIGHT, given.right)):
            side = self._plan.sides[at]
            rows, punctuation = rows_in(frames, side.schema if side.stays else side.versioned)
            self._counts[f"{SIDES[at]}_rows"] += rows.num_rows
            self._advance_clock([rows])
            self._forgetting[at].hear(punctuation)
            sides.append(NewestSide(side, self._runs[at], rows, self._forgetting[at], self._expiry[at]))
        touched = np.concatenate([each.numbers for each in sides])
        for each in sides:
            each.read(touched)
        self._turn += 1
        results = LatestResults(self._plan, self._number)
        tables = LatestChanges(self._plan, results, sides[LEFT], sides[RIGHT], self._turn).tables()
        result = pa.concat_tables([self._plan.schema.empty_table(), *tables])
        for each in sides:
            each.keep()
        if self._plan.limit is not None:
            self._plan.limit.check(self._number, self._plan.left.on, self._bytes, self._compact)
        self._counts["results"] += result.num_rows
        self._counts["retracted"] += int(pc.sum(deleted_mask(result)).as_py() or 0)
        return result, {
            "left_kept": self._runs[LEFT].rows,
            "right_kept": self._runs[RIGHT].rows,
            "left_expired": self._expiry[LEFT].rows,
            "right_expired": self._expiry[RIGHT].rows,
        }

    def _bytes(self) -> int:
        return sum(each.bytes for each in (*self._runs, *self._expiry))

    def _compact(self) -> None:
        for runs in self._runs:
            runs.compact()

    def saved(self) -> dict[str, Any]:
        sides = zip(SIDES, self._runs, self._forgetting, self._expiry, strict=True)
        return {
            "turn": self._turn,
            "columns": columns_to_json(self._plan.sides),
            **{
                name: {**runs.to_json(), **forgetting.to_json(), "expiry": expiry.to_json()}
                for name, runs, forgetting, expiry in sides
            },
        }
