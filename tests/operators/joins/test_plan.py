import json

import pyarrow as pa
import pytest

from upstream.conf.errors import CheckpointError, SchemaError
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.band import IntervalBand, TumblingBand
from upstream.operators.joins.plan import (
    JOIN_TIME,
    AsOfPlan,
    JoinPlan,
    JoinSide,
    check_columns,
    columns_to_json,
    distance_text,
)
from upstream.operators.joins.release.choice import ReleasePlan


def side(*names, on=("k",), time="t"):
    return JoinSide(on, time, pa.schema([*((name, pa.int64()) for name in names), pa.field(SYSTEM, SYSTEM_TYPE)]))


LEFT, RIGHT = side("k", "t", "a"), side("k", "t", "b")


def plan(left=LEFT, right=RIGHT, **changes):
    return JoinPlan(left, right, **{"band": IntervalBand(2, 3), **changes})


@pytest.mark.parametrize(
    ("how", "promise"),
    [
        ("inner", 100),
        ("left", 97),  # a row of the left at 97 may still meet one at 100, or leave without
        ("right", 98),
        ("full", 97),
        ("semi", 97),
        ("anti", 97),
    ],
)
def test_what_results_promise(how, promise):
    assert plan(how=how).promise(100, 100) == promise
    assert plan(how=how).promise(90, 200) == (88 if how in ("right", "full") else 90)


@pytest.mark.parametrize(("band", "promise"), [(IntervalBand(-5, 9), 91), (IntervalBand(9, -5), 100)])
def test_an_interval_that_lies_behind_holds_results_of_the_left_no_longer_than_pairs(band, promise):
    assert plan(how="left", band=band).promise(100, 100) == promise


def test_results_have_the_lefts_columns_then_the_rights_with_a_suffix():
    found = plan(side("k", "t", "a"), side("q", "t", "a", "b", on=("q",)), suffix="_two")
    assert found.schema.names == ["k", "t", "a", "t_two", "a_two", "b", JOIN_TIME, "left_row", "right_row", SYSTEM]
    assert plan(output="latest").schema.names[-2:] == [JOIN_TIME, SYSTEM]
    assert plan(how="semi").schema == plan().left.schema
    assert (plan(how="anti").time, plan().time) == ("t", JOIN_TIME)


def test_an_earlier_joins_time_gets_a_name_and_its_row_numbers_go():
    first = JoinSide(("k",), JOIN_TIME, plan().schema)
    found = plan(left=first, right=side("k", "t", "c"), suffix="_three")
    assert "join_time_left" in found.schema.names
    assert found.schema.names.count("left_row") == 1
    assert [each.name for each in found.columns if each.side == 1] == ["t_three", "c"]


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(SchemaError, match="'a_right'"):
        _ = plan(side("k", "t", "a", "a_right"), side("k", "t", "a")).columns
    with pytest.raises(SchemaError, match="on join_time"):
        _ = plan(side(JOIN_TIME, "t", on=(JOIN_TIME,)), side(JOIN_TIME, "t", on=(JOIN_TIME,))).columns


def test_distances_in_words_are_exact():
    us = [7_200_000_000, 90_000_000, 1_500_000, 1_500, 7, -60_000_000, 0]
    assert [distance_text(each, 1) for each in us] == [
        *("2 hours", "90 seconds", "1500 milliseconds", "1500 microseconds", "7 microseconds", "-1 minute"),
        "0 seconds",
    ]
    assert distance_text(7, None) == "7"
    assert plan(band=TumblingBand(60), unit_us=1_000_000).identity()["within"] == "windows of 1 minute"


def test_rows_that_are_results_or_wait_keep_their_whole_system_column():
    def whole(**changes):
        return [plan(**changes).takes_whole(at) for at in (0, 1)]

    assert whole() == whole(how="full") == [False, False]
    assert whole(how="semi") == whole(how="anti") == [True, False]
    assert whole(release=ReleasePlan("sync")) == [True, True]


TIME = pa.timestamp("us", tz="UTC")


def text_side(*names):
    fields = [pa.field(name, pa.string(), nullable=False) for name in names]
    return JoinSide((names[0],), "t", pa.schema([*fields, ("t", TIME), pa.field(SYSTEM, SYSTEM_TYPE)]))


def test_the_lefts_columns_stay_as_they_are_and_the_rights_may_be_null():
    plan = AsOfPlan(text_side("k", "a"), text_side("q", "a", "b"), "left", 90_000_000)
    assert plan.schema.names == ["k", "a", "t", "a_right", "b", "t_right", SYSTEM]
    assert [field.nullable for field in plan.schema] == [False, False, True, True, True, True, True]
    assert plan.identity() == {
        "as of": "t and t", "on": "k = q", "tolerance": "90 seconds", "how": "left", "shards": "1", "early": "",
    }  # fmt: skip
    assert AsOfPlan(text_side("k"), text_side("k"), tolerance=None).identity()["tolerance"] == ""


def test_the_left_may_be_a_joins_result_and_keeps_its_names():
    fields = [("k", pa.string()), ("join_time", TIME), ("left_row", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]
    plan = AsOfPlan(JoinSide(("k",), "join_time", pa.schema(fields)), JoinSide(("k",), "join_time", pa.schema(fields)))
    assert plan.schema.names == ["k", "join_time", "left_row", "join_time_right", "left_row_right", SYSTEM]


KEPT_LEFT = pa.schema([("k", pa.int64()), ("t", pa.int64())])
KEPT_RIGHT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("b", pa.string())])


def sides(left=KEPT_LEFT, right=KEPT_RIGHT):
    return JoinSide(("k",), "t", left), JoinSide(("k",), "t", right)


def saved():
    return json.loads(json.dumps(columns_to_json(sides())))


@pytest.mark.parametrize(
    ("left", "right", "kept"),
    [
        (KEPT_LEFT, KEPT_RIGHT, (1, 1)),
        (KEPT_LEFT.append(pa.field("new", pa.int64())), KEPT_RIGHT, (1, 1)),
        (KEPT_LEFT.with_metadata({"pandas": "x"}), KEPT_RIGHT, (1, 1)),
        (KEPT_LEFT, KEPT_RIGHT.remove(2), (1, 0)),  # no row is kept
    ],
)
def test_the_same_columns_and_more_are_taken_and_others_where_no_row_is_kept(left, right, kept):
    check_columns(sides(left, right), saved(), kept)


@pytest.mark.parametrize(
    ("right", "shown"),
    [
        (KEPT_RIGHT.remove(2), "k int64, t int64"),
        (KEPT_RIGHT.set(2, pa.field("b", pa.int64())), "k int64, t int64, b int64"),
    ],
)
def test_a_column_that_is_gone_or_of_another_type_is_refused(right, shown):
    with pytest.raises(CheckpointError) as refused:
        check_columns(sides(right=right), saved(), (0, 1))
    for part in ("right", "k int64, t int64, b string", f"now there are {shown}"):
        assert part in str(refused.value)
