"""A scenario: how a query is set up, and what happens to it, as a JSON value. Any part of the actions is a scenario,
too, so that it can shrink.
"""

from __future__ import annotations

import dataclasses
import json
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
    """What a run is made of.

    Attributes
    ----------
    profile : str
        What it is about.
    seed : int
        It was made from, and all that chance decides while it runs.
    config : mapping
        Of the source, the operators and the sink.
    actions : list
    """

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
