"""A join in the order of time under kill -9, amid its switches from one way to that order to the other.

Nothing is lost, doubled or out of order, and a batch that runs again gives what it gave.
"""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.jobs import Job
from kit.join_pairs import expected
from kit.queries import run_to_end

from upstream.core.feedback.checkpoint_layout import joins_folder
from upstream.core.feedback.reports import JoinReport, read_reports

from . import jobs

DELAY_MS = 100
COSTS = {"filter": "1e6", "sync": "1e-12"}
"""Whatever the rates are: with the first cost results are held, with the second rows are ordered."""

Rows = list[tuple[int, int, int]]


def write_feed(folder: Path, name: str, files: int) -> Rows:
    """Rows (key, time, number), out of order by less than the delay."""
    folder.mkdir(exist_ok=True)
    chance = random.Random(name)
    rows: Rows = []
    for number in range(files):
        new: Rows = []
        for at in range(60):
            when = 10_000 + number * 60 + at - chance.randrange(DELAY_MS - 10)
            new.append((chance.randrange(5), when, len(rows) + at))
        rows += new
        file = folder / f"{name}-{number:03d}.csv"
        file.write_text("\n".join(["k,ms,v", *(",".join(map(str, row)) for row in new)]) + "\n")
        os.utime(file, (1_600_000_000 + number, 1_600_000_000 + number))
    return rows


def journaled(checkpoint: Path) -> list[str]:
    """The way of each batch, as Spark has noted it before the batch."""
    names = sorted((name for name in os.listdir(checkpoint / "offsets") if name.isdigit()), key=int)
    lines = [line for name in names for line in (checkpoint / "offsets" / name).read_text().splitlines()]
    return [json.loads(line)["mode"] for line in lines if line.startswith('{"tick"')]


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("files", "chosen", "later_s"),
    [(6, [1, 2], 0.0), (14, [0, 1, 2, 3, 0, 1, 2, 3], 1.0)],
    ids=["two", "all"],
)
def test_killed_amid_a_switch(spark, tmp_path, files, chosen, later_s):
    feed, out, checkpoint = tmp_path / "feed", tmp_path / "out", tmp_path / "checkpoint"
    left, right = (write_feed(feed, name, files) for name in ("left", "right"))
    out.mkdir()
    job = Job(Path(jobs.__file__), tmp_path / "run.log", ("ordered_join", feed, out, checkpoint))
    chance = random.Random(files)

    def steps(mode: str, since: int) -> list[Callable[[], bool]]:
        """The steps of the batch that changes to a way, of those after the first `since`."""

        def batch() -> int | None:
            modes = journaled(checkpoint) if (checkpoint / "offsets").is_dir() else []
            return next((at for at in range(since, len(modes)) if modes[at] == mode), None)

        def reported() -> bool:
            at, reports = batch(), read_reports(joins_folder(str(checkpoint)), JoinReport)
            return at is not None and any(each.batch_id >= at and each.release == mode for each in reports)

        def is_there(folder: Path, name: str) -> bool:
            at = batch()
            return at is not None and (folder / name.format(at)).exists()

        return [
            lambda: batch() is not None,
            reported,
            lambda: is_there(out, "{:06d}"),
            lambda: is_there(checkpoint / "commits", "{}"),
        ]

    waited = 0
    modes = ("filter", "sync") * len(chosen)  # the next one, too, in which the query comes to its end
    for mode, number in zip(modes, chosen, strict=False):
        since = len(journaled(checkpoint)) if (checkpoint / "offsets").is_dir() else 0
        job.kill_when(steps(mode, since)[number], COSTS[mode], after_s=chance.random() * later_s)
        assert journaled(checkpoint)[-1] == mode
        waited += sum(each.queued + each.held for each in read_reports(joins_folder(str(checkpoint)), JoinReport))
    last = COSTS[modes[len(chosen)]]
    run_to_end(jobs.ordered_join(spark, str(feed), str(out), str(checkpoint), last))

    assert waited > 0, "no batch that was killed had anything to lose"
    changes = journaled(checkpoint)
    assert [mode for at, mode in enumerate(changes) if not at or changes[at - 1] != mode] == [
        "sync", *modes[: len(chosen) + 1]
    ]  # fmt: skip
    assert list(out.glob("*.differs")) == []
    found = [json.loads(line) for file in sorted(out.iterdir()) for line in file.read_text().splitlines()]
    pairs = sorted((one, two) for _, _, one, two in found)
    assert pairs == expected(left, right, lambda one, two: -30 <= two[1] - one[1] <= 40, "inner")
    for shard in {row[0] for row in found}:
        times = [row[1] for row in found if row[0] == shard]
        assert times == sorted(times)
    reports = read_reports(joins_folder(str(checkpoint)), JoinReport)
    assert sum(each.left_rows for each in reports) == len(left)
    assert sum(each.left_kept + each.right_kept + each.queued + each.held + each.late_results for each in reports) == 0
