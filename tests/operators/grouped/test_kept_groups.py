"""All aggregates over groups that rows leave, against the aggregates of the rows that are there."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.aggregates.approximate import approx_count_distinct, heavy_hitters, median
from upstream.operators.aggregates.custom import aggregate
from upstream.operators.aggregates.functions import any_value, collect, count, first, last, max_, min_, sum_
from upstream.operators.grouped import members
from upstream.operators.grouped.kept_groups import KeptGroups
from upstream.operators.grouped.plan import GroupPlan
from upstream.operators.joins.latest_plan import LatestSide
from upstream.operators.joins.versions import LatestVersions
from upstream.operators.runtime.store import DictStore

SCHEMA = pa.schema(
    [
        ("k", pa.int64()), ("g", pa.string()), ("t", pa.int64()), ("v", pa.int64()), ("s", pa.string()),
        ("pair", pa.struct([("a", pa.int64())])), pa.field(SYSTEM, SYSTEM_TYPE),
    ]
)  # fmt: skip


def multiplied(values, groups):
    product = np.ones(groups.size)
    np.multiply.at(product, groups.codes, values)
    return {"product": pa.array(product)}


PRODUCT = aggregate(
    "product",
    "v",
    state={"product": pa.float64()},
    lift=lambda arrays, groups: multiplied(arrays[0].fill_null(1).to_numpy(), groups),
    combine=lambda state, groups: multiplied(state["product"].to_numpy(), groups),
    lower=lambda state: state["product"],
    type=pa.float64(),
)
AGGREGATES = {
    "n": count(), "total": sum_("v"), "least": min_("v"), "most": max_("s"), "some": any_value("v"),
    "began": first("pair", by=["t", "k"]), "now": last("s", by=["t", "k"], ignore_nulls=True),
    "list": collect("v", by="k", limit=3), "middle": median("v"),
    "different": approx_count_distinct("s"), "busy": heavy_hitters("v", limit=100), "product": PRODUCT,
}  # fmt: skip


def plan(aggregates=AGGREGATES):
    side = LatestSide(("g",), "", SCHEMA, ("k",), "t", ())
    plain = GroupPlan(side, aggregates, 1)
    return GroupPlan(LatestSide(("g",), "", SCHEMA, ("k",), "t", plain.algebra.inputs), aggregates, 1)


class Query:
    """Versions and groups over batches and restarts."""

    def __init__(self, asked):
        self.plan, self.store, self.saved, self.table = asked, DictStore(), ({}, {}), {}

    def batch(self, rows):
        numbers = np.arange(len(rows))
        columns = [pa.array([row[at] for row in rows], SCHEMA.field(at).type) for at in range(5)]
        pairs = pa.array([None if row[3] is None else {"a": row[3]} for row in rows], SCHEMA.field("pair").type)
        deleted = np.array([row[5] for row in rows], dtype=np.bool_)
        system = system_array(source="f", seq=numbers, arrival_us=numbers, deleted=deleted)
        given = pa.table([*columns, pairs, system], schema=SCHEMA)
        versions = LatestVersions(self.store, "keys", self.plan.side, self.saved[0])
        groups = KeptGroups(self.store, "groups", self.plan, self.saved[1])
        changes = versions.changes(given).combine_chunks()
        if changes.num_rows:
            found = groups.changed(changes)
            for group, values in zip(found.groups.column("g").to_pylist(), found.values.to_pylist(), strict=True):
                self.table[group] = values
            for group in found.gone.column("g").to_pylist():
                del self.table[group]
        self.saved = versions.to_json(), groups.to_json()
        assert groups.rows == len(self.table)


def expected(rows):
    """The aggregates of each group, in plain Python."""
    newest = {}
    for row in rows:
        if row[0] not in newest or row[2] >= newest[row[0]][2]:
            newest[row[0]] = row
    groups = {}
    for row in newest.values():
        if not row[5]:
            groups.setdefault(row[1], []).append(row)
    found = {}
    for group, mine in groups.items():
        in_time = sorted(mine, key=lambda row: (row[2], row[0]))
        values = sorted(row[3] for row in mine if row[3] is not None)
        texts = [row[4] for row in mine if row[4] is not None]
        earliest, named = in_time[0][3], [row[4] for row in in_time if row[4] is not None]
        found[group] = {
            "n": len(mine),
            "total": sum(values) if values else None,
            "least": min(values, default=None),
            "most": max(texts, default=None),
            "some": max(values, default=None),
            "began": None if earliest is None else {"a": earliest},
            "now": named[-1] if named else None,
            "list": [row[3] for row in sorted(mine, key=lambda row: row[0]) if row[3] is not None][:3],
            "middle": values[(len(values) - 1) // 2] if values else None,
            "different": len(set(texts)),
            "busy": Counter(values),
            "product": math.prod(values),
        }
    return found


def alike(table, rows):
    found = {
        group: values | {"busy": Counter({each["item"]: each["count"] for each in values["busy"] or ()})}
        for group, values in table.items()
    }
    assert found == expected(rows)


def batches(keys, most):
    row = st.tuples(
        st.integers(0, keys), st.sampled_from(["x", "y"]), st.integers(0, 9), st.none() | st.integers(-5, 5),
        st.none() | st.sampled_from("abc"), st.integers(0, 5).map(lambda number: number == 0),
    )  # fmt: skip
    gone = row.map(lambda each: (each[0], None, each[2], None, None, True) if each[5] else each)
    return st.lists(st.lists(gone, max_size=most), max_size=5)


@given(batches(4, 8))
def test_after_each_batch_all_aggregates_are_those_of_the_newest_rows(given_batches):
    query, rows = Query(plan()), []
    for batch in given_batches:
        query.batch(batch)
        rows += batch
        alike(query.table, rows)


@given(batches(60, 40))
def test_large_groups_in_buckets_are_no_different(given_batches):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members, "_ROWS_OF_BUCKET", 2)
        query, rows = Query(plan()), []
        for batch in given_batches:
            query.batch(batch)
            rows += batch
            alike(query.table, rows)


def test_a_group_that_empties_keeps_no_values():
    query = Query(plan())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members, "_ROWS_OF_BUCKET", 1)
        query.batch([(key, "x", 1, key, "a", False) for key in range(30)])
        query.batch([(key, None, 2, None, None, True) for key in range(30)])
    assert query.table == {}
    assert {kind.split("/")[0] for kind, _ in query.store.values} == {"keys"}


def test_values_are_kept_only_where_an_aggregate_needs_them():
    query = Query(plan({"n": count(), "total": sum_("v")}))
    query.batch([(1, "x", 1, 5, "a", False)])
    assert {kind.split("/")[0] for kind, _ in query.store.values} == {"keys", "groups"}
