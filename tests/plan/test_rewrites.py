"""Rules of the plan: what is moved, and what has to stay."""

import dataclasses
from typing import Any

import pytest

from upstream.plan.explain import fusable
from upstream.plan.newest_nodes import GroupBy, LatestJoin, Versions, WindowVersions
from upstream.plan.nodes import Choice, Filter, Map, Node, Reorder, Transform, walk
from upstream.plan.rewrites import newest_demanded, rewritten

from .building import FIXED, Spec, distinct, intake, mapped, ordered, queue, rows, union, window


def where(before: Node, condition: str | None = "v > 1") -> Transform:
    step = Filter(object() if condition is None else condition)  # pyright: ignore[reportArgumentType] a column
    return Transform(*FIXED, inputs=(before,), step=step)


def ours() -> Node:
    return dataclasses.replace(rows(), ours=True)


def step(batches: Any) -> Any:
    return batches


def translate(node: Transform) -> Any:
    return None if isinstance(node.step, Choice) or node.step.condition == "rand() > 0" else step


def kinds(plan: Node) -> list[str]:
    return [type(node).__name__ for node in walk(plan)]


@pytest.mark.parametrize("before", [ours(), mapped(rows()), window(rows()), queue(rows()), intake("a")])
def test_a_filter_runs_where_rows_are_in_arrow(before):
    plan = rewritten(where(where(before)), translate)
    assert isinstance(plan, Map)
    assert (plan.says, plan.step, plan.moved) == ("where v > 1", step, True)
    assert isinstance(plan.inputs[0], Map)
    assert plan.inputs[0].inputs == (before,)


def test_operators_on_both_sides_of_a_filter_share_a_stage():
    plan = window(where(window(ours())))
    assert not fusable(plan)
    assert [each.word for each in fusable(rewritten(plan, translate))] == ["window"]


@pytest.mark.parametrize(
    ("why", "plan"),
    [
        ("rows are in Spark's form", where(rows())),
        ("a step before is Spark's", where(where(ours(), "rand() > 0"))),
        ("it may mean something else", where(ours(), "rand() > 0")),
        ("it is no filter", Transform(*FIXED, inputs=(ours(),), step=Choice(("v",)))),
        ("a column may belong to a DataFrame that its user has", where(where(ours()), None)),
        ("also if an operator is between", where(window(where(ours())), None)),
    ],
)
def test_what_stays_with_spark_is_the_same_object(why, plan):
    assert rewritten(plan, translate) is plan, why


def test_steps_behind_a_users_column_are_moved():
    opaque = where(ours(), None)
    plan = rewritten(where(window(opaque)), translate)
    assert kinds(plan) == ["InputRows", "Transform", "Window", "Map"]
    assert plan.inputs[0].inputs == (opaque,)


def test_each_branch_is_rewritten_once():
    shared = where(ours())
    plan = rewritten(union(window(shared), window(shared)), translate)
    assert kinds(plan) == ["InputRows", "Map", "Window", "Window", "Reorder"]


def test_a_union_drops_older_rows_if_all_behind_demands_the_newest_row_alone():
    def dropping(newest: bool) -> list[bool]:
        plan = rewritten(where(union(ours(), ours())), lambda _: None, newest=newest)
        kept = rewritten(union(ours(), ours()), translate, newest=newest)
        return [node.newest for each in (plan, kept) for node in walk(each) if isinstance(node, Reorder)]

    assert dropping(True) == [False, True]
    assert dropping(False) == [False, False]


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
