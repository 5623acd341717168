"""The page of guarantees names tests that there are."""

import re

import pytest
from kit.places import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_each_named_test_exists():
    assert NAMED
    for file, name in NAMED:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{file} has no {name}"


def test_each_guarantee_names_a_test():
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and "attacked by" not in line]
    assert lines
    assert [line for line in lines if "::test_" not in line] == []


@pytest.mark.parametrize(
    ("file", "attacks"),
    [
        ("tests/fault/test_steps.py", ""),
        ("tests/fault/test_steps_on_spark.py", ""),
        ("tests/sink/test_durability.py", "power_cut|full|permission|corrupt|broken"),
    ],
)
def test_each_fault_test_of_the_sink_is_named(file, attacks):
    found = re.findall(r"^def (test_\w+)\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    attacking = [(file, name) for name in found if re.search(attacks, name)]
    assert attacking
    assert {*attacking} - {*NAMED} == set()
