"""Steps that wait for the low-watermark are refused over inputs that have none."""

import dataclasses
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.plan.newest_nodes import WindowedGroups
from upstream.plan.nodes import Choice, Filter, IncompleteInput, Node, Transform
from upstream.plan.properties import check_promised, check_table_key, identity_of
from upstream.testing import StreamTester

from .building import FIXED, Spec, intake, mapped, ordered, queue, rows, union, where, window


def silent() -> Node:
    return intake("silent", promises=False)


@pytest.mark.parametrize(
    "plan",
    [
        silent,
        lambda: where(mapped(queue(silent()))),
        lambda: union(intake("heard"), silent()),
        lambda: ordered(where(silent())),
    ],
    ids=["itself", "behind steps on rows and a queue", "one of two", "behind an ordered release"],
)
def test_an_input_that_promises_nothing_is_found_behind_other_steps(plan):
    with pytest.raises(OptionError, match="; or rows"):
        check_promised(plan(), "windows by time", "; or rows")


@pytest.mark.parametrize(
    "plan",
    [lambda: intake("heard"), lambda: union(intake("a"), intake("b")), lambda: window(silent())],
    ids=["an input", "two", "results of windows, which have a low-watermark of their own"],
)
def test_others_pass(plan):
    check_promised(plan(), "windows by time")


def test_windows_of_rows_have_no_low_watermark_to_give():
    plan = where(window(intake("heard"), promises=False))
    with pytest.raises(OptionError, match="row numbers"):
        check_promised(plan, "windows by time")
    check_promised(window(plan), "windows by time")


def stream_tester(steps):
    return StreamTester(steps, "k STRING, t BIGINT, v BIGINT", key="k", event_time="t", time_format="epoch_us")


def early(left, right, how="left"):
    return left.join(
        right, on="k", within=us.Interval(before=2, after=3), how=how, shards=2, emit=us.Emission(early=True)
    )


def test_the_key_of_a_table_of_results_that_are_taken_back():
    made = {}

    def steps(left, right):
        made["outer"], made["anti"] = early(left, right).select("v"), early(left, right, "anti")
        made["newest"] = left.join_latest(right, on="k")
        made["filtered"] = early(left, right).where("v > 0")
        made["plain"] = left
        return made["outer"]

    stream_tester(steps)
    for name in ("anti", "filtered"):
        with pytest.raises(SchemaError, match="lacks left_row"):
            check_table_key(made[name].plan, ["k"])
        check_table_key(made[name].plan, ["k", "left_row", "right_row"])
    # A pair is at least as new as the row that it takes back, so the newest result of each value is right.
    check_table_key(made["outer"].plan, ["k"])
    check_table_key(made["newest"].plan, ["k"])
    check_table_key(made["plain"].plan, ["v"])
    with pytest.raises(SchemaError, match="lacks k"):
        check_table_key(made["outer"].plan, ["v"])


LEFT_OUT = IncompleteInput("some are given again", "do something else")
WITH_ID = StructType([*FIXED[2], StructField("window_id", LongType())])


def revised(before: Node) -> Node:
    return dataclasses.replace(window(before, revises=True), schema=WITH_ID, left_out=LEFT_OUT)


def groups(**more: Any) -> Node:
    made = WindowedGroups(*FIXED, inputs=(rows(),), specification=Spec(), early=True, **more)
    return dataclasses.replace(made, left_out=LEFT_OUT)


def deletes(before: Node) -> Node:
    return Transform(*FIXED, left_out=LEFT_OUT, inputs=(before,), step=Filter("v > 0", "delete"))


def like(step: Node, before: Node, schema: StructType = WITH_ID) -> Node:
    return dataclasses.replace(step, schema=schema, left_out=before.left_out, inputs=(before,))


def choice(before: Node, schema: StructType = WITH_ID) -> Node:
    return like(Transform(*FIXED, inputs=(before,), step=Choice(())), before, schema)


@pytest.mark.parametrize(
    ("node", "name"),
    [
        (rows(), ("k",)),
        (window(rows()), ("k",)),
        (revised(rows()), ("k", "window_id")),
        (choice(revised(rows())), ("k", "window_id")),
        (like(mapped(rows()), revised(rows())), ("k", "window_id")),
        (groups(), ("k",)),
        (deletes(rows()), ("k",)),
    ],
)
def test_rows_that_are_given_again_have_a_name(node, name):
    assert identity_of(node) == name


@pytest.mark.parametrize(
    "node",
    [
        dataclasses.replace(rows(), left_out=LEFT_OUT),
        dataclasses.replace(window(rows()), left_out=LEFT_OUT),
        choice(revised(rows()), FIXED[2]),  # without window_id
        groups(ends=False),
        deletes(dataclasses.replace(rows(), left_out=LEFT_OUT)),
        deletes(revised(rows())),
        like(queue(rows()), revised(rows())),
        like(union(rows()), revised(rows())),
        union(rows(), dataclasses.replace(groups(), left_out=None)),  # taken back, whatever was forgotten
    ],
)
def test_where_rows_are_missing_there_is_no_name(node):
    assert identity_of(node) is None
