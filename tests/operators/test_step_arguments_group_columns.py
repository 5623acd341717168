"""Columns that form groups: `group_by` and windows `by` columns refuse the same ones, for the same reason."""

from collections.abc import Callable
from typing import Any

import pytest

import upstream as us
from upstream.conf.errors import SchemaError
from upstream.testing import StreamTester

STEPS: dict[str, Callable[[Any, str], Any]] = {
    "group_by({})": lambda stream, name: stream.group_by(name),
    "window(by={})": lambda stream, name: stream.window("1 s", by=("k", name)),
    "window(by={}": lambda stream, name: stream.window("9 rows", by=name, of="stream"),
    "session_window(by={})": lambda stream, name: stream.session_window("1 s", by=name),
}


def made(step: Callable[[Any, str], Any], name: str) -> StreamTester:
    schema = "k STRING, at TIMESTAMP, n BIGINT, f DOUBLE, s STRUCT<x: BIGINT>"
    return StreamTester(
        lambda stream: step(stream, name).agg(rows=us.count()),
        schema, key="k", event_time="at", watermark=us.Watermark.bounded("0 s"),
    )  # fmt: skip


@pytest.mark.parametrize("asked", STEPS)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("f", "is of type double"),
        ("s", "is of type struct"),
        ("absent", "the stream has not"),
        ("_upstream", "the stream has not"),
    ],
)
def test_fractions_and_structs_form_no_groups(asked, name, reason):
    with pytest.raises(SchemaError) as refused:
        made(STEPS[asked], name)
    text = str(refused.value)
    assert asked.format(repr(name)) in text
    assert reason in text
    assert made(STEPS[asked], "n")
