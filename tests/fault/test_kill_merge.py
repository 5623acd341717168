"""Inputs of Spark's own and a merge under kill -9: rows that are held, and those that wait for their turn, are those of
a run that nobody killed.
"""

import os
import random
from pathlib import Path

import polars as pl
import pytest
from kit.jobs import Job
from kit.tables import read_frame, read_letters

from upstream.core.feedback.checkpoint_layout import feeds_folder, operator_folder
from upstream.core.feedback.reports import ReorderReport, read_feed_reports, read_reports
from upstream.sink.spec.steps import CommitStep

from . import jobs

# In a task before and after its part; before the commit, with all state written; after it; before Spark's own commit.
STEPS = (CommitStep.DECIDED, CommitStep.HANDED_OVER, CommitStep.LOOKED, CommitStep.COMMITTED, CommitStep.MEASURED)
DELAY_MS = 100

Rows = list[tuple[str, int, int, str]]


def write_feeds(folder: Path, files: int) -> Rows:
    """Rows (input, key, time, value) of both, which often meet, some of them too late."""
    folder.mkdir()
    chance = random.Random(files)
    found: Rows = []
    for name in ("left", "right"):
        for number in range(files):
            lines: list[str] = []
            for at in range(100):
                late = 300 if number > 2 and chance.random() < 0.02 else chance.randrange(DELAY_MS - 10)
                row = (chance.randrange(3), 10_000 + number * 50 + at // 2 - late, f"{name}-{number * 100 + at}")
                found.append((name, *row))
                lines.append(",".join(map(str, row)))
            file = folder / f"{name}-{number:03d}.csv"
            file.write_text("\n".join(["k,ms,v", *lines]) + "\n")
            os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
    return found


def job_of(feed: Path, run: Path) -> Job:
    run.mkdir()
    places = (run / name for name in ("table", "checkpoint"))
    return Job(Path(jobs.__file__), run.parent / f"{run.name}.log", ("merge", feed, *places))


def outcome(run: Path) -> tuple[pl.DataFrame, dict[str, list[str]], list[object]]:
    """The table, the rows put aside by operator or input, and the counts of all shards, the size of state apart."""
    table = read_frame(run / "table")
    late: dict[str, list[str]] = {}
    checkpoint = str(run / "checkpoint")
    for row in sorted(read_letters(f"{checkpoint}/dead_letters", "late"), key=lambda row: row["v"]):
        late.setdefault(row["origin"].removeprefix(f"{checkpoint}/"), []).append(row["v"])
    counts: list[object] = [
        (
            each.rows,
            each.released,
            each.held,
            each.due,
            each.repeats,
            each.late,
            each.refused,
            each.bounds,
            each.promised,
        )
        for each in read_reports(operator_folder(checkpoint, "reorder"), ReorderReport)
    ]
    for name in ("left", "right"):
        counts += [(each.bound, each.rows, each.late) for each in read_feed_reports(feeds_folder(checkpoint, name))]
    return table.drop("_upstream_seq").sort("k", "ms", "v"), late, counts


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("files", "chosen"), [(5, [CommitStep.COMMITTED]), (12, STEPS)], ids=["one", "all"])
def test_killed_in_steps_of_a_batch(tmp_path, files, chosen):
    feed, whole, killed = (tmp_path / name for name in ("feed", "whole", "killed"))
    rows = write_feeds(feed, files)
    job_of(feed, whole).finish()
    job = job_of(feed, killed)

    for place, step in enumerate(chosen, start=1):
        job.kill_at(step, batch=2 * place)
    job.finish()

    (table, late, counts), (other, other_late, other_counts) = outcome(whole), outcome(killed)
    assert other.equals(table)
    assert other_late == late
    assert other_counts == counts

    # And both are right. What was refused is late; all else is in the table, unless the other input has its key and
    # time, or it is still held.
    assert late.keys() == {"left", "right", "upstream-reorder/0"}
    refused = set(late["upstream-reorder/0"])
    assert len(refused) > 3
    bound = min(max(ms for name, _, ms, _ in rows if name == each) for each in ("left", "right")) - DELAY_MS
    right = {(k, ms) for name, k, ms, v in rows if name == "right" and v not in refused}
    expected = [
        (k, ms, v)
        for name, k, ms, v in rows
        if v not in refused and ms < bound and (name == "right" or (k, ms) not in right)
    ]
    assert sorted(table.select("k", "ms", "v").iter_rows()) == sorted(expected)
