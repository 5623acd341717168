"""The page of guarantees names tests that there are, and steps by their number."""

from __future__ import annotations

import re

from kit.places import ROOT

from upstream.sink.spec.steps import Step

PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_each_named_test_exists() -> None:
    assert len(NAMED) > 30
    for file, name in NAMED:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{file} has no {name}"


def test_each_guarantee_names_a_test() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "attacked by" not in line]
    assert len(lines) > 10
    assert [line for line in lines if "::test_" not in line] == []


def test_each_fault_test_of_the_sink_is_named() -> None:
    """What attacks the sink is on the page, so that the page does not fall behind."""
    for file in ("tests/fault/test_steps.py", "tests/fault/test_steps_on_spark.py", "tests/sink/test_faults.py"):
        for name in re.findall(r"^def (test_\w+)\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE):
            assert (file, name) in NAMED, f"{file}::{name} is missing from docs/guarantees.md"


def test_the_number_of_steps() -> None:
    assert [step.value for step in Step] == list(range(1, 18))
    assert "seventeen steps" in PAGE
