import pyarrow as pa

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.plan import AsOfPlan, JoinSide

TIME = pa.timestamp("us", tz="UTC")


def side(*names):
    fields = [pa.field(name, pa.string(), nullable=False) for name in names]
    return JoinSide((names[0],), "t", pa.schema([*fields, ("t", TIME), pa.field(SYSTEM, SYSTEM_TYPE)]))


def test_the_lefts_columns_stay_as_they_are_and_the_rights_may_be_null():
    plan = AsOfPlan(side("k", "a"), side("q", "a", "b"), "left", 90_000_000)
    assert plan.schema.names == ["k", "a", "t", "a_right", "b", "t_right", SYSTEM]
    assert [field.nullable for field in plan.schema] == [False, False, True, True, True, True, True]
    assert plan.identity() == {
        "as of": "t and t", "on": "k = q", "tolerance": "90 s", "how": "left", "shards": "1", "early": "",
    }  # fmt: skip
    assert AsOfPlan(side("k"), side("k"), tolerance=None).identity()["tolerance"] == ""


def test_the_left_may_be_a_joins_result_and_keeps_its_names():
    fields = [("k", pa.string()), ("join_time", TIME), ("left_row", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]
    plan = AsOfPlan(JoinSide(("k",), "join_time", pa.schema(fields)), JoinSide(("k",), "join_time", pa.schema(fields)))
    assert plan.schema.names == ["k", "join_time", "left_row", "join_time_right", "left_row_right", SYSTEM]
