"""A query that fails beside the driver gets no commit any more, whatever the next batches make of it."""

from __future__ import annotations

from .machine import MACHINE  # first of all: it replaces the clock  # isort: skip

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from .hosted_inputs import HostedInputs
from .hosted_process import HostProcess


@pytest.fixture
def process(tmp_path: Path) -> Iterator[HostProcess]:
    MACHINE.begin(1)
    try:
        yield HostProcess(tmp_path, 2, HostedInputs(), 1)
    finally:
        MACHINE.end()


def _batch(process: HostProcess, key: int, time: int) -> None:
    process._inputs.add("buses/0", [[key, time, 1, False]])
    assert process.trigger()


def _registers(process: HostProcess, name: str) -> None:
    text = "SELECT vehicle_id, speed FROM LATEST(buses)"
    process.change({"kind": "register", "name": name, "text": text, "buckets": 1})


@pytest.mark.parametrize("forgets", [False, True], ids=["goes-on", "starts-again"])
def test_a_table_that_missed_a_batch_takes_no_later_one(process: HostProcess, forgets: bool) -> None:
    """Batches are planned before the planner has looked into the journal again."""
    for name in ("lost", "kept"):
        _registers(process, name)
    both = {each.id for each in process.registry().queries.values()}
    before = process.registry().version
    _batch(process, 0, 1)
    process._planner._fixed = True
    (process.lake / "lost").rename(process.lake / "away")
    _batch(process, 1, 2)
    assert "any more" in (process.registry().queries["lost"].reason or "")
    (process.lake / "away").rename(process.lake / "lost")
    if forgets:
        process.start(forgets=True)
        process._planner._fixed, process._planner._known = True, before
    _batch(process, 2, 3)
    assert process.plan(2).queries.keys() == both, "the batch was planned with both"
    assert pl.read_delta(str(process.lake / "lost")).get_column("vehicle_id").to_list() == ["a"]
    assert set(pl.read_delta(str(process.lake / "kept")).get_column("vehicle_id")) == {"a", "b", "7"}
    version = process.registry().version
    process._planner._fixed, process._planner._known = True, version
    _batch(process, 0, 4)
    assert process.plan(3).queries.keys() == {process.registry().queries["kept"].id}
