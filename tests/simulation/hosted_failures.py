"""A query that fails beside the driver gets no commit any more, whatever the next batches make of it."""

import tempfile
import traceback
from pathlib import Path

import polars as pl

from .hosted_inputs import HostedInputs
from .hosted_process import HostProcess
from .machine import MACHINE


def check(forgets: bool) -> str:
    """Let a table miss a batch, and look whether it takes a later one; returns the error, if any.

    Batches are planned before the planner has looked into the journal again, by the process that knows of the failure
    or by one that has forgotten.
    """
    MACHINE.begin(1)
    with tempfile.TemporaryDirectory() as folder:
        try:
            _miss_a_batch(HostProcess(Path(folder), 2, HostedInputs(), 1), forgets)
        except Exception:
            return traceback.format_exc()
        finally:
            MACHINE.end()
    return ""


def _miss_a_batch(process: HostProcess, forgets: bool) -> None:
    def batch(key: int, time: int) -> None:
        process.inputs.add("buses/0", [[key, time, 1, False]])
        assert process.trigger()

    def keys(table: str) -> set[str]:
        return set(pl.read_delta(str(process.lake / table)).get_column("vehicle_id"))

    for name in ("lost", "kept"):
        text = "SELECT vehicle_id, speed FROM LATEST(buses)"
        process.change({"kind": "create", "name": name, "text": text, "buckets": 1})
    both = {each.id for each in process.registry().queries.values()}
    batch(0, 1)
    process.planner.stop()
    looked_before = process.planner
    (process.lake / "lost").rename(process.lake / "away")
    batch(1, 2)
    assert process.registry().queries["lost"].reason
    (process.lake / "away").rename(process.lake / "lost")
    if forgets:
        process.start(forgets=True)
        process.planner = looked_before
    batch(2, 3)
    assert process.plan(2).queries.keys() == both, "the batch was planned with both"
    assert keys("lost") == {"a"}
    assert keys("kept") == {"a", "b", "7"}
    process.start(forgets=False)
    batch(0, 4)
    assert process.plan(3).queries.keys() == {process.registry().queries["kept"].id}
