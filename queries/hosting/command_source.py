"""The source of commands: starts a batch when the registry has changed, and wakes each shard of the first stage in it.

Its offset is the whole command (:mod:`.commands`). While nothing is due, the offset does not change, and Spark starts
no batch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ...operators.runtime.ticks import TickPlanner, TickSource
from ..registry.journal import Journal
from .commands import TICK, offset_of

__all__ = ["CHECKPOINT", "CommandPlanner", "CommandSource"]

CHECKPOINT = "checkpoint"
"""Option: the query's checkpoint. ``slots`` is the other one."""

_EVERY_S = 1.0
"""Spark asks a source many times a second while nothing comes."""


class CommandSource(TickSource):
    """The ``upstream_query_commands`` format; made by the host of the queries, not by users."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "upstream_query_commands"

    def planner(self) -> TickPlanner:
        """See :class:`~upstream.operators.runtime.ticks.TickSource`."""
        return CommandPlanner(self.options[CHECKPOINT], self.slots())


class CommandPlanner:
    """Follows the journal of the registry.

    Parameters
    ----------
    checkpoint
        The query's.
    slots
        What the shards of the first stage are grouped by.
    """

    def __init__(self, checkpoint: str, slots: tuple[int, ...]) -> None:
        self._checkpoint = checkpoint
        self._slots = slots
        self._journal = Journal(checkpoint)
        self._asked = float("-inf")
        self._known = 0
        self._fixed = False

    def initial(self) -> dict[str, Any]:
        """Return the offset before the first batch: no registry, not even an empty one."""
        return offset_of(self._checkpoint, -1)

    def plan(self, start: dict[str, Any], now_us: int) -> dict[str, Any]:
        """Return the offset of the next command; `start` if none is due."""
        del now_us
        version = self._version()
        if version <= start["version"]:
            return start
        return {**start, **offset_of(self._checkpoint, version, start["tick"])}

    def stop(self) -> None:
        """Follow the journal no further: all batches of this run have the version of now."""
        self._known, self._fixed = self._journal.version(), True

    def messages(self, offset: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return what wakes each shard."""
        del offset
        return [(slot, TICK) for slot in self._slots]

    def _version(self) -> int:
        now = time.monotonic()
        if not self._fixed and now - self._asked >= _EVERY_S:
            self._known, self._asked = self._journal.version(), now
        return self._known
