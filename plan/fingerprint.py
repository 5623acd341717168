"""The fingerprint of a plan, to which a checkpoint is bound: its operators in the stages that Spark numbers."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..conf.errors import CheckpointError, OptionError
from ..conf.locations import checkpoint_location
from ..core.feedback.checkpoint_layout import feeds_folder, operator_folder, read_plan_record
from .nodes import Intake, ManyStreams, Node, StatefulNode, joins_tables, walk


def operators(plan: Node) -> list[StatefulNode]:
    """Return the steps that keep state, inputs first."""
    return [node for node in walk(plan) if isinstance(node, StatefulNode)]


def needs_checkpoint(plan: Node) -> bool:
    """Return whether some operator reports below the query's checkpoint, or a step reads the offsets there."""
    return joins_tables(plan) or bool(operators(plan))


def places(plan: Node, checkpoint: str | os.PathLike[str] | None) -> Mapping[StatefulNode, str]:
    """Return the folder of each operator. An operator without a `checkpoint` is an OptionError.

    An operator's number is the number of its kind before it along the stream, so an unchanged job finds its state. On
    two branches, the later one in the plan takes the next free number.
    """
    found: dict[StatefulNode, str] = {}
    _check_branches(plan)
    for node in operators(plan):
        if checkpoint is None:
            raise OptionError(
                f"this stream keeps state below its query's checkpoint, which is not known yet: {node.text}",
                expected="a checkpoint, when the stream is written",
                hint="write it, by write_latest(stream, table, checkpoint=…); for a DataFrame of it call "
                "stream.dataframe(checkpoint), with the checkpoint that the query will have",
            )
        found[node] = _free(node, os.fspath(checkpoint), set(found.values()))
    return found


def number_along(node: Node, kind: str) -> int:
    """Return how many operators of a kind are on the stream up to a node, included; of several branches, the most."""
    counts: dict[Node, int] = {}
    for each in walk(node):
        counts[each] = max((counts[before] for before in each.inputs), default=0) + (each.kind == kind)
    return counts[node]


def late_step(plan: Node, checkpoint: str) -> tuple[StatefulNode, str]:
    """Return the last step that writes late rows to the dead-letter table, and its folder. Ignore steps on single rows.

    A branch of the stream that the query writes does not show how its steps are numbered there: the step's settings
    do. Raise OptionError if there is none, and CheckpointError if the checkpoint has no such step, or several.
    """
    node = plan
    while not isinstance(node, StatefulNode) or isinstance(node, Intake) or not node.late_aside:
        if len(node.inputs) != 1:
            raise OptionError(
                f"late_rows() of a stream that writes none to the dead-letter table: {plan.text}",
                expected="a step that writes its late rows to the dead-letter table, before steps on each row alone",
                hint="give window() lateness=us.Lateness(dead_letters=True); join() "
                "emit=us.OrderedRelease(dead_letters=True); merge(), ordered() or distinct() dead_letters=True",
            )
        node = node.inputs[0]
    folders, where = places(plan, checkpoint), checkpoint_location(checkpoint)
    place = _place(folders[node], where)
    parts = {part.place: part for stage in from_json(read_plan_record(checkpoint) or ()) for part in stage}
    own = dict(node.specification.identity())
    found = [each.place for each in parts.values() if each.name == node.word and own.items() <= each.identity.items()]
    whole = {_place(each, where) for each in folders.values()} == parts.keys()
    if parts and (place not in found if whole else len(found) != 1):
        raise CheckpointError(
            f"{len(found) or 'no'} steps are {node.text} in this checkpoint, whose job has "
            + ", ".join(part.text for part in parts.values()),
            expected="the checkpoint of the query that writes this stream, and one such step in it",
            hint="give late_rows() that checkpoint, and take the stream that the query writes, with all its branches",
        )
    return node, folders[node] if whole or not parts else f"{where.rstrip('/')}/{found[0]}"


def _place(folder: str, checkpoint: str) -> str:
    return folder.removeprefix(checkpoint.rstrip("/") + "/")


def _check_branches(plan: Node) -> None:
    """Refuse an operator in two branches: Spark runs it twice, and both runs would report to one folder."""
    seen: set[Node] = set()
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if isinstance(node, StatefulNode):
            if node in seen:
                raise OptionError(
                    f"two branches of the stream go through one operator: {node.text}",
                    expected="an operator of its own in each branch: Spark runs it twice, and each run keeps state and "
                    "reports",
                    hint="make each branch from its source on; give two inputs of from_dataframe another name each",
                )
            seen.add(node)
        waiting += node.inputs


def _free(node: StatefulNode, checkpoint: str, taken: set[str]) -> str:
    if isinstance(node, Intake):
        folder = feeds_folder(checkpoint, node.name)
        if folder in taken:
            raise OptionError(
                f"two inputs of the stream are called {node.name!r}",
                expected="a name for each: their reports are named by it",
                hint="give one of them another name, by from_dataframe(…, name=…)",
            )
        return folder
    assert node.kind is not None
    number = number_along(node, node.kind) - 1
    while (folder := operator_folder(checkpoint, node.kind, number)) in taken:
        number += 1
    return folder


