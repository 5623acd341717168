"""The picture of a plan: a box for each step, an arrow for each input, and nothing lies on anything else."""

import dataclasses
from xml.etree import ElementTree

from upstream.plan.explain import draw_plan
from upstream.plan.nodes import Node

from .building import queue, rows, union, where, window

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
