"""A join under kill -9, with rows of both sides kept: each pair and each row without a partner is there once."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kit.jobs import Job
from kit.join_pairs import expected
from kit.tables import read_frame

from upstream.core.feedback.checkpoint_layout import joins_folder
from upstream.core.feedback.join_reports import JoinReport
from upstream.core.feedback.report_files import read_reports

JOB = Path(__file__).with_name("join_job.py")
DELAY_MS = 100

Rows = list[tuple[int, int, int]]


def write_feed(folder: Path, name: str, files: int) -> Rows:
    """Rows (key, time, number), out of order by less than the delay."""
    folder.mkdir(exist_ok=True)
    chance = random.Random(name)
    rows: Rows = []
    for number in range(files):
        lines: list[str] = []
        for at in range(80):
            row = (chance.randrange(5), 10_000 + number * 60 + at // 2 - chance.randrange(DELAY_MS - 10), len(rows))
            rows.append(row)
            lines.append(",".join(map(str, row)))
        file = folder / f"{name}-{number:03d}.csv"
        file.write_text("\n".join(["k,ms,v", *lines]) + "\n")
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
    return rows


@pytest.mark.fault
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("files", "chosen"), [(4, [2]), pytest.param(10, range(5), marks=pytest.mark.long)], ids=["one", "all"]
)
def test_killed_in_steps_of_a_batch(tmp_path: Path, files: int, chosen: Sequence[int]) -> None:
    feed, run = tmp_path / "feed", tmp_path / "run"
    left, right = (write_feed(feed, name, files) for name in ("left", "right"))
    run.mkdir()
    checkpoint, table = run / "checkpoint", run / "table"
    job = Job(JOB, tmp_path / "run.log", (feed, table, checkpoint))

    def steps(batch: int) -> list[Callable[[], bool]]:
        return [
            (checkpoint / "offsets" / str(batch)).exists,
            lambda: any(each.batch_id >= batch for each in read_reports(joins_folder(str(checkpoint)), JoinReport)),
            lambda: any((checkpoint / "state").rglob(f"{batch + 1}[._]*")),
            (table / "_delta_log" / f"{batch + 1:020d}.json").exists,
            (checkpoint / "commits" / str(batch)).exists,
        ]

    for place, number in enumerate(chosen, start=1):
        job.kill_when(steps(min(2 * place, files - 2))[number])
        kept = read_reports(joins_folder(str(checkpoint)), JoinReport)
        assert sum(each.left_kept for each in kept) > 0
        assert sum(each.right_kept for each in kept) > 0
    job.finish()

    found = read_frame(table).select("v", "v_right").rows()
    pairs = sorted((-1 if one is None else one, -1 if two is None else two) for one, two in found)
    assert pairs == expected(left, right, lambda one, two: -30 <= two[1] - one[1] <= 40, "full")
    reports = read_reports(joins_folder(str(checkpoint)), JoinReport)
    assert sum(each.left_rows for each in reports) == len(left)
    assert sum(each.left_kept + each.right_kept for each in reports) == 0
