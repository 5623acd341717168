"""One shard of a join of newest rows: changes of both sides in, changes of the pairs out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.feedback.reports import LatestJoinReport
from ...core.rows.system_column import deleted_mask
from ..runtime.pack import micros
from ..state.runs import RunFiles
from ..state.store import CountingStore, Store, check_identity, other_layout, read_head
from .band import LEFT, RIGHT, SIDES
from .key_runs import KeyRuns
from .latest_changes import LatestChanges, LatestResults, NewestSide, kept_schema
from .latest_plan import LatestJoinPlan, VersionPlan
from .plan import check_columns, columns_to_json
from .side import NUMBER, rows_in
from .versions import DeletionRetention, Expiry, LatestVersions

_LAYOUT = 1


class VersionShard:
    """One batch of a shard of one side's keys, ahead of the join."""

    def __init__(self, number: int, plan: VersionPlan, store: Store, files: RunFiles | None = None) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        self._head = read_head(store)
        if self._head:
            _check(self._head, plan.identity())
        self._versions = LatestVersions(self._store, "keys", plan.side, self._head.get("keys", {}), files)

    def run(self, frames: Sequence[bytes], batch_id: int = -1) -> tuple[pa.Table | None, LatestJoinReport]:
        """Return the newest rows of keys that have new ones, and tombstones at the keys' former places."""
        rows, punctuation = rows_in(frames, self._plan.side.schema)
        self._versions.hear(punctuation)
        changes = self._versions.changes(rows)
        if self._plan.limit is not None:
            versions, on = self._versions, self._plan.side.on
            self._plan.limit.check(self._number, on, lambda: versions.bytes, versions.compact)
        head = {"layout": _LAYOUT, "plan": self._plan.identity(), "keys": self._versions.to_json()}
        self._store.put("head", 0, json.dumps(head).encode())
        report = LatestJoinReport(
            shard=self._number,
            batch_id=batch_id,
            now_us=int(micros(rows, "arrival").max(initial=0)),
            left_rows=rows.num_rows,
            results=changes.num_rows,
            left_kept=self._versions.rows,
            left_expired=self._versions.expired,
            state_bytes=self._store.written,
        )
        return (changes if changes.num_rows else None), report


class LatestJoinShard:
    """One batch of one shard, as pure logic over the store.

    The constructor refuses a state of another join, of other columns, or of another version.
    """

    def __init__(self, number: int, plan: LatestJoinPlan, store: Store, files: RunFiles | None = None) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        self._head = head = read_head(store)
        self._counts = {name: int(head.get(name, 0)) for name in ("left_rows", "right_rows", "results", "retracted")}
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
                self._store, name, NUMBER, kept_schema(side), head.get(name, {}),
                () if side.one else side.key, files, each.forget if side.stays else None,
            )
            for name, side, each in zip(SIDES, plan.sides, self._forgetting, strict=True)
        ]  # fmt: skip
        if head:
            _check(head, plan.identity())
            check_columns(plan.sides, head["columns"], [each.rows for each in self._runs])

    def run(
        self, left: Sequence[bytes], right: Sequence[bytes], batch_id: int = -1
    ) -> tuple[pa.Table | None, LatestJoinReport]:
        """Return pairs that are new or have changed, and tombstones of those that are gone; None without any."""
        now_us = 0
        sides: list[NewestSide] = []
        for at, frames in ((LEFT, left), (RIGHT, right)):
            side = self._plan.sides[at]
            rows, punctuation = rows_in(frames, side.schema if side.stays else side.versioned)
            self._counts[f"{SIDES[at]}_rows"] += rows.num_rows
            now_us = max(now_us, int(micros(rows, "arrival").max(initial=0)))
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
        self._save()
        report = LatestJoinReport(
            shard=self._number,
            batch_id=batch_id,
            now_us=now_us,
            left_kept=self._runs[LEFT].rows,
            right_kept=self._runs[RIGHT].rows,
            left_expired=self._expiry[LEFT].rows,
            right_expired=self._expiry[RIGHT].rows,
            state_bytes=self._store.written,
            **self._counts,
        )
        return (result if result.num_rows else None), report

    def _bytes(self) -> int:
        return sum(each.bytes for each in (*self._runs, *self._expiry))

    def _compact(self) -> None:
        for runs in self._runs:
            runs.compact()

    def _save(self) -> None:
        head: dict[str, Any] = {
            **self._counts,
            "layout": _LAYOUT,
            "turn": self._turn,
            "plan": self._plan.identity(),
            "columns": columns_to_json(self._plan.sides),
            **{
                name: {**runs.to_json(), **forgetting.to_json(), "expiry": expiry.to_json()}
                for name, runs, forgetting, expiry in zip(
                    SIDES, self._runs, self._forgetting, self._expiry, strict=True
                )
            },
        }
        self._store.put("head", 0, json.dumps(head).encode())


def _check(head: dict[str, Any], identity: dict[str, str]) -> None:
    check_identity(
        head["plan"],
        identity,
        "the state of the join in this checkpoint was written",
        "inputs, keys and number of shards",
        other_layout(head["layout"], _LAYOUT),
    )
