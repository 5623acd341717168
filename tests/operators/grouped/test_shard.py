"""Aggregates of newest rows against the newest rows themselves, by group: every order, split, move and deletion."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError
from upstream.core.pushdown.ipc_frames import to_frame
from upstream.core.rows.split import by_bucket
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.aggregates.functions import avg, count, sum_
from upstream.operators.grouped.plan import GroupPlan
from upstream.operators.grouped.shard import GroupShard
from upstream.operators.joins.latest_plan import LatestSide, VersionPlan
from upstream.operators.joins.latest_shard import VersionShard
from upstream.operators.runtime.store import DictStore

SCHEMA = pa.schema(
    [
        ("k", pa.int64()), ("g", pa.string()), ("t", pa.int64()), ("v", pa.int64()), ("w", pa.float64()),
        pa.field(SYSTEM, SYSTEM_TYPE),
    ]
)  # fmt: skip
AGGREGATES = {"n": count(), "total": sum_("v"), "mean": avg("w")}
SHARDS = 2


def plan(key=("k",), aggregates=AGGREGATES, time="t"):
    side = LatestSide(("g",), "", SCHEMA, key, time, ("v", "w"))
    return GroupPlan(side, aggregates, SHARDS)


def table(rows):
    """Rows (key, group, time, value, deleted)."""
    numbers = np.arange(len(rows))
    columns = [pa.array([row[at] for row in rows], SCHEMA.field(at).type) for at in range(4)]
    floats = pa.array([None if row[3] is None else row[3] / 7 for row in rows], pa.float64())
    deleted = np.array([row[4] for row in rows], dtype=np.bool_)
    system = system_array(source="f", seq=numbers, arrival_us=numbers, deleted=deleted)
    return pa.table([*columns, floats, system], schema=SCHEMA)


class Query:
    """Both stages, as Spark runs them, and the table behind them."""

    def __init__(self, asked):
        self.plan = asked
        self.stores = {}
        self.table = {}

    def store(self, *name):
        return self.stores.setdefault(name, DictStore())

    def batch(self, rows):
        side, given = self.plan.side, table(rows)
        if not side.stays:
            found = [side.versioned.empty_table()]
            for shard, part in by_bucket(given, side.key, SHARDS) if given.num_rows else ():
                versions = VersionShard(shard, VersionPlan(side, SHARDS), self.store("versions", shard))
                result, _ = versions.run([to_frame(part)])
                found += [] if result is None else [result]
            given = pa.concat_tables(found)
        reports = []
        for shard, part in by_bucket(given, side.on, SHARDS) if given.num_rows else ():
            result, report = GroupShard(shard, self.plan, self.store("groups", shard)).run([to_frame(part)])
            reports.append(report)
            for row in [] if result is None else result.to_pylist():
                if row[SYSTEM]["deleted"]:
                    assert row["g"] in self.table
                    del self.table[row["g"]]
                else:
                    self.table[row["g"]] = (row["n"], row["total"], row["mean"])
        return reports


def expected(rows, key):
    newest = {}
    for row in rows:
        if key(row) not in newest or row[2] >= newest[key(row)][2]:
            newest[key(row)] = row
    groups = {}
    for row in newest.values():
        if not row[4] and row[1] is not None:
            groups.setdefault(row[1], []).append(row[3])
    found = {}
    for group, values in groups.items():
        some = [value for value in values if value is not None]
        found[group] = (len(values), sum(some) if some else None, sum(some) / 7 / len(some) if some else None)
    return found


def alike(one, two):
    assert one.keys() == two.keys()
    for group, values in one.items():
        assert values[:2] == two[group][:2]
        if values[2] is None or two[group][2] is None:
            assert values[2] is two[group][2]
        else:
            assert math.isclose(values[2], two[group][2], rel_tol=1e-12, abs_tol=1e-12)
    return True


ROWS = st.tuples(
    st.integers(0, 3), st.sampled_from(["x", "y", "z", None]), st.integers(0, 9), st.none() | st.integers(-5, 5),
    st.integers(0, 4).map(lambda number: number == 0),
).map(lambda row: (row[0], None if row[4] else row[1], row[2], None if row[4] else row[3], row[4]))  # fmt: skip


@given(st.lists(st.lists(ROWS, max_size=7), max_size=5))
def test_after_each_batch_the_groups_are_those_of_the_newest_rows(batches):
    query = Query(plan())
    rows = []
    for batch in batches:
        query.batch(batch)
        rows += batch
        alike(query.table, expected(rows, lambda row: row[0]))


@given(st.lists(st.lists(ROWS.map(lambda row: (row[0], row[1] or "x", *row[2:])), max_size=7), max_size=5))
def test_a_key_that_has_the_group_needs_no_stage_of_its_own(batches):
    query = Query(plan(("k", "g")))
    rows = []
    for batch in batches:
        query.batch(batch)
        rows += batch
        alike(query.table, expected(rows, lambda row: row[:2]))
    assert not any(name[0] == "versions" for name in query.stores)


def test_a_row_without_news_changes_no_group_and_one_without_a_group_is_counted():
    query = Query(plan())
    query.batch([(1, "x", 1, 5, False)])
    assert query.batch([(1, "x", 2, 5, False)]) == []
    (report,) = query.batch([(2, None, 1, 5, False)])
    assert report.without_key == 1
    assert query.table == {"x": (1, 5, 5 / 7)}


def test_other_aggregates_or_groups_do_not_take_the_state():
    query = Query(plan())
    query.batch([(1, "x", 1, 5, False)])
    (shard,) = [name[1] for name in query.stores if name[0] == "groups"]
    with pytest.raises(CheckpointError, match="aggregates"):
        GroupShard(shard, plan(aggregates={"n": count()}), query.store("groups", shard))
