"""A graph as SVG: boxes apart, arrows down, few crossings, nothing that a content security policy forbids."""

import re
from xml.etree import ElementTree

import pytest

from upstream.plan.picture import StepBox, draw

SVG = "{http://www.w3.org/2000/svg}"


def drawn(boxes, *given, **more):
    return ElementTree.fromstring(
        draw([StepBox(name, f"step {name}", (), inputs) for name, inputs in boxes], *given, **more)
    )


def rectangles(picture):
    found = {}
    for group in picture.iter(f"{SVG}g"):
        if group.get("data-node"):
            rect = group.find(f"{SVG}rect")
            found[group.get("data-node")] = tuple(float(rect.get(each)) for each in ("x", "y", "width", "height"))
    return found


def ends(picture):
    """The first and the last point of each arrow."""
    paths = [each.get("d", "") for each in picture.iter(f"{SVG}path")]
    points = [
        [tuple(map(float, point.split(","))) for point in re.findall(r"-?[0-9.]+,-?[0-9.]+", path)] for path in paths
    ]
    return [(each[0], each[-1]) for each in points]


WIDE = [("a", ()), ("b", ()), ("c", ("a", "b")), ("d", ("a",)), ("e", ("c", "d", "b")), ("f", ("e", "a"))]


def test_boxes_lie_apart_and_inside_and_arrows_go_down_from_the_step_before():
    picture = drawn(WIDE)
    found = rectangles(picture)
    assert found.keys() == dict(WIDE).keys()
    wide, high = (float(picture.get(name, "")) for name in ("width", "height"))
    for name, (x, y, width, height) in found.items():
        assert 0 < x < x + width < wide
        assert 0 < y < y + height < high
        for other, (other_x, other_y, *_) in found.items():
            assert name == other or abs(x - other_x) >= width or abs(y - other_y) >= height
    edges = [(before, name) for name, inputs in WIDE for before in inputs]
    joined = []
    for start, end in ends(picture):
        assert start[1] < end[1]
        before = next(n for n, (x, y, w, h) in found.items() if y + h == start[1] and x < start[0] < x + w)
        joined.append((before, next(n for n, (x, y, w, h) in found.items() if y == end[1] and x < end[0] < x + w)))
    assert sorted(joined) == sorted(edges)


def test_two_pairs_given_crosswise_are_drawn_without_a_crossing():
    found = rectangles(drawn([("a", ()), ("b", ()), ("under b", ("b",)), ("under a", ("a",))]))
    assert (found["a"][0] < found["b"][0]) == (found["under a"][0] < found["under b"][0])
    assert found["a"][0] == found["under a"][0], "one below the other"


def test_an_arrow_passes_the_layers_between_beside_their_boxes():
    long = [("a", ()), ("b", ("a",)), ("c", ("b",)), ("d", ("c", "a"))]
    picture = drawn(long)
    found = rectangles(picture)
    (path,) = [each.get("d", "") for each in picture.iter(f"{SVG}path") if "L" in each.get("d", "")]
    for x, y in re.findall(r"L([0-9.]+),([0-9.]+)", path):
        for left, top, width, height in (found["b"], found["c"]):
            assert not (top <= float(y) <= top + height and left <= float(x) <= left + width)


def test_an_input_is_drawn_beside_the_first_step_that_reads_it():
    found = rectangles(drawn([("a", ()), ("b", ("a",)), ("late", ()), ("c", ("b", "late"))]))
    assert found["late"][1] == found["b"][1]


def test_the_marked_way_and_rates_are_drawn():
    picture = drawn([("a", ()), ("b", ("a",)), ("c", ("a",))], {("a", "b"): "12 rows/s"}, ["a", "b"], "one & two")
    classes = [each.get("class") for each in picture.iter(f"{SVG}g")]
    assert classes == ["edge critical", "edge", "node plain critical", "node plain critical", "node plain"]
    assert "12 rows/s" in [each.text for each in picture.iter(f"{SVG}text")]
    assert picture.get("aria-label") == "one & two"


def test_text_is_escaped_and_wrapped_and_nothing_is_a_style():
    text = draw([StepBox("<n>", '<read> & "more" ' + "of it " * 20, ("<fact>",))])
    words = [each.text for each in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert words[0].startswith('<read> & "more"')
    assert len(words) > 3
    assert words[-1] == "<fact>"
    assert "style" not in text.replace('class="step"', "")
    assert "<style" not in text


def test_nothing_is_an_empty_picture_and_a_circle_is_an_error():
    assert list(drawn([])) == []
    with pytest.raises(ValueError, match="circle"):
        drawn([("a", ("b",)), ("b", ("a",))])


def test_an_input_that_is_not_in_the_picture_has_no_arrow():
    assert ends(drawn([("b", ("a",))])) == []
