"""The stages in Spark's tasks: the files of each shard's state, and the record of those in force after each batch."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from ..conf.errors import CheckpointError
from ..core.feedback.reports import write_value
from ..operators.runtime.pack import PACKED
from ..operators.state.file_store import FileStore
from ..storage.folder import TableFolder
from .messages import Command, PackedRow
from .output import OutputControl
from .stages import REACHES, Stage

States = Mapping[tuple[int, int], Sequence[str]]
"""The files of each shard's state, oldest first, by stage and shard."""

_KEPT = 8
"""Batches whose files stay. A repeated batch needs those of the batch before it."""


@dataclasses.dataclass(frozen=True)
class StageStep:
    """The step from the messages for a stage's shards to those that the shards send.

    `stage` returns the stage for a command, and `folder` has the files of states. The step changes none of the files
    that are in force, so a task may run twice.
    """

    commands: Callable[[], Command]
    stage: Callable[[Command], Stage]
    slots: tuple[int, ...]
    folder: TableFolder

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run each shard that was sent something on all that was sent to it; yield also the files of its state."""
        sent: dict[int, list[PackedRow]] = {}
        for batch in batches:
            for slot, frame, control in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                sent.setdefault(slot, []).append((slot, frame, control))
        if not sent:
            return
        command = self.commands()
        stage, before = self.stage(command), StateRecords(self.folder).before(command.batch)
        for slot in sorted(sent):
            shard, number = self.slots.index(slot), stage.number
            store = FileStore(self.folder, before.get((number, shard), ()))
            left = stage.batch(shard, store, sent.pop(slot))
            yield from () if left is None else left.to_batches()
            files = store.write(f"{number}-{shard}-{command.batch}")
            state = OutputControl("state", stage=number, shard=shard, files=files)
            yield pa.record_batch([[self.slots[REACHES]], pa.nulls(1, pa.binary()), [state.control()]], schema=PACKED)


class StateRecords:
    """The records of the states' files, one for each batch, written once the stages have run.

    A batch begins with the states of the batch before it, whichever attempt ran last. Raises CheckpointError if these
    are not on record.
    """

    def __init__(self, folder: TableFolder) -> None:
        self.folder = folder
        self._files: dict[int, frozenset[str]] = {}
        self._removes_others = True

    def before(self, batch: int) -> States:
        """Return the states before a batch."""
        if batch == 0:
            return {}
        try:
            found = json.loads(self.folder.read(_name(batch - 1)))
        except FileNotFoundError as error:
            raise CheckpointError(
                f"the checkpoint has no record of the states after batch {batch - 1} in {self.folder.location}",
                expected="the record that the job wrote in that batch",
                hint="restore the checkpoint, or start with a new checkpoint location",
            ) from error
        return {(stage, shard): files for stage, shard, files in found}

    def record(self, batch: int, states: States) -> None:
        """Record the states after a batch, and remove the files that no kept state has."""
        value = [[stage, shard, list(files)] for (stage, shard), files in sorted(states.items())]
        write_value(self.folder, _name(batch), value)
        self._files[batch] = frozenset(name for files in states.values() for name in files)
        if self._removes_others:
            self._remove_others(batch)
        old = [number for number in self._files if number <= batch - _KEPT]
        gone = frozenset[str]().union(*(self._files.pop(number) for number in old))
        self.folder.remove([*map(_name, old), *gone.difference(*self._files.values())])

    def _remove_others(self, batch: int) -> None:
        """Remove what earlier processes have left: files without a record, and records after this batch."""
        there = self.folder.names("")
        numbers = {int(name.removesuffix(_RECORD)) for name in there if name.endswith(_RECORD)}
        for number in numbers - {batch}:
            if number < batch:
                states = json.loads(self.folder.read(_name(number)))
                self._files[number] = frozenset(name for *_, files in states for name in files)
        kept = frozenset[str]().union(*self._files.values(), map(_name, self._files))
        self.folder.remove(name for name in there if name not in kept)
        self._removes_others = False


_RECORD = ".json"


def _name(batch: int) -> str:
    return f"{batch}{_RECORD}"
