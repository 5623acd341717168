"""A scenario: how a query is set up, and what happens to it, as a JSON value. Any part of the actions is a scenario,
too, so that it can shrink.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

Action = list[Any]
"""A word and its arguments:

- ``rows, feed, [[key, time, deleted], …]``: they arrive; the first of them brings a feed into being,
- ``batch, {…}``: one trigger, see :class:`~.query.Trigger`,
- ``restart``: the query stops and starts again,
- ``backup`` and ``restore``: of the checkpoint, not of the table,
- ``rewrite, how``: somebody else puts files of the table together,
- ``clock, microseconds``: it jumps,
- ``table, {key: name, …}``: the table that is joined has these rows from now on,
- ``cut, feed, count``: a partition's log loses its tail.
"""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What a run is made of."""

    profile: str
    seed: int
    config: dict[str, Any]
    actions: list[Action]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        return cls(**json.loads(text))

    def with_actions(self, actions: list[Action]) -> Scenario:
        return dataclasses.replace(self, actions=actions)

    def described(self) -> str:
        """For people."""
        lines = [f"profile {self.profile}, seed {self.seed}", "config " + json.dumps(self.config)]
        return "\n".join([*lines, *(f"  {number:2} {json.dumps(each)}" for number, each in enumerate(self.actions))])


def shrunk(scenario: Scenario, fails: Callable[[Scenario], bool], seconds: float = 30.0) -> Scenario:
    """The smallest scenario found in some time that fails, too."""
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
