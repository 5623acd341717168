"""Windows under kill -9: whatever dies in whichever step of a batch, results and late output are those of a run that nobody killed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from .killing import kill_session, start

JOB = Path(__file__).with_name("windows_job.py")
FIRST_MS = 1_700_000_000_000
SPAN_MS = 400
DELAY_MS, RANGE_MS, SLIDE_MS = 500, 2000, 300

Step = Callable[[Path, int], bool]


def write_feed(folder: Path, files: int) -> pl.DataFrame:
    """Rows mostly within the delay, some within the allowed lateness, a few beyond it."""
    folder.mkdir()
    chance = random.Random(files)
    rows: list[tuple[int, int, float]] = []
    for number in range(files):
        begin = len(rows)
        for at in range(SPAN_MS):
            behind = chance.randrange(3000 if chance.random() < 0.03 and number > 8 else DELAY_MS - 50)
            rows.append((chance.randrange(30), FIRST_MS + number * SPAN_MS + at - behind, len(rows) / 2))
        lines = [",".join(map(str, row)) for row in rows[begin:]]
        (folder / f"part-{number:03d}.csv").write_text("\n".join(["k,ms,v", *lines]) + "\n")
    return pl.DataFrame(rows, schema=["k", "ms", "v"], orient="row")


def reported(run: Path, batch: int) -> bool:
    """A shard has computed its part of the batch and is about to hand its state to Spark."""
    for report in (run / "checkpoint" / "upstream-windows" / "0").glob("shard-*.json"):
        if json.loads(report.read_text())["batch_id"] >= batch:
            return True
    return False


# Version 0 of the table is its making; version 0 of the state is empty.
STEPS: dict[str, Step] = {
    "planned": lambda run, batch: (run / "checkpoint" / "offsets" / str(batch)).exists(),
    "computed": reported,
    "state written": lambda run, batch: any((run / "checkpoint" / "state").rglob(f"{batch + 1}[._]*")),
    "in the table": lambda run, batch: (run / "table" / "_delta_log" / f"{batch + 1:020d}.json").exists(),
    "committed": lambda run, batch: (run / "checkpoint" / "commits" / str(batch)).exists(),
}


def arguments(feed: Path, run: Path) -> list[str]:
    run.mkdir(exist_ok=True)
    return [str(feed), *(str(run / name) for name in ("table", "checkpoint", "late"))]


def finish(feed: Path, run: Path) -> None:
    log = run.parent / f"{run.name}.log"
    output, _ = start(JOB, *arguments(feed, run), log=log).communicate(timeout=900)
    assert "finished" in output, log.read_text()[-4000:]


def kill_at(feed: Path, run: Path, reached: Callable[[], bool], wait_s: float = 0.0) -> None:
    """Start the job, and kill it at some point."""
    log = run.parent / f"{run.name}.log"
    process = start(JOB, *arguments(feed, run), log=log)
    try:
        while not reached():
            assert process.poll() is None, f"the job has ended by itself:\n{log.read_text()[-4000:]}"
            time.sleep(0.001)
        time.sleep(wait_s)
    finally:
        kill_session(process)


def last_commit(run: Path) -> int:
    return max((int(file.name) for file in (run / "checkpoint" / "commits").glob("[0-9]*")), default=-1)


def results(run: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The table of every window, and the late rows, in an order of their own."""
    table = pl.from_arrow(DeltaTable(str(run / "table")).to_pyarrow_table())
    assert isinstance(table, pl.DataFrame)
    late = pl.concat([pl.read_parquet(file) for file in sorted((run / "late").glob("late-*.parquet"))])
    return table.drop("_upstream_seq").sort("k", "window_id"), late.select("k", "ms", "v").sort("v")


def windows_of(rows: pl.DataFrame, bound_ms: int) -> pl.DataFrame:
    """How many rows are in each window that is complete at the last low-watermark."""
    ids = pl.int_ranges(pl.col("ms") // SLIDE_MS, (pl.col("ms") + RANGE_MS) // SLIDE_MS).alias("window_id")
    placed = rows.with_columns(ids).explode("window_id")
    return placed.filter((pl.col("window_id") + 1) * SLIDE_MS <= bound_ms).group_by("k", "window_id").agg(pl.len())


def attack(tmp_path: Path, files: int, steps: Sequence[str], kills: int) -> None:
    """Kill a run once in each of some steps, each in a later batch, then some times at random."""
    feed, whole, killed = (tmp_path / name for name in ("feed", "whole", "killed"))
    rows = write_feed(feed, files)
    finish(feed, whole)
    chance = random.Random(kills)
    for number, step in enumerate(steps):
        batch = 5 + 2 * number
        kill_at(feed, killed, lambda step=step, batch=batch: STEPS[step](killed, batch))
        assert last_commit(killed) <= batch + 1, "killed too late to mean anything"
    for _ in range(kills):
        at = last_commit(killed)
        assert at < files - 2, "there was nothing left to kill"
        kill_at(feed, killed, lambda at=at: last_commit(killed) > at, chance.uniform(0, 1.0))
    finish(feed, killed)

    (table, late), (other, other_late) = results(whole), results(killed)
    assert other.equals(table)
    assert other_late.equals(late)
    # The same files, and nothing beside them that a killed writer left.
    assert [file.name for file in sorted((killed / "late").rglob("*"))] == [
        file.name for file in sorted((whole / "late").rglob("*"))
    ]
    # And both are right: each window has all its rows, but for late ones, of which none is late twice.
    assert late.height > 10
    assert late.n_unique("v") == late.height
    assert late.join(rows, on=["k", "ms", "v"]).height == late.height
    assert table.select("k", "window_id").n_unique() == table.height
    bound = int(rows["ms"].to_numpy().max()) - DELAY_MS
    most = windows_of(rows, bound)
    least = windows_of(rows.join(late, on="v", how="anti"), bound)
    found = table.join(most, on=["k", "window_id"]).join(least, on=["k", "window_id"], how="left", suffix="_least")
    assert found.height == table.height
    assert least.join(table, on=["k", "window_id"], how="anti").height == 0, "a window is lost"
    assert found.select(
        (pl.col("n") <= pl.col("len")).all() & (pl.col("n") >= pl.col("len_least").fill_null(0)).all()
    ).item()
    assert found.filter(pl.col("n") > pl.col("len_least")).height > 0, "no late row has counted where it still could"


@pytest.mark.fault
@pytest.mark.timeout(1200)
def test_killed_with_state_written_with_the_table_written_and_at_random(tmp_path: Path) -> None:
    attack(tmp_path, 16, ["state written", "in the table"], 1)


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(2400)
def test_killed_in_every_step_of_a_batch_and_at_random(tmp_path: Path) -> None:
    attack(tmp_path, 40, list(STEPS), 3)


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_fifty_random_kills_with_windows_pending(tmp_path: Path) -> None:
    attack(tmp_path, 300, [], 50)
