"""A plan as people read it."""

import dataclasses

import pytest

from upstream.plan.explain import PlanText, before_in_stage, draw_plan, explain_plan, fusable, plan_steps
from upstream.plan.fingerprint import places
from upstream.plan.nodes import Choice, Filter, IncompleteInput, InputRows, Queue, Transform

from .building import FIXED, SCHEMA, Spec, intake, mapped, ordered, queue, rows, union, where, window


def test_last_step_first_with_what_is_known_of_its_rows():
    source = InputRows(*FIXED, frame=None, source="files feed/")
    filtered = Transform(*FIXED, inputs=(source,), step=Filter("speed > 0"))
    plan = Queue(
        ("k",), None, SCHEMA, IncompleteInput("queue leaves rows out", "…"), False, 4,
        inputs=(filtered,), specification=Spec("linecutting"), options={},
    )  # fmt: skip
    assert explain_plan(plan) == (
        "queue, name linecutting, policy fifo\n"
        "│  key k, the later arrival counts, 4 shards\n"
        "│  not every row: queue leaves rows out\n"
        "│  keeps rows that wait, until they are processed or superseded\n"
        "└─ where speed > 0\n"
        "   │  key k, event time ms\n"
        "   │  every row, once\n"
        "   └─ read files feed/\n"
        "         key k, event time ms\n"
        "         every row, once"
    )


def test_a_queue_by_time_keeps_the_times_of_applied_keys_unless_it_gives_every_row():
    given = {"inputs": (rows(),), "options": {}}
    for policy, kept in (("fifo", True), ("append", False), ("shed", False)):
        text = Queue(*FIXED, specification=Spec(policy=policy), **given).keeps
        assert ("of applied keys the time" in text) == kept


def test_branches_and_folders():
    plan = union(window(rows()), rows())
    shown = explain_plan(plan, places(plan, "/cp"))
    assert "├─ window" in shown
    assert "└─ read" in shown
    assert "│  reports to /cp/upstream-reorder/0" in shown
    assert "│  │  reports to /cp/upstream-windows/0" in shown


def test_what_leaves_rows_out_is_said_once():
    left_out = IncompleteInput("the source coalesces", "…")
    plan = Transform(*FIXED, left_out, inputs=(InputRows(*FIXED, left_out, frame=None),), step=Choice(("v",)))
    assert explain_plan(plan).count("the source coalesces") == 1


def test_what_was_moved_and_what_shares_a_stage():
    first = window(rows())
    filtered = dataclasses.replace(mapped(first), says="where v > 1", moved=True)
    second = window(filtered)
    text = explain_plan(second, fused={second})
    assert "in one stage with the window before it" in text
    assert "runs in the worker of the window" in text
    at_source = dataclasses.replace(mapped(rows()), moved=True)
    assert "runs where the rows are read" in explain_plan(at_source)
    assert "runs " not in explain_plan(mapped(rows()))
    assert "in one stage" not in explain_plan(second)


def test_steps_for_programs_are_inputs_first_and_each_once():
    shared = where(rows())
    left, right = window(shared), window(shared)
    plan = union(left, right)
    found = plan_steps(plan, places(plan, "/cp"), checkpoint="/cp")
    assert [each.kind for each in found] == ["source", "step", "operator", "operator", "operator"]
    assert found[2].inputs == found[3].inputs == (found[1].name,)
    assert [each.folder for each in found[2:]] == ["upstream-windows/0", "upstream-windows/1", "upstream-reorder/0"]
    assert not any("reports to" in fact for each in found for fact in each.facts)


def test_a_picture_has_each_step_with_its_facts():
    left = window(where(rows()))
    picture = draw_plan(queue(union(left, window(rows()))), folders={left: "/cp/upstream-windows/0"})
    assert picture.count("<rect") == 7
    assert picture.count('class="node operator"') == 4
    assert "reports to /cp/upstream-windows/0" in picture
    assert "where v &gt; 0" in picture


def test_an_operator_joins_the_one_before_it():
    first = window(rows())
    second = window(first)
    third = ordered(mapped(second))
    assert fusable(third) == {second, third}
    assert before_in_stage(second) is first
    assert before_in_stage(third) is second
    assert before_in_stage(first) is None


@pytest.mark.parametrize(
    ("why", "plan"),
    [
        ("what Spark computes lies between", window(where(window(rows())))),
        ("what Spark computes lies below a map", window(mapped(where(window(rows()))))),
        ("other shards", window(window(rows(), shards=8))),
        ("no shards of the key", window(ordered(rows(), shards=None))),
        ("it divides by other columns", ordered(window(rows()), shards=None)),
        ("two inputs", union(window(rows()), window(rows()))),
        ("ticks of its own", ordered(window(rows()), paced=True)),
        ("a queue has its own ticks", queue(window(rows()))),
        ("rows leave a queue at its own pace", window(queue(rows()))),
        ("an input is divided by feed", window(intake("a", shards=4))),
        ("nothing is before it", window(mapped(rows()))),
    ],
)
def test_one_that_cannot_has_a_stage_of_its_own(why, plan):
    assert not fusable(plan), why


def test_each_branch_of_a_union_is_looked_at():
    left, right = window(window(rows())), window(window(rows()))
    both = union(left, right)
    last = window(both)
    assert fusable(last) == {left, right, last}


def test_a_notebook_shows_a_plan_as_it_is():
    plan = Transform(*FIXED, inputs=(rows(),), step=Filter("v < 5"))
    assert PlanText(explain_plan(plan))._repr_html_().startswith("<pre>where v &lt; 5\n")
    picture = draw_plan(plan)
    assert PlanText(picture)._repr_html_() == picture
