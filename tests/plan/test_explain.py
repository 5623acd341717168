"""A plan as people read it."""

import dataclasses

from upstream.plan.explain import explain_plan
from upstream.plan.fingerprint import places
from upstream.plan.nodes import Choice, Filter, IncompleteInput, InputRows, Queue, Transform

from .building import FIXED, SCHEMA, Spec, mapped, rows, union, window


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


def test_a_queue_by_time_keeps_the_times_of_delivered_keys_unless_it_gives_every_row():
    given = {"inputs": (rows(),), "options": {}}
    for policy, kept in (("fifo", True), ("append", False), ("shed", False)):
        text = Queue(*FIXED, specification=Spec(policy=policy), **given).keeps
        assert ("of delivered keys the time" in text) == kept


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
