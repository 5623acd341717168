"""Continuous queries under kill -9, amid changes of the registry: each table has each batch once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kit.hosted_job import check_hosted, write_hosted_feed
from kit.jobs import Job

from . import hosting_job


@pytest.mark.fault
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("files", "chosen"), [(4, [1]), pytest.param(12, range(8), marks=pytest.mark.long)], ids=["one", "all"]
)
def test_killed_amid_changes(tmp_path: Path, files: int, chosen: Sequence[int]) -> None:
    feed, lake, checkpoint = tmp_path / "feed", tmp_path / "lake", tmp_path / "checkpoint"
    rows = write_hosted_feed(feed, files)
    job = Job(Path(hosting_job.__file__), tmp_path / "run.log", (feed, lake, checkpoint))

    def last(folder: str) -> int:
        return max((int(file.name) for file in (checkpoint / folder).glob("[0-9]*")), default=-1)

    def journaled(version: int) -> Callable[[], bool]:
        return (checkpoint / "queries" / "changes" / f"{version:020d}.json").exists

    def steps() -> list[Callable[[], bool]]:
        batch = last("commits") + 2
        log = lake / "newest" / "_delta_log"
        commits = len(list(log.glob("*.json")))
        return [
            journaled(4),  # a registration
            journaled(6),  # an alteration, with a registration before it that has no batch yet
            journaled(7),  # a drop
            journaled(9),  # an activation, with the deactivation before it
            (checkpoint / "offsets" / str(batch)).exists,
            lambda: any((checkpoint / "state").rglob(f"{batch + 1}[._]*")),
            lambda: len(list(log.glob("*.json"))) > commits + 1,
            journaled(11),  # a failure, which a batch has journaled
        ]

    for number in chosen:
        job.kill_when(steps()[number])
    job.finish()
    check_hosted(lake, checkpoint, rows)
