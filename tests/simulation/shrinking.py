"""A failing scenario made small: actions are left out as long as it still fails, then what triggers and rows have in
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from .scenario import Action, Scenario


def shrunk(scenario: Scenario, fails: Callable[[Scenario], bool], seconds: float = 30.0) -> Scenario:
    """The smallest scenario found in some time that fails, too.

    Parameters
    ----------
    scenario
        That fails.
    fails
        Runs one.
    seconds
        How long to look.
    """
    end = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for actions in _smaller(scenario.actions):
            if time.monotonic() > end:
                return scenario
            tried = scenario.with_actions(actions)
            if _honest(tried) and fails(tried):
                scenario, smaller = tried, True
                break
    return scenario


def _smaller(actions: list[Action]) -> Iterator[list[Action]]:
    """Actions with something left out: half of them, a quarter, …, one; then parts of one."""
    size = len(actions) // 2
    while size:
        for at in range(0, len(actions), size):
            yield actions[:at] + actions[at + size :]
        size //= 2
    for at, (word, *given) in enumerate(actions):
        before, after = actions[:at], actions[at + 1 :]
        if word == "rows" and len(given[1]) > 1:
            for number in range(len(given[1])):
                yield [*before, [word, given[0], given[1][:number] + given[1][number + 1 :]], *after]
        if word == "batch":
            for name in given[0]:
                yield [*before, [word, {each: value for each, value in given[0].items() if each != name}], *after]


def _honest(scenario: Scenario) -> bool:
    """Whether no feed begins before what others had shown by then, if nobody is to be deceived."""
    first: set[int] = set()
    shown = 0
    for word, *given in scenario.actions:
        if word != "rows" or not given[1]:
            continue
        times = [row[1] for row in given[1]]
        if given[0] not in first and times[0] < shown and scenario.config["honest"]:
            return False
        first.add(given[0])
        shown = max(shown, *times)
    return True
