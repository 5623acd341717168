"""Exactly once, step by step: the sink dies by kill -9 at each of its steps, and no reader sees more or less than whole
batches.
"""

import dataclasses
import os
import random
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kit.tables import read_by_key, read_letters

from upstream.sink.figures.summary import read_summaries
from upstream.sink.maintenance.runner import TableMaintenance
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.sink.spec.steps import CommitStep
from upstream.storage.folder import TableFolder

from .stepwise import BATCHES, BESIDE, SCENARIOS, Runner, Scenario, noted, promised

KILLED = -9
DAY_US = 86_400_000_000
# Many files are decided, staged and handed over in a batch: the second time there is something to lose.
TIMES = {CommitStep.DECIDED: 2, CommitStep.STAGED: 3, CommitStep.HANDED_OVER: 2}

# What these go through at each step, others go through too.
COVERED = {"deletions", "vectors"}
FOUR = (CommitStep.STAGED, CommitStep.MERGED_AGAIN, CommitStep.COMMITTED, CommitStep.REMEMBERED)

scenarios = pytest.mark.parametrize("name", SCENARIOS)
pytestmark = pytest.mark.fault


@pytest.fixture
def run(tmp_path):
    made = Runner(tmp_path / "log")
    yield made
    made.close()


def finish(run: Runner, folder: Path, name: str) -> None:
    """Let the query go to its end, and look at the table and its log."""
    assert run(folder, name) == 0, (folder / "log").read_text()[-4000:]
    scenario = SCENARIOS[name]
    assert read_by_key(folder / "table", "k", "t", "v") == scenario.expected(BATCHES)
    commits = [summary for _, summary in read_summaries(str(folder / "table"))]
    ids = range(commits[0].batch_id, BATCHES)
    assert [each.batch_id for each in commits] == list(ids), "a batch was committed twice, or not"
    assert sum(each.updates for each in commits) == sum(len(scenario.rows(batch)) for batch in ids)
    assert (ids[0] > 0) == ("retention" in scenario.options), "the log's old entries go when they may, and then alone"
    assert commits[-1].low_watermark == (promised(BATCHES - 1) if "eventTime" in scenario.options else None)
    if scenario.options.keys() >= BESIDE.keys():
        measured = DeltaTable(str(folder / "metricsLocation")).to_pyarrow_table().column("batch_id").to_pylist()
        assert sorted(measured) == list(range(BATCHES))
        # What was late or in conflict is there once, as after a run that nobody has killed.
        whole = folder / "whole"
        whole.mkdir()
        assert run(whole, name) == 0
        for reason in ("late", "conflict"):
            found, expected = (
                sorted((row["k"], row["t"], row["v"] or "") for row in read_letters(each / "deadLetters", reason))
                for each in (folder, whole)
            )
            assert found == expected
            assert len(found) > 5


def seen(folder: Path, scenario: Scenario, batches: int) -> None:
    """What any reader sees in between: whole batches, and nothing of what lies about."""
    if (folder / "table" / "_delta_log").exists():
        assert read_by_key(folder / "table", "k", "t", "v") == scenario.expected(batches)
    else:
        assert batches == 0


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        pytest.param("vectors in several tasks", FOUR, id="four"),
        *(pytest.param(name, None, marks=pytest.mark.long if name in COVERED else (), id=name) for name in SCENARIOS),
    ],
)
def test_killed_at_each_step(tmp_path, run, name, steps):
    for batch, step in enumerate(SCENARIOS[name].steps if steps is None else steps):
        assert run(tmp_path, name, [(batch, step, TIMES.get(step, 1))]) == KILLED, (
            step,
            (tmp_path / "log").read_text()[-4000:],
        )
        assert noted(tmp_path) == batch
        seen(tmp_path, SCENARIOS[name], batch + (step >= CommitStep.COMMITTED))
    finish(run, tmp_path, name)


