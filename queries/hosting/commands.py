"""What a batch is to do beside taking rows: the version of the registry that is in force, and which results it puts
out.

All of it is in the offset of the command source, which Spark journals before the batch runs. So each task of the batch
reads the same command, and a batch that runs again does the same.
"""

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
"""The control of the row that calls a shard of the first stage though nothing else comes to it. What it is to do is in
the batch's command.
"""


@dataclasses.dataclass(frozen=True)
class Command:
    """What one batch is to do.

    Attributes
    ----------
    batch : int
        Its number.
    version : int
        Of the registry: the last change that is in force.
    tick : int
        How often waiting results have been called for so far.
    served : frozenset of int or None
        The queries, by their numbers, whose results this batch puts out; None for all.
    """

    batch: int
    version: int
    tick: int = 0
    served: frozenset[int] | None = None


def offset_of(checkpoint: str, version: int, tick: int = 0, served: frozenset[int] | None = None) -> dict[str, Any]:
    """Return the offset that carries a command."""
    return {
        _CHECKPOINT: checkpoint,
        "version": version,
        "tick": tick,
        "served": None if served is None else sorted(served),
    }


def command_of_batch(checkpoint: str, batch: int) -> Command:
    """Return the command with which a batch was planned.

    Parameters
    ----------
    checkpoint
        The query's. It may have been moved since the batch was planned.
    batch
        Its number.

    Raises
    ------
    CheckpointError
        The checkpoint has no such batch, or the batch has no command.
    """
    try:
        offsets = journaled_offsets(folder_at(checkpoint_location(checkpoint)), batch)
    except FileNotFoundError as error:
        raise _unknown(f"the checkpoint {checkpoint} has no offsets of batch {batch}") from error
    # By its name and not by the place in it: that is where the checkpoint was when the batch was planned.
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
    """Returns the command of the batch in whose task it is called.

    Attributes
    ----------
    checkpoint : str
        The query's.
    """

    checkpoint: str

    def __call__(self) -> Command:
        """Return the command."""
        return command_of_batch(self.checkpoint, batch_id())
