"""The page of guarantees names tests that there are."""

from __future__ import annotations

import re

from kit.places import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_each_named_test_exists() -> None:
    assert NAMED
    for file, name in NAMED:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{file} has no {name}"


def test_each_guarantee_names_a_test() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "attacked by" not in line]
    assert lines
    assert [line for line in lines if "::test_" not in line] == []


def test_each_fault_test_of_the_sink_is_named() -> None:
    for file in ("tests/fault/test_steps.py", "tests/fault/test_steps_on_spark.py", "tests/sink/test_faults.py"):
        for name in re.findall(r"^def (test_\w+)\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE):
            assert (file, name) in NAMED, f"{file}::{name} is missing from docs/guarantees.md"
