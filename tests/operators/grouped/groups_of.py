"""Rows of groups, the stages that aggregate the newest of them, and what the aggregates must be."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from upstream.core.rows.frames import by_bucket, to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.aggregates.approximate import approx_count_distinct, heavy_hitters, median
from upstream.operators.aggregates.custom import aggregate
from upstream.operators.aggregates.functions import any_value, avg, collect, count, first, last, max_, min_, sum_
from upstream.operators.grouped.groups import GroupShard
from upstream.operators.grouped.plan import GroupPlan
from upstream.operators.joins.latest_changes import VersionShard
from upstream.operators.joins.latest_plan import LatestSide, VersionPlan
from upstream.operators.state.store import DictStore

SCHEMA = pa.schema(
    [
        ("k", pa.int64()), ("g", pa.string()), ("t", pa.int64()), ("v", pa.int64()), ("s", pa.string()),
        ("pair", pa.struct([("a", pa.int64())])), pa.field(SYSTEM, SYSTEM_TYPE),
    ]
)  # fmt: skip
SHARDS = 2


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
DIFFERENTIAL = {"n": count(), "total": sum_("v"), "mean": avg("v")}
ALL = DIFFERENTIAL | {
    "least": min_("v"), "most": max_("s"), "some": any_value("v"),
    "began": first("pair", by=["t", "k"]), "now": last("s", by=["t", "k"], ignore_nulls=True),
    "list": collect("v", by="k", limit=3), "middle": median("v"),
    "different": approx_count_distinct("s"), "busy": heavy_hitters("v", limit=100), "product": PRODUCT,
}  # fmt: skip


def plan(key=("k",), aggregates=ALL):
    inputs = GroupPlan(LatestSide(("g",), "", SCHEMA, key, "t", ()), aggregates, SHARDS).algebra.inputs
    return GroupPlan(LatestSide(("g",), "", SCHEMA, key, "t", inputs), aggregates, SHARDS)


def table(rows):
    """Rows (key, group, time, value, text, deleted)."""
    numbers = np.arange(len(rows))
    columns = [pa.array([row[at] for row in rows], SCHEMA.field(at).type) for at in range(5)]
    pairs = pa.array([None if row[3] is None else {"a": row[3]} for row in rows], SCHEMA.field("pair").type)
    deleted = np.array([row[5] for row in rows], dtype=np.bool_)
    system = system_array(source="f", seq=numbers, arrival_us=numbers, deleted=deleted)
    return pa.table([*columns, pairs, system], schema=SCHEMA)


def batches(keys, most, groups=("x", "y", "z", None)):
    row = st.tuples(
        st.integers(0, keys), st.sampled_from(groups), st.integers(0, 9), st.none() | st.integers(-5, 5),
        st.none() | st.sampled_from("abc"), st.integers(0, 5).map(lambda number: number == 0),
    )  # fmt: skip
    ended = row.map(lambda each: (*each[:3], None, None, True) if each[5] else each)
    return st.lists(st.lists(ended, max_size=most), max_size=5)


class Query:
    """Both stages, as Spark runs them, and the table behind them."""

    def __init__(self, asked):
        self.plan, self.stores, self.table, self.kept, self.rows = asked, {}, {}, {}, []

    def store(self, *name):
        return self.stores.setdefault(name, DictStore())

    def kinds(self):
        """The kinds of state that are kept."""
        return {kind.split("/")[0] for store in self.stores.values() for kind, _ in store.values}

    def batch(self, rows):
        self.rows += rows
        side, given = self.plan.side, table(rows)
        if not side.stays:
            found = [side.versioned.empty_table()]
            for shard, part in by_bucket(given, side.key, SHARDS) if rows else ():
                versions = VersionShard(shard, VersionPlan(side, SHARDS), self.store("versions", shard))
                result, _ = versions.run([to_frame(part)])
                found += [] if result is None else [result]
            given = pa.concat_tables(found)
        reports = []
        for shard, part in by_bucket(given, side.on, SHARDS) if given.num_rows else ():
            result, report = GroupShard(shard, self.plan, self.store("groups", shard)).run([to_frame(part)])
            reports.append(report)
            self.kept[shard] = report.left_kept
            for row in [] if result is None else result.to_pylist():
                if row[SYSTEM]["deleted"]:
                    del self.table[row["g"]]
                else:
                    self.table[row["g"]] = {name: row[name] for name in self.plan.aggregates}
        assert sum(self.kept.values()) == len(self.table)
        return reports

    def check(self):
        """The table is that of the newest rows."""
        key = [SCHEMA.get_field_index(name) for name in self.plan.side.key]
        wanted = expected(self.rows, lambda row: [row[at] for at in key])
        wanted = {group: {name: values[name] for name in self.plan.aggregates} for group, values in wanted.items()}
        found = {group: dict(values) for group, values in self.table.items()}
        for values in found.values() if "busy" in self.plan.aggregates else ():
            values["busy"] = Counter({each["item"]: each["count"] for each in values["busy"] or ()})
        assert found == wanted


def expected(rows, key):
    """The aggregates of each group, in plain Python."""
    newest = {}
    for row in rows:
        name = tuple(key(row))
        if name not in newest or row[2] >= newest[name][2]:
            newest[name] = row
    groups = {}
    for row in newest.values():
        if not row[5] and row[1] is not None:
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
            "mean": sum(values) / len(values) if values else None,
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
