"""The record of the states' files after each batch, and the step that runs a stage's shards."""

import os

import pyarrow as pa
import pytest

from upstream.conf.errors import CheckpointError
from upstream.hosting.messages import Command
from upstream.hosting.output import outcome_of
from upstream.hosting.stage_states import StageStep, StateRecords
from upstream.operators.runtime.pack import PACKED
from upstream.operators.state.file_store import FileStore
from upstream.storage.folder import TableFolder

SLOTS = (50, 60, 70)


class Counter:
    """A stage whose shards count the rows that they have had so far."""

    number = 1

    def __init__(self, command):
        self.command = command

    def batch(self, shard, store, rows):
        count = int(store.get("head", 0) or 0) + len(rows)
        store.put("head", 0, str(count).encode())
        control = f'{{"kind":"late","name":"{shard}","count":{count},"queries":[{shard}]}}'
        return pa.table([[SLOTS[0]], pa.nulls(1, pa.binary()), [control]], schema=PACKED)


class Job:
    """Batches of the stage, each in a process that knows nothing but the records."""

    def __init__(self, place):
        self.place = str(place)

    def run(self, batch, *slots):
        records = StateRecords(TableFolder(self.place))
        before = records.before(batch)
        rows = pa.table([slots, pa.nulls(len(slots), pa.binary()), ["{}"] * len(slots)], schema=PACKED)
        step = StageStep(lambda: Command(batch, 1), Counter, SLOTS, records.folder)
        left = [row for part in step(iter(rows.to_batches(max_chunksize=2))) for row in part.to_pylist()]
        outcome = outcome_of((row["control"], row["frame"]) for row in left)
        records.record(batch, {**before, **outcome.states})
        return outcome.late


def test_a_batch_begins_with_the_states_after_the_one_before_however_often_it_runs(tmp_path):
    job = Job(tmp_path)
    assert job.run(0, 50, 60, 50) == {0: 2, 1: 1}
    assert job.run(1, 50) == {0: 3}
    assert job.run(1, 50, 50, 70) == {0: 4, 2: 1}
    assert job.run(2, 50, 60, 70) == {0: 5, 1: 2, 2: 2}


def test_files_that_no_kept_batch_needs_are_removed(tmp_path):
    job = Job(tmp_path)
    for batch in range(30):
        job.run(batch, 50)
        job.run(batch, 50, 60)
    there = set(os.listdir(tmp_path))
    records = {f"{batch}.json" for batch in range(22, 30)}
    states = {name for batch in range(22, 30) for names in job_states(tmp_path, batch + 1).values() for name in names}
    assert there - {".staged"} == records | states
    assert {name for names in job_states(tmp_path, 23).values() for name in names} <= there


def job_states(place, batch):
    return StateRecords(TableFolder(str(place))).before(batch)


def test_one_process_removes_what_it_left_itself(tmp_path):
    records = StateRecords(TableFolder(str(tmp_path)))
    for batch in range(30):
        store = FileStore(records.folder, records.before(batch).get((0, 0), ()))
        store.put("head", 0, b"x" * 100)
        records.record(batch, {(0, 0): store.write(f"0-0-{batch}")})
    assert len([name for name in os.listdir(tmp_path) if name != ".staged"]) == 16


def test_a_missing_record_is_named(tmp_path):
    job = Job(tmp_path)
    job.run(0, 50)
    with pytest.raises(CheckpointError, match="after batch 1"):
        job.run(2, 50)
