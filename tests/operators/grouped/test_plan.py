"""Columns and identity of aggregates by group."""

import pyarrow as pa

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.aggregates.functions import avg, count
from upstream.operators.grouped.plan import GroupPlan
from upstream.operators.joins.latest_plan import LatestSide, VersionPlan

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int32()), pa.field(SYSTEM, SYSTEM_TYPE)])


def plan(**aggregates):
    return GroupPlan(LatestSide(("g",), "", SCHEMA, ("k",), None, ("v",)), aggregates, 3)


def test_results_have_the_group_and_the_aggregates():
    found = plan(n=count(), mean=avg("v"))
    assert found.schema.names == ["g", "n", "mean", SYSTEM]
    assert found.algebra.inputs == ("v",)
    assert found.identity() == {
        "group by": "g", "key": "k", "aggregates": "n=count(*), mean=avg(v)", "shards": "3",
    }  # fmt: skip
    assert found.changeable() == {}


def test_the_columns_that_are_kept_are_part_of_what_a_checkpoint_is_bound_to():
    assert VersionPlan(plan(n=count()).side, 3).identity()["values"] == "v"
