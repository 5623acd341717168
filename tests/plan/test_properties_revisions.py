"""What names a row that may be given again."""

import dataclasses
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from upstream.plan.newest_nodes import WindowedGroups
from upstream.plan.nodes import Choice, Filter, IncompleteInput, Node, Transform
from upstream.plan.properties import identity_of

from .building import FIXED, Spec, mapped, queue, rows, union, window

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
