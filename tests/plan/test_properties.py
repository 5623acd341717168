"""Steps that wait for the low-watermark are refused over inputs that have none."""

import pytest

from upstream.conf.errors import OptionError
from upstream.plan.nodes import Node
from upstream.plan.properties import check_promised

from .building import intake, mapped, ordered, queue, union, where, window


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
