"""The fingerprint of a plan, to which a checkpoint is bound: its operators in the stages that Spark numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..conf.errors import CheckpointError
from .nodes import Intake, Node, Operator
from .places import operators
from .specification import in_words_of_today
from .together import Together

__all__ = ["Fingerprint", "FingerprintPart", "check_same", "fingerprint", "from_json", "fused_as", "to_json"]

_SILENT = "idle='ets'"


class FingerprintPart(NamedTuple):
    """An operator in a fingerprint."""

    place: str  # the folder of its reports, relative to the checkpoint if below it
    name: str  # the user's name for it
    identity: Mapping[str, str]  # the settings to which its state is bound, in words
    paced: str | None = None  # the argument that adds an input of its own, or ""; None in records of 0.1.0

    @property
    def text(self) -> str:
        return f"{self.name} ({self.place})"


Fingerprint = tuple[tuple[FingerprintPart, ...], ...]
"""The operators of each stage, in the order of the stream."""


def fingerprint(
    plan: Node, folders: Mapping[Operator, str], fused: Collection[Operator], checkpoint: str
) -> Fingerprint:
    """Return the fingerprint of a plan. `fused` operators run in the stage of the operator before."""
    stages: list[list[FingerprintPart]] = []
    streams = enumerate(plan.inputs if isinstance(plan, Together) else (), 1)
    stream_of = {node: str(number) for number, stream in streams for node in operators(stream)}
    for node in operators(plan):
        place = folders[node].removeprefix(checkpoint.rstrip("/") + "/")
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
        tuple(FingerprintPart(part["place"], part["name"], part["identity"], part.get("paced")) for part in stage)
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
            hint="put them back, or start with a new checkpoint location: the table keeps what is newer",
        )


def fused_as(plan: Node, was: Fingerprint, able: Collection[Operator]) -> frozenset[Operator]:
    """Return the operators that a resumed job runs in the stage of the operator before: those that did, and are still
    `able`.
    """
    behind = [number > 0 for stage in was for number in range(len(stage))]
    return frozenset(node for node, fused in zip(operators(plan), behind, strict=False) if fused and node in able)


def _by_place(found: Fingerprint) -> dict[str, FingerprintPart]:
    return {part.place: part for stage in found for part in stage}


def _changed(was: FingerprintPart, now: FingerprintPart) -> list[str]:
    changes = [] if was.name == now.name else [f"{was.text} is now {now.name}"]
    before, after = in_words_of_today(was.identity), in_words_of_today(now.identity)
    changes += [
        f"{was.text} has {name} {after.get(name)!r}, and had {value!r}"
        for name, value in before.items()
        if after.get(name) != value
    ]
    # A release that recorded nothing of it had no `idle`.
    paced = "" if was.paced is None and now.paced == _SILENT else was.paced
    if changes or paced is None or paced == now.paced:
        return changes
    said = f"has {now.paced} now, which adds" if now.paced else f"had {paced}, which added"
    return [f"{was.text} {said} to the inputs that Spark numbers"]


def _paced(node: Operator) -> str:
    return "" if not node.paced else _SILENT if isinstance(node, Intake) else "flush='slow'"


def _in_order(parts: Mapping[str, FingerprintPart]) -> str:
    return ", ".join(part.text for part in parts.values())


def _grouped(found: Fingerprint) -> Sequence[Sequence[str]]:
    return [[part.place for part in stage] for stage in found]


def _shown(found: Fingerprint) -> str:
    return " | ".join(" + ".join(part.text for part in stage) for stage in found)
