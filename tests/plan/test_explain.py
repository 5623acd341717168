"""A plan as people read it."""

import dataclasses
from xml.etree import ElementTree

import pytest

from upstream.plan.explain import PlanText, before_in_stage, draw_plan, explain_plan, fusable
from upstream.plan.fingerprint import places
from upstream.plan.nodes import Choice, Filter, IncompleteInput, InputRows, Node, Queue, Transform

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


SVG = "{http://www.w3.org/2000/svg}"


def drawn(plan: Node, **more: object) -> ElementTree.Element:
    return ElementTree.fromstring(draw_plan(plan, **more))  # type: ignore[arg-type]


def boxes(picture: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    found = [each for each in picture.iter(f"{SVG}rect") if each.get("x")]
    return [tuple(float(each.get(name, "")) for name in ("x", "y", "width", "height")) for each in found]  # type: ignore[misc]


def test_each_step_has_a_box_and_each_input_an_arrow():
    left, right = window(where(rows())), window(rows())
    plan = queue(union(left, right))
    picture = drawn(plan, folders={left: "/cp/upstream-windows/0"})
    assert len(boxes(picture)) == 7
    assert len(list(picture.iter(f"{SVG}path"))) == 6
    assert sum(each.get("class") == "operator" for each in picture.iter(f"{SVG}rect")) == 4
    words = [each.text for each in picture.iter(f"{SVG}text")]
    assert "reports to /cp/upstream-windows/0" in words
    assert "where v > 0" in words


def test_boxes_lie_apart_and_inside_and_arrows_go_down_from_the_step_before():
    shared = where(rows())
    picture = drawn(union(union(window(shared), window(shared)), window(where(where(rows())))))
    found = boxes(picture)
    assert len(found) == 12, "a step in two branches is drawn in each"
    wide, high = (float(picture.get(name, "")) for name in ("width", "height"))
    for number, (x, y, width, height) in enumerate(found):
        assert x + width < wide
        assert y + height < high
        for other_x, other_y, other_width, other_height in found[:number]:
            beside = x >= other_x + other_width or other_x >= x + width
            assert beside or y >= other_y + other_height or other_y >= y + height
    for arrow in picture.iter(f"{SVG}path"):
        start, end = (tuple(map(float, part.split(","))) for part in arrow.get("d", "")[1:].split(" L"))
        assert start[1] < end[1]
        assert any(y + height == start[1] and x < start[0] < x + width for x, y, width, height in found)
        assert any(y == end[1] and x < end[0] < x + width for x, y, width, height in found)


def test_text_is_escaped():
    source = dataclasses.replace(rows(), source='<feed> & "more"')
    words = [each.text for each in drawn(source).iter(f"{SVG}text")]
    assert words[0] == 'read <feed> & "more"'


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
