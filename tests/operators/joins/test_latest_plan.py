import pyarrow as pa
import pytest

from upstream.conf.errors import StateLimitError
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.band import LEFT, RIGHT
from upstream.operators.joins.latest_plan import (
    PAIR_KEYS,
    LatestJoinPlan,
    LatestLimit,
    LatestSide,
)
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
    assert plan.of == (LEFT if right.one else None)


@pytest.mark.parametrize(
    ("how", "left", "right", "key"),
    [
        ("left", ("v",), ("r",), ("v",)), ("left", ("v",), ("w",), PAIR_KEYS), ("left", ("r",), ("w",), PAIR_KEYS),
        ("right", ("r",), ("w",), ("w",)), ("right", ("v",), ("r",), PAIR_KEYS), ("right", ("v",), ("v",), PAIR_KEYS),
        ("right", ("r",), ("v", "r"), ("v", "r")), ("right", ("r",), ("r",), ("r",)),
        ("full", ("r",), ("r",), ("r",)), ("full", ("v",), ("r",), PAIR_KEYS), ("full", ("r",), ("v", "r"), PAIR_KEYS),
    ],
)  # fmt: skip
def test_outer_joins_have_a_key_without_nulls(how, left, right, key):
    plan = LatestJoinPlan(side(("r",), left), side(("r",), right), how)
    assert plan.key == key
    assert set(key) <= set(plan.schema.names)
    assert plan.own_key == (PAIR_KEYS if key == PAIR_KEYS else ())
    assert plan.whole == (how == "full" and left == right == ("r",))
    assert [plan.gives_alone(each) for each in (LEFT, RIGHT)] == [how != "right", how != "left"]


def test_the_keys_of_an_earlier_outer_join_get_other_names():
    first = LatestJoinPlan(side(("r",), ("v",)), side(("r",), ("w",)), "full")
    one = LatestSide(("r",), "", first.schema, first.key)
    again = LatestJoinPlan(one, one, "full", "_two")
    names = [f"{name}_{end}" for end in ("left", "right") for name in PAIR_KEYS]
    assert set(names) <= set(again.schema.names)
    assert again.key == PAIR_KEYS
    assert LatestJoinPlan(one, side(("r",), ("r",)), suffix="_two").key == PAIR_KEYS  # the left's own


def test_results_have_the_later_time_only_if_both_have_one_of_a_type():
    left = side(("r",), ("v",))
    assert JOIN_TIME in LatestJoinPlan(left, side(("r",), ("r",))).schema.names
    for other in (side(("r",), ("r",), time=None), side(("r",), ("r",), kind=pa.int64())):
        assert JOIN_TIME not in LatestJoinPlan(left, other).schema.names


def test_a_limit_is_checked_once_the_state_is_as_small_as_its_rows_allow():
    limit = LatestLimit(1000, 4)
    sizes, compacted = [251, 250], []

    def compact():
        compacted.append(sizes.pop(0))

    limit.check(3, ("r",), lambda: sizes[-1], compact)
    assert compacted == []
    limit.check(3, ("r",), lambda: sizes[0], compact)
    assert compacted == [251]
    with pytest.raises(StateLimitError, match=r"shard 3 of the join on r keeps 251.*at most 250.*ttl"):
        limit.check(3, ("r",), lambda: 251, lambda: None)
