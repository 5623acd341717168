"""Which steps demand the newest row of each key alone."""

import dataclasses
from typing import Any

import pytest

from upstream.plan.newest_nodes import GroupBy, LatestJoin, Versions, WindowVersions
from upstream.plan.nodes import Choice, Filter, Node, Transform
from upstream.plan.rewrites import newest_demanded

from .building import FIXED, Spec, distinct, mapped, ordered, queue, rows, union, where, window


def or_delete(before: Node) -> Node:
    return Transform(*FIXED, inputs=(before,), step=Filter("v > 0", "delete"))


def chosen(before: Node) -> Node:
    return Transform(*FIXED, inputs=(before,), step=Choice(("v",)))


def newest_of(kind: Any, *before: Node) -> Node:
    return kind(*FIXED, inputs=before, specification=Spec())


def queued(before: Node, policy: str) -> Node:
    return dataclasses.replace(queue(before), specification=Spec(policy=policy))


@pytest.mark.parametrize(
    ("behind", "in_table", "elsewhere"),
    [
        (lambda before: before, True, False),
        (or_delete, True, False),
        (chosen, True, False),
        (ordered, True, False),
        (lambda before: union(before, rows()), True, False),
        (lambda before: queued(before, "append"), True, False),
        (lambda before: queued(before, "auto"), True, True),
        (lambda before: chosen(queue(chosen(before))), True, True),
        (lambda before: window(queue(before)), True, True),
        (lambda before: newest_of(Versions, before), True, True),
        (lambda before: newest_of(GroupBy, before), True, True),
        (lambda before: newest_of(LatestJoin, rows(), before), True, True),
        (lambda before: newest_of(WindowVersions, before), False, False),
        (where, False, False),
        (lambda before: queue(where(before)), False, False),
        (mapped, False, False),
        (distinct, False, False),
        (window, False, False),
        (lambda before: union(before, where(before)), False, False),
    ],
)
def test_all_that_follows_decides(behind, in_table, elsewhere):
    before = union(rows(), rows())
    for newest, expected in ((True, in_table), (False, elsewhere)):
        assert newest_demanded(behind(before), newest)[before] == expected
