"""Columns and keys of joins of newest rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.latest_plan import GONE, VERSION, LatestJoinPlan, LatestSide, VersionPlan
from upstream.operators.joins.plan import JOIN_TIME

TIME = pa.timestamp("us", tz="UTC")


def side(on, key, *names, time="t", kind=TIME):
    fields = [(name, pa.string()) for name in dict.fromkeys([*on, *key, *names])]
    return LatestSide(on, time, pa.schema([*fields, ("t", kind), pa.field(SYSTEM, SYSTEM_TYPE)]), key, time)


@pytest.mark.parametrize(
    ("left", "right", "key", "stays"),
    [
        (side(("r",), ("v",)), side(("r",), ("r",)), ("v",), (False, True)),
        (side(("r",), ("v",)), side(("r",), ("v",)), ("v", "v_right"), (False, False)),
        (side(("r",), ("v", "r")), side(("route",), ("route", "w")), ("v", "r", "w"), (True, True)),
        (side(("r",), ("r",)), side(("route",), ("route",)), ("r",), (True, True)),
    ],
)
def test_the_key_is_the_lefts_if_it_has_one_partner_at_most(left, right, key, stays):
    plan = LatestJoinPlan(left, right)
    assert plan.key == key
    assert (left.stays, right.stays) == stays
    assert set(key) <= set(plan.schema.names)
    assert plan.to_one == right.one


def test_results_have_the_later_time_only_if_both_have_one_of_a_type():
    left = side(("r",), ("v",))
    assert JOIN_TIME in LatestJoinPlan(left, side(("r",), ("r",))).schema.names
    for other in (side(("r",), ("r",), time=None), side(("r",), ("r",), kind=pa.int64())):
        assert JOIN_TIME not in LatestJoinPlan(left, other).schema.names


def test_a_checkpoint_is_bound_to_keys_and_columns():
    left, right = side(("r",), ("v",)), side(("route",), ("route",))
    assert LatestJoinPlan(left, right, shards=3).identity() == {
        "on": "r = route", "keys": "v and route", "how": "inner", "shards": "3",
    }  # fmt: skip
    assert VersionPlan(left, 2).identity() == {"key": "v", "time": "t", "on": "r", "shards": "2"}
    assert left.versioned.names[-2:] == [VERSION, GONE]
