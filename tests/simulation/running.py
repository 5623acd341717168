"""Runs a scenario: builds its query, does its actions, checks after each batch, and at the end."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from . import machine  # first of all: it replaces the clock  # isort: skip
from kit import golden

from upstream.conf.errors import CheckpointError, TableError
from upstream.sink.maintenance import compact

from . import building
from .checks import Checks
from .hosted_running import HostedRun
from .inputs import Inputs
from .join_stages import Names, change_table
from .machine import MACHINE
from .query import Query
from .scenario import Action, Scenario

_WEAR = compact.WORTH, compact.FILE
_ROOM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def run(scenario: Scenario) -> dict[str, Any]:
    """Run it and return what its tables hold; raises an AssertionError if something comes out that must not, and what
    the product raises.
    """
    folder = Path(tempfile.mkdtemp(prefix="simulated-", dir=_ROOM))
    MACHINE.begin(scenario.seed)
    # Of every second scenario buckets wear as if they were large; the others keep many files and dead rows.
    compact.WORTH, compact.FILE = (0, 1) if scenario.seed % 2 else _WEAR
    try:
        return HostedRun(scenario, folder).all() if scenario.profile == "hosted" else _run_query(scenario, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        MACHINE.end()


def _run_query(scenario: Scenario, folder: Path) -> dict[str, Any]:
    inputs = Inputs(folder, scenario.config["source"], stamped=scenario.config["progress"] == "arrival")
    for word, *given in scenario.actions:
        if word == "rows":
            name = inputs.name(given[0])
            inputs.totals[name] = inputs.totals.get(name, 0) + len(given[1])
    if "ends" in scenario.config:
        inputs.partitions(scenario.config["feeds"])  # of one that nobody knows no end is known
    try:
        with contextlib.suppress(building.RefusedError):
            run = _Run(scenario, folder, inputs)
            run.all()
            return run.answers()
        return {"refused": True}
    finally:
        inputs.close()


class _Run:
    def __init__(self, scenario: Scenario, folder: Path, inputs: Inputs) -> None:
        self.config, self.actions, self.inputs = scenario.config, scenario.actions, inputs
        self.sink = building.sink_of(self.config, folder)
        self.tables: list[Names] = []
        if "table" in self.config:
            self.change_table(folder, self.config["table"])
        self.query = Query(
            folder,
            building.source_options(self.config, inputs, self.actions),
            building.source_schema(self.config),
            lambda checkpoint: building.stages_of(self.config, checkpoint),
            self.sink,
            scenario.seed,
        )
        self.checks = Checks(self.config, inputs, self.query, self.sink, self.tables)
        self.restored = False

    def change_table(self, folder: Path, names: Names) -> None:
        """Write the next version of the table that is joined."""
        change_table(folder / "checkpoint", names)
        self.tables.append(names)

    def all(self) -> None:
        for action in self.actions:
            self.do(action)
        self.drain()

    def do(self, action: Action) -> None:
        word, *given = action
        if word == "rows":
            self.inputs.add(given[0], given[1])
        elif word == "batch":
            self.batch(**given[0])
        elif word == "restart":
            self.query.start()
        elif word == "clock":
            MACHINE.pass_time(given[0])
        elif word == "rewrite":
            self.sink.rewrite(given[0])
        elif word == "table":
            self.change_table(self.query.checkpoint.parent, given[0])
        elif word == "backup":
            self.query.backup()
        elif word == "restore":
            self.restored = self.query.swap()
        elif word == "cut":
            if not self.query.pending:
                read = self.checks.consumed().get(self.inputs.name(given[0]), [])
                self.inputs.cut(*given, len(read))
        else:
            raise AssertionError(word)

    def batch(
        self, limit: int | None = None, dies: tuple[str, int] | None = None, twins: float = 0.0,
        budget: int | None = None, mode: str | None = None,
    ) -> bool:  # fmt: skip
        """One trigger; whether there was anything to do."""
        MACHINE.pass_time(3_000_000)
        ticks = [budget, MACHINE.now_us, mode]
        before = self.query.record.commits
        done: list[bool] = []
        again: list[bool] = []

        def trigger() -> None:
            try:
                done.append(self.query.trigger(limit, ticks, twins))
            except (CheckpointError, TableError):
                if not self.restored:
                    raise
                # As it must be: an older checkpoint does not fit the table. Whoever put it there takes it back.
                self.restored = not self.query.swap()
                self.sink.forgive()
                done.append(True)
                again.append(True)

        if dies is not None:
            if MACHINE.dies_at(dies[0], dies[1], trigger):
                self.sink.forgive()
                self.query.start()
                if self.query.record.commits > before:
                    self.checks.after()
                return True
        else:
            trigger()
        if done[0] and not again:
            self.checks.after()
        return done[0]

    def drain(self) -> None:
        """Until there is nothing more to do; then everything must have come out."""
        for _ in range(60):
            if not self.batch():
                break
        else:
            raise AssertionError("there is always something more to do")
        self.checks.on_end()

    def answers(self) -> dict[str, str]:
        """What the last operator has given, and what the table holds."""
        found: dict[str, str] = {}
        if self.config["stages"]:
            found["results"] = golden.digest(map(_answer, self.checks.given()))
        if self.config["sink"]["kind"] != "none":
            found["table"] = golden.digest(map(_answer, self.sink.rows()))
        return found


def _answer(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a row what depends on the order of arrival."""
    deleted = {"deleted": True} if (row.get("_upstream") or {}).get("deleted") else {}
    return {name: value for name, value in row.items() if not golden.APART.fullmatch(name)} | deleted


assert machine