@pytest.mark.parametrize("name", ["vectors in several tasks", "with tables beside it"])
def test_the_first_batch_is_killed_at_each_step_in_turn(tmp_path, run, name):
    """Nothing is there yet, not even the table; and each recovery is killed a step later than the one before."""
    last: CommitStep | None = None
    # No row can be marked as dead before there is one, and after a repeat there is nothing to look after.
    for step in (step for step in CommitStep if step not in (CommitStep.MARKED, CommitStep.COMPACTED)):
        # Once the batch is in the table, a repeat is recognised as such, and goes by other steps.
        if last is None or last < CommitStep.COMMITTED or step >= CommitStep.REMEMBERED:
            assert run(tmp_path, name, [(0, step, TIMES.get(step, 1))]) == KILLED, step
            last = step
        assert noted(tmp_path) == 0
        seen(tmp_path, SCENARIOS[name], int(last >= CommitStep.COMMITTED))
    finish(run, tmp_path, name)


@pytest.mark.parametrize("name", ["deletions in several tasks", "vectors in several tasks"])
def test_what_the_dead_left_is_removed_when_it_is_old(tmp_path, run, name):
    for batch, step in enumerate(
        [CommitStep.STAGED, CommitStep.HANDED_OVER, CommitStep.MERGED_AGAIN, CommitStep.LISTED, CommitStep.COMMITTED]
    ):
        assert run(tmp_path, name, [(batch, step, TIMES.get(step, 1))]) == KILLED
    finish(run, tmp_path, name)
    sink = SCENARIOS[name].sink(tmp_path)
    rows_before, live, now = sink.latest(), sink.live_files(), time.time_ns() // 1000

    def removed(days: int) -> int:
        table = DeltaTable(str(sink.path))
        rules = MaintenanceRules(retention_us=DAY_US)
        return (
            TableMaintenance(TableFolder(str(sink.path)), table, rules, lambda: now + days * DAY_US)
            .run(whole=True)
            .orphans
        )

    named = {file for version in range(sink.version() + 1) for file in sink.live_files(version)}
    orphans = {file for file in sink.files() - named if file.startswith("_upstream_bucket=")}
    assert len(orphans) > 3
    assert removed(days=0) == 0
    assert orphans <= sink.files(), "a batch may be about to commit them"
    for file in sink.path.rglob("*.parquet"):
        os.utime(file, (now / 1e6 - 10 * 86_400,) * 2)
    assert removed(days=3) >= len(orphans)
    assert not orphans & sink.files()
    assert live <= sink.files()
    assert sink.latest() == rows_before == SCENARIOS[name].expected(BATCHES)
    # And deletions are remembered as before: all that was there once changes nothing.
    again = dataclasses.replace(sink, query_id="again")
    for batch in range(BATCHES):
        again.batch(batch, *SCENARIOS[name].tasks(again, batch))
    assert again.latest() == rows_before


def attack(tmp_path: Path, run: Runner, name: str, kills: int, seed: int) -> None:
    """Kill at random steps and at random moments, repeatedly before any progress, and never let the query end."""
    chance = random.Random(seed)
    killed = 0
    while killed < kills:
        begun = noted(tmp_path)
        if begun == BATCHES:
            finish(run, tmp_path, name)
            tmp_path = tmp_path / "next"
            tmp_path.mkdir()
            begun = 0
        batch = min(begun + chance.randrange(3), BATCHES - 1)
        by_step, step = chance.random() < 0.7, chance.choice(SCENARIOS[name].steps)
        # A step that comes once in a batch has no second time, and nobody would die.
        times = chance.randrange(1, 4) if step in TIMES else 1
        code = run(
            tmp_path,
            name,
            [(batch, step, times)] if by_step else [],
            None if by_step else chance.uniform(0, 0.15),
        )
        assert code in (0, KILLED), (tmp_path / "log").read_text()[-4000:]
        killed += code == KILLED
        state = noted(tmp_path)
        if (tmp_path / "table" / "_delta_log").exists():
            summaries = read_summaries(str(tmp_path / "table"))  # the earliest ones may have gone with their entries
            commits = summaries[-1][1].batch_id + 1 if summaries else 0
            assert commits in (state, state + 1)
            seen(tmp_path, SCENARIOS[name], commits)
    finish(run, tmp_path, name)


@pytest.mark.parametrize("name", ["deletions", "vectors", "windows"])
def test_killed_at_random(tmp_path, run, name):
    attack(tmp_path, run, name, 8, 3)


@pytest.mark.long
@pytest.mark.timeout(3600)
@scenarios
def test_killed_at_random_two_hundred_times(tmp_path, run, name):
    attack(tmp_path, run, name, 200, 4)
