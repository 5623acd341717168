"""The last step of a stream that sets late rows aside."""

from typing import Any

import pytest

import upstream as us
from upstream.conf.errors import CheckpointError, OptionError
from upstream.core.feedback.checkpoint_layout import write_plan_record
from upstream.plan.fingerprint import fingerprint, late_step, places, to_json
from upstream.plan.nodes import Node, StatefulNode
from upstream.testing import StreamTester


def plan_of(steps: Any) -> Node:
    found: list[Node] = []

    def looked(stream: Any) -> Any:
        made = steps(stream)
        found.append(made.plan)
        return made

    StreamTester(looked, "bus STRING, at TIMESTAMP, `top speed` BIGINT", key="bus", event_time="at")
    return found[0]


def step_of(steps: Any, checkpoint: str = "/cp") -> tuple[StatefulNode, str]:
    return late_step(plan_of(steps), checkpoint)


def windows(stream: Any, late: str | None = None, length: str = "5 minutes", **options: Any) -> Any:
    lateness = us.Lateness(dead_letters=late is not None)
    return stream.window(length, emit="all", lateness=lateness, **options).agg(n=us.count())


@pytest.mark.parametrize(
    ("steps", "folder"),
    [
        (lambda stream: windows(stream, "late", by="top speed").where("n > 1"), "windows/0"),
        (lambda stream: stream.ordered(dead_letters=True), "reorder/0"),
        (lambda stream: stream.distinct(dead_letters=True).select("bus AS it"), "reorder/0"),
        (lambda stream: windows(stream.distinct(dead_letters=True)), "reorder/0"),
    ],
)
def test_the_last_step_that_sets_late_rows_aside(steps, folder):
    """The key is that before it, whatever the key of the results."""
    step, found = step_of(steps)
    assert found == f"/cp/upstream-{folder}"
    assert (step.inputs[0].key, step.inputs[0].time) == (("bus",), "at")


def test_of_windows_over_windows_the_last_that_sets_some_aside():
    assert step_of(lambda stream: windows(windows(stream, "late")))[1] == "/cp/upstream-windows/0"
    outer, folder = step_of(lambda stream: windows(windows(stream, "late"), "late"))
    assert folder == "/cp/upstream-windows/1"
    assert outer.inputs[0].time == "window_time"


@pytest.mark.parametrize("steps", [windows, lambda stream: stream.queue(), lambda stream: stream])
def test_a_stream_that_sets_none_aside_is_refused(steps):
    with pytest.raises(
        OptionError, match=r"late_rows\(\) of a stream that writes none.*us.Lateness\(dead_letters=True\)"
    ):
        step_of(steps)


def test_the_checkpoint_of_another_job_is_refused(tmp_path):
    """Else late rows of another step would be taken for this one's."""
    checkpoint = str(tmp_path)
    plan = plan_of(lambda stream: windows(stream, "late"))
    write_plan_record(checkpoint, to_json(fingerprint(plan, places(plan, checkpoint), (), checkpoint)))
    step_of(lambda stream: windows(stream, "late"), checkpoint)
    for other in (
        lambda stream: windows(stream, "late", "6 minutes"),
        lambda stream: windows(windows(stream), "late"),
        lambda stream: stream.ordered(dead_letters=True),
    ):
        with pytest.raises(CheckpointError, match=r"whose job has window \(upstream-windows/0\)"):
            step_of(other, checkpoint)


def test_the_step_of_a_branch_is_that_with_its_settings(tmp_path):
    """In the whole stream, steps on other branches come before it."""
    checkpoint = str(tmp_path)

    def branch(stream: Any, length: str) -> Any:
        return windows(stream.where("bus > ''"), "late", length)

    def joined(stream: Any, length: str) -> Any:
        return branch(stream, "5 minutes").union(branch(stream.where("bus < 'x'"), length))

    for length, folder in (("6 minutes", "1"), ("5 minutes", None)):
        plan = plan_of(lambda stream, length=length: joined(stream, length))
        write_plan_record(checkpoint, to_json(fingerprint(plan, places(plan, checkpoint), (), checkpoint)))
        if folder is not None:
            found = step_of(lambda stream, length=length: branch(stream, length), checkpoint)[1]
            assert found == f"{checkpoint}/upstream-windows/{folder}"
            continue
        with pytest.raises(CheckpointError, match=r"2 steps are window, .* in this checkpoint"):
            step_of(lambda stream, length=length: branch(stream, length), checkpoint)