class FingerprintPart(NamedTuple):
    """An operator in a fingerprint."""

    place: str  # the folder of its reports, relative to the checkpoint if below it
    name: str  # the user's name for it
    identity: Mapping[str, str]  # the settings to which its state is bound, in words
    paced: str = ""  # the argument that adds an input of its own

    @property
    def text(self) -> str:
        return f"{self.name} ({self.place})"


Fingerprint = tuple[tuple[FingerprintPart, ...], ...]
"""The operators of each stage, in the order of the stream."""


def fingerprint(
    plan: Node, folders: Mapping[StatefulNode, str], fused: Collection[StatefulNode], checkpoint: str
) -> Fingerprint:
    """Return the fingerprint of a plan. `fused` operators run in the stage of the operator before."""
    stages: list[list[FingerprintPart]] = []
    streams = enumerate(plan.inputs if isinstance(plan, ManyStreams) else (), 1)
    stream_of = {node: str(number) for number, stream in streams for node in operators(stream)}
    for node in operators(plan):
        place = _place(folders[node], checkpoint)
        identity = dict(node.specification.identity())
        if node in stream_of:  # the place is the same in whichever stream the only queue is
            identity["stream number"] = stream_of[node]
        part = FingerprintPart(place, node.word, identity, _paced(node))
        if node in fused:
            stages[-1].append(part)
        else:
            stages.append([part])
    return tuple(map(tuple, stages))


def to_json(found: Fingerprint) -> list[Any]:
    """Return a fingerprint as a JSON value."""
    return [[part._asdict() for part in stage] for stage in found]


def from_json(value: Iterable[Any]) -> Fingerprint:
    """Return the fingerprint that :func:`to_json` gave."""
    return tuple(
        tuple(FingerprintPart(part["place"], part["name"], part["identity"], part["paced"]) for part in stage)
        for stage in value
    )


def check_same(was: Fingerprint, now: Fingerprint) -> None:
    """Refuse a job whose operators differ from those of its checkpoint; the error names each change.

    Steps without state may change from run to run, and so may settings outside of an operator's identity, such as a
    queue's budget.
    """
    old, new = _by_place(was), _by_place(now)
    changes = [f"{part.text} is gone, and with it what it keeps" for place, part in old.items() if place not in new]
    changes += [f"{part.text} is new" for place, part in new.items() if place not in old]
    for place, part in old.items():
        if place in new:
            changes += _changed(part, new[place])
    if not changes and list(old) != list(new):
        changes = [f"the order is {_in_order(new)}, and was {_in_order(old)}"]
    if not changes and _grouped(was) != _grouped(now):
        changes = [
            (
                f"the stages are {_shown(now)}, and were {_shown(was)}: what Spark computes between two operators "
                "parts them"
            )
        ]
    if changes:
        raise CheckpointError(
            "this checkpoint was begun by another job: " + "; ".join(changes),
            expected="the same steps that keep state, for the life of a checkpoint; filters and columns may change",
            hint="restore them, or start with a new checkpoint location: the table keeps the newer rows",
        )


def fused_as(plan: Node, was: Fingerprint, able: Collection[StatefulNode]) -> frozenset[StatefulNode]:
    """Return the operators that a resumed job runs in the stage of the operator before: those that did, and are still
    `able`.
    """
    behind = [number > 0 for stage in was for number in range(len(stage))]
    return frozenset(node for node, fused in zip(operators(plan), behind, strict=False) if fused and node in able)


def _by_place(found: Fingerprint) -> dict[str, FingerprintPart]:
    return {part.place: part for stage in found for part in stage}


def _changed(was: FingerprintPart, now: FingerprintPart) -> list[str]:
    changes = [] if was.name == now.name else [f"{was.text} is now {now.name}"]
    changes += [
        f"{was.text} has {name} {now.identity.get(name)!r}, and had {value!r}"
        for name, value in was.identity.items()
        if now.identity.get(name) != value
    ]
    if changes or was.paced == now.paced:
        return changes
    said = f"has {now.paced} now, which adds" if now.paced else f"had {was.paced}, which added"
    return [f"{was.text} {said} to the inputs that Spark numbers"]


def _paced(node: StatefulNode) -> str:
    return "" if not node.paced else "idle='ets'" if isinstance(node, Intake) else "flush='slow'"


def _in_order(parts: Mapping[str, FingerprintPart]) -> str:
    return ", ".join(part.text for part in parts.values())


def _grouped(found: Fingerprint) -> Sequence[Sequence[str]]:
    return [[part.place for part in stage] for stage in found]


def _shown(found: Fingerprint) -> str:
    return " | ".join(" + ".join(part.text for part in stage) for stage in found)
