"""Queries that follow a table while maintenance removes files: none within the retention; beyond it, an error."""

import json
import os
import time
from typing import Any

import numpy as np
from deltalake import DeltaTable

from upstream.core.rows.system_column import SYSTEM
from upstream.sink.maintenance.runner import TableMaintenance
from upstream.sink.spec.maintenance_rules import MaintenanceResult, MaintenanceRules
from upstream.storage.folder import TableFolder

HOUR = 3_600_000_000
KEYS = 12


def maintained(sink: Any, keep: int) -> MaintenanceResult:
    """As if a version had been committed each hour, and `keep` of them were to be kept."""
    now_us = time.time_ns() // 1000
    last = sink.version()
    log = sink.path / "_delta_log"
    for place in log.glob("*.json"):
        when = (now_us - (last - int(place.name[:20])) * HOUR) / 1e6
        os.utime(place, (when, when))
        for line in place.read_text().splitlines():
            path = json.loads(line).get("add", {}).get("path")
            if path is not None and (sink.path / path).exists():
                os.utime(sink.path / path, (when, when))
    table = DeltaTable(str(sink.path))
    return TableMaintenance(TableFolder(str(sink.path)), table, MaintenanceRules(keep * HOUR), lambda: now_us).run(
        whole=True
    )


def change(sink: Any, batch_id: int, model: dict[int, int]) -> None:
    """Some keys get a newer row, one is deleted."""
    changed = [(batch_id * step) % KEYS for step in (1, 5)]
    gone = (batch_id * 7 + 3) % KEYS
    rows = [(key, batch_id, str(batch_id)) for key in dict.fromkeys(changed) if key != gone] + [(gone, batch_id, None)]
    deleted = np.array([row[2] is None for row in rows])
    sink.batch(batch_id, [sink.rows(rows, seq=batch_id * 100, deleted=deleted)])
    for key, at, value in rows:
        model.pop(key, None)
        if value is not None:
            model[key] = at


def apply(model: dict[int, int], rows: list[Any]) -> None:
    for row in rows:
        if row[SYSTEM]["punctuation"]:
            continue
        assert model.get(row["k"], -1) < row["t"], "a change came twice, or an older one over a newer"
        if row[SYSTEM]["deleted"]:
            model.pop(row["k"], None)
        else:
            model[row["k"]] = row["t"]


def test_a_follower_within_the_retention_gets_every_change_once_over_maintenance(first: Any, follow: Any) -> None:
    table: dict[int, int] = {}
    first.batch(0, [first.rows([(key, 0, "0") for key in range(KEYS)])])
    table.update(dict.fromkeys(range(KEYS), 0))
    follower, mine = follow(), dict[int, int]()
    apply(mine, follower.rows())
    removed = 0
    for number in range(1, 40):
        change(first, number, table)
        if number % 4 == 0:
            removed += maintained(first, keep=6).files
        if number % 5 == 0:  # never more than six versions behind
            apply(mine, follower.rows())
            assert mine == table
    assert removed > 20
    assert {key: row[0] for key, row in first.latest().items()} == table
