"""Continuous queries under kill -9, amid changes of the registry: each table has each batch once."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.hosted_job import check_hosted, write_hosted_feed
from kit.jobs import Job

from upstream.sink.spec.steps import CommitStep

from . import hosting_job

SHORT = ("alteration, between commits",)


class Points:
    """The points at which a job is killed: each is true once it is reached.

    Parameters
    ----------
    folder
        Of the test.
    job
        The job to kill.
    """

    def __init__(self, folder: Path, job: Job) -> None:
        self._checkpoint = folder / "checkpoint"
        self._lake = folder / "lake"
        self._job = job
        self._known: dict[Path, dict[str, object]] = {}

    def all(self) -> dict[str, tuple[int, Callable[[], object]]]:
        """The points by name, in the order in which a job comes to them, each with the number of groups of changes that
        the job is to make. Ask anew for each run.
        """
        batch = self._last("commits") + 2
        return {
            "relation": (0, lambda: self._changed("table", "names")),
            "registration": (1, lambda: self._changed("create", "later")),
            "offset": (1, (self._checkpoint / "offsets" / str(batch)).exists),
            "state": (1, lambda: any((self._checkpoint / "upstream-states").glob(f"0-?-{batch}-*"))),
            "record of states": (1, (self._checkpoint / "upstream-states" / f"{batch}.json").exists),
            "alteration, between commits": (2, self._after_step(CommitStep.COMMITTED, "alter", "per_group")),
            "deletion": (2, lambda: self._changed("drop", "another") and self._goes("another")),
            "drop, before commits": (3, self._after_step(CommitStep.NEW, "drop", "gone")),
            "deferred results": (4, self._waits),
            "refresh, between commits": (4, self._after_step(CommitStep.CLEARED, "table", "names", 2)),
            "activation": (5, lambda: self._changed("activate", "later")),
            "failure": (5, lambda: self._changed("fail", "failing")),
        }

    def _last(self, folder: str) -> int:
        return max((int(file.name) for file in (self._checkpoint / folder).glob("[0-9]*")), default=-1)

    def _changed(self, kind: str, name: str, times: int = 1) -> bool:
        """Whether the journal has a change so many times."""
        for file in (self._checkpoint / "queries" / "changes").glob("*.json"):
            if file not in self._known:
                self._known[file] = json.loads(file.read_text())
        return sum(each["kind"] == kind and each["name"] == name for each in self._known.values()) >= times

    def _waits(self) -> bool:
        report = self._checkpoint / "queries" / "report.json"
        queries = json.loads(report.read_text())["queries"].values() if report.exists() else ()
        return any(each["waiting_since_us"] is not None for each in queries)

    def _goes(self, name: str) -> bool:
        log = self._lake / name / "_delta_log"
        return (log / "_upstream_dropped").exists() or not log.exists()

    def _after_step(self, step: CommitStep, kind: str, name: str, times: int = 1) -> Callable[[], bool]:
        """The next step of this kind beside the driver, after a change: the job stays there."""
        armed = False

        def reached() -> bool:
            nonlocal armed
            if not armed and self._changed(kind, name, times):
                armed = True
                self._job.arm(step)
            return self._job.reached(step)

        return reached


@pytest.mark.fault
@pytest.mark.parametrize(
    ("files", "chosen"),
    [(4, SHORT), pytest.param(24, None, marks=[pytest.mark.long, pytest.mark.timeout(2400)])],
    ids=["some", "all"],
)
def test_killed_amid_changes(tmp_path, files, chosen):
    feed, lake, checkpoint = tmp_path / "feed", tmp_path / "lake", tmp_path / "checkpoint"
    rows = write_hosted_feed(feed, files)
    job = Job(Path(hosting_job.__file__), tmp_path / "run.log", (feed, lake, checkpoint))
    points = Points(tmp_path, job)
    for name in points.all() if chosen is None else chosen:
        groups, reached = points.all()[name]
        job.kill_when(reached, "local[2]", str(groups))
    job.finish()
    check_hosted(lake, checkpoint, rows)
