"""Runs a scenario of hosted queries: does its actions, checks after each batch, and at the end."""

import contextlib
from pathlib import Path
from typing import Any

from upstream.conf.errors import OptionError, QueryRefusedError

from .hosted_checks import HostedChecks
from .hosted_inputs import HostedInputs
from .hosted_process import HostProcess, forget_hosting
from .machine import MACHINE
from .scenario import Action, Scenario
from .stages import MismatchError


class HostedRun:
    """One scenario."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        forget_hosting()
        self._actions = scenario.actions
        self._inputs = HostedInputs()
        self._process = HostProcess(folder, scenario.config["shards"], self._inputs, scenario.seed)
        self._checks = HostedChecks(self._process, self._inputs)

    def all(self) -> dict[str, Any]:
        """Do all actions, then whatever is left to do; what the tables hold before their queries are dropped."""
        for action in self._actions:
            self._do(action)
        self._drain()
        self._checks.on_end()
        answers = self._checks.answers()
        for name in list(self._process.registry().queries):
            self._process.change({"kind": "drop", "name": name})
        self._drain()
        if self._process.commits and (left := self._process.state_keys() - {str(("head", 0))}):
            raise MismatchError(f"the shards keep {sorted(left)} of queries that were dropped")
        return answers

    def _do(self, action: Action) -> None:
        word, *given = action
        if word == "rows":
            self._inputs.add(*given)
        elif word == "promise":
            self._inputs.promise(*given)
        elif word == "change":
            # Refused, as it must be, where what it needs was left out or has failed.
            with contextlib.suppress(OptionError, QueryRefusedError):
                self._process.change(given[0])
        elif word == "models":
            self._process.write_models(given[0])
        elif word == "refresh":
            # Refused if a query does not fit, which another test has.
            self._process.refresh()
        elif word == "restart":
            self._process.start(forgets=given[0])
        elif word == "batch":
            self._batch(**given[0])
        else:
            raise AssertionError(word)

    def _batch(self, dies: tuple[str, int] | None = None, forgets: bool = True, **given: Any) -> bool:
        """One trigger; whether there was anything to do."""
        MACHINE.pass_time(3_000_000)
        before = self._process.commits
        done: list[bool] = []

        def trigger() -> Any:
            done.append(self._process.trigger(**given))

        if dies is None:
            trigger()
        elif MACHINE.dies_at(dies[0], dies[1], trigger):
            self._checks.forgive()
            self._process.start(forgets=forgets)
            done.append(True)
        if self._process.commits > before:
            self._checks.after()
        return done[0]

    def _drain(self) -> None:
        # Results that had to wait leave with the next batch that serves all: a change of the registry starts one.
        if self._process.registry().version:
            name, text = f"end{self._process.commits}", "SELECT sym FROM trade [NOW]"
            self._process.change({"kind": "view", "name": name, "text": text})
        for _ in range(20):
            if not self._batch():
                return
        raise AssertionError("there is always something more to do")
