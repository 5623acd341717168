"""Commands of batches: the version of the registry in force, and the queries whose results a batch emits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...conf.errors import CheckpointError
from ...conf.locations import checkpoint_location
from ...core.feedback.journaled_offsets import journaled_offsets
from ...operators.runtime.shard_processor import batch_id
from ...storage.folder import folder_at

__all__ = ["TICK", "Command", "CommandOfTask", "command_of_batch", "offset_of"]

_CHECKPOINT = "upstream_queries"

TICK = '{"kind":"tick"}'
"""The control that makes a shard of the first stage run without rows. Its instructions are in the batch's command."""


@dataclasses.dataclass(frozen=True)
class Command:
    """The instructions for one batch.

    Spark journals the command, as the command source's offset, before the batch runs. So all tasks, and each rerun of
    the batch, read the same command.
    """

    batch: int
    version: int  # of the registry: the last change in force
    tick: int = 0  # number of requests for waiting results so far
    served: frozenset[int] | None = None  # incarnations whose results this batch emits; None for all


def offset_of(checkpoint: str, version: int, tick: int = 0, served: frozenset[int] | None = None) -> dict[str, Any]:
    """Return the offset that carries a command."""
    return {
        _CHECKPOINT: checkpoint,
        "version": version,
        "tick": tick,
        "served": None if served is None else sorted(served),
    }


def command_of_batch(checkpoint: str, batch: int) -> Command:
    """Return the command with which a batch was planned, even if the checkpoint has moved since.

    Raises CheckpointError if the batch is not in the checkpoint or has no command.
    """
    try:
        offsets = journaled_offsets(folder_at(checkpoint_location(checkpoint)), batch)
    except FileNotFoundError as error:
        raise _unknown(f"the checkpoint {checkpoint} has no offsets of batch {batch}") from error
    # Found by the option's name, not by the checkpoint's path, which may have changed since the batch was planned.
    found = [offset for offset in offsets if isinstance(offset, dict) and _CHECKPOINT in offset]
    if len(found) != 1:
        raise _unknown(f"batch {batch} of the checkpoint {checkpoint} was planned with {len(found)} commands")
    return _command(batch, found[0])


def _command(batch: int, offset: Mapping[str, Any]) -> Command:
    served = offset["served"]
    return Command(batch, int(offset["version"]), int(offset["tick"]), None if served is None else frozenset(served))


def _unknown(problem: str) -> CheckpointError:
    return CheckpointError(
        problem,
        expected="one command for the continuous queries in the offsets of each batch",
        hint="start the job with queries.start(…), with micro-batches and without asynchronous progress tracking",
    )


@dataclasses.dataclass(frozen=True)
class CommandOfTask:
    """Returns the command of the batch whose task calls it."""

    checkpoint: str

    def __call__(self) -> Command:
        return command_of_batch(self.checkpoint, batch_id())
