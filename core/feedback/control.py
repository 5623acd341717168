"""The controls of a query: settings that change while it runs, journaled with the batches that have them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...conf.errors import CheckpointError, OptionError
from ...conf.options import bytes_, duration_us, positive_int
from ...conf.units import StalenessTarget, format_duration_us
from ...storage.atomic_write import NumberedFiles
from ...storage.folder import TableFolder
from .checkpoint_layout import CONTROLS

ControlValue = int | str | None
"""A setting; None for the one with which the query was started."""

NO_LIMIT, AUTO, NOW = "none", "auto", "now"
FIRST_BUDGET = 2_000
"""The budget of the first batch if the planner finds the budget."""
_BUDGETS = "a whole number of at least 1, auto, a duration of a batch such as '2 seconds', or none"


class ControlAttribute(NamedTuple):
    """A setting that may change while the query runs."""

    name: str
    unit: str
    expected: str  # the values, in words
    parse: Callable[[str], int | str]  # raises ValueError or OptionError


def _limit(parse: Callable[[str], int]) -> Callable[[str], int | str]:
    return lambda text: NO_LIMIT if text.lower() == NO_LIMIT else parse(text)


def _duration(text: str) -> str:
    duration_us().parse(text)
    return text


class QueueBudget(NamedTuple):
    """The rule for the rows of a queue's batch, by the program or by a control."""

    rows: int | None  # rows per batch, or the first number if `auto`; None for no limit
    auto: bool = False  # find the number
    duration_s: float | None = None  # intended duration of a batch, for `auto`
    planned: bool = True  # the program's

    @classmethod
    def parse(cls, value: object) -> QueueBudget:
        """Return the rule of a number, ``auto``, a duration, or ``none``, also as text; None is ``none``."""
        text = NO_LIMIT if value is None else str(value).strip()
        if not isinstance(value, bool) and (value is None or isinstance(value, int | str)):
            with contextlib.suppress(ValueError, OptionError):
                if text.lower() == NO_LIMIT:
                    return cls(None)
                if text.lower() == AUTO:
                    return cls(FIRST_BUDGET, auto=True)
                if text.lstrip("+-").isdigit():
                    return cls(_count(text))
                return cls(FIRST_BUDGET, True, duration_us().parse(text) / 1e6)
        raise OptionError(f"budget={value!r}", expected=_BUDGETS)

    def instead_of(self, planned: QueueBudget) -> QueueBudget:
        """Return the rule of a control in place of the program's, from whose number the search begins."""
        rows = (planned.rows or FIRST_BUDGET) if self.auto else self.rows
        return self._replace(rows=rows, planned=False)

    @property
    def text(self) -> str:
        if not self.auto:
            return NO_LIMIT if self.rows is None else str(self.rows)
        return AUTO if self.duration_s is None else format_duration_us(self.duration_s * 1e6)


def _budget(text: str) -> int | str:
    given = QueueBudget.parse(text)
    if given.duration_s is not None:
        return text
    return given.text if given.auto or given.rows is None else given.rows


def _target(text: str) -> str:
    if text.lower() == NO_LIMIT:
        return NO_LIMIT
    StalenessTarget.parse(text)
    return text


def _cost(text: str) -> str:
    return AUTO if text.lower() == AUTO else _duration(text)


def _share(text: str) -> str:
    if text.lower() == AUTO:
        return AUTO
    if not 0 < float(text) <= 1:
        raise ValueError
    return text


def _unlimited(text: str) -> str:
    return NO_LIMIT if text.lower() == NO_LIMIT else _duration(text)


def _now(text: str) -> str:
    if text.lower() != NOW:
        raise ValueError
    return NOW


_count: Callable[[str], int] = positive_int().parse

SAMPLE, SAMPLES = "sample", "samples"
JOB, PART = "job", "part"
_MOST_PARTS = 8  # whose rows one batch samples
_SAMPLE = ControlAttribute(SAMPLE, "", NOW, _now)

ATTRIBUTES: Mapping[str, tuple[ControlAttribute, ...]] = {
    "source": (
        ControlAttribute("maxRowsPerTrigger", "rows a batch", "a whole number, at least 1, or none", _limit(_count)),
        ControlAttribute("maxBytesPerTrigger", "bytes a batch", "a size like '32 MB', or none", _limit(bytes_().parse)),
        ControlAttribute("idleAfter", "", "a duration such as '10 seconds'", _duration),
        _SAMPLE,
    ),
    "queue": (
        ControlAttribute(
            "budget",
            "rows a batch",
            _BUDGETS,
            _budget,
        ),
        ControlAttribute("cost", "a row", "a duration such as '0.5 ms', or auto, as measured", _cost),
        ControlAttribute(
            "sampleRate", "of the rows that arrive", "a share such as 0.1, or auto, by the budget", _share
        ),
        _SAMPLE,
    ),
    JOB: (ControlAttribute("batchDuration", "", "a duration such as '2 seconds', or none", _unlimited),),
    PART: (_SAMPLE,),
    "sink": (
        ControlAttribute("target", "", "a figure of staleness with its bound, such as 'p99 < 10 s', or none", _target),
        ControlAttribute("maintenance", "", NOW, _now),
        _SAMPLE,
    ),
}
"""The attributes of each kind of entity. An entity is ``source/ID``, ``queue/NUMBER``, ``job``, ``part/KEY`` of hosted
queries, or ``sink``.
"""


def checked_value(entity: str, attribute: str, value: object) -> ControlValue:
    """Return a setting in its one form; raise OptionError for an unknown attribute or an unfit value."""
    known = {each.name: each for each in ATTRIBUTES.get(entity.partition("/")[0], ())}
    if attribute not in known:
        raise OptionError(
            f"{entity} has no attribute {attribute!r} that can change while the query runs",
            expected="one of " + ", ".join(known) if known else "a source, a queue, the job or the sink",
        )
    if value is None:
        return None
    problem = OptionError(f"{entity}.{attribute}={value!r}", expected=known[attribute].expected)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise problem
    try:
        return known[attribute].parse(str(value).strip())
    except (ValueError, OptionError):
        raise problem from None


@dataclasses.dataclass(frozen=True)
class ControlChange:
    """One change of a setting."""

    entity: str
    attribute: str
    value: ControlValue
    at_us: int
    by: str = ""

    def to_json(self) -> bytes:
        # Two writers of equal changes must each find out whose file was written.
        return json.dumps({**vars(self), "nonce": uuid.uuid4().hex}).encode()

    @classmethod
    def from_json(cls, content: bytes) -> ControlChange:
        try:
            read: dict[str, Any] = json.loads(content)
            change = cls(**{field.name: read[field.name] for field in dataclasses.fields(cls)})
            checked_value(change.entity, change.attribute, change.value)
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(
                f"a change of the controls cannot be read: {content[:200].decode(errors='replace')}",
                expected=f"the files below {CONTROLS} of the checkpoint as they were written",
                hint="restore that folder; change the controls by `upstream set`",
            ) from error
        return change


class ControlConflictError(CheckpointError):
    """Another change came first: look at it, and repeat the call with the present version."""

    @classmethod
    def of(cls, what: str, seen: int, present: int, then: str = "") -> ControlConflictError:
        return cls(
            f"version {seen} of {what} was given, and there is version {present}{then}",
            expected="the present version: of two changes at once, the second is refused",
            hint="look at the other change, and repeat yours",
        )


class ControlLog:
    """The changes of a query's settings, one file each below its checkpoint; see :class:`NumberedFiles`."""

    def __init__(self, checkpoint: TableFolder) -> None:
        folder = TableFolder(checkpoint.location, checkpoint.storage, durable=True)
        self._files = NumberedFiles(folder, CONTROLS, "the controls")
        self._changes: list[ControlChange] = []

    @property
    def is_local(self) -> bool:
        return self._files.folder.is_local

    def version(self) -> int:
        """Return the number of the newest change; 0 if there is none."""
        return self._files.version()

    def changes(self, version: int | None = None) -> Sequence[ControlChange]:
        """Return the changes up to a version, oldest first; all without one."""
        last = self.version() if version is None else version
        if last > len(self._changes):
            content = self._files.read(range(len(self._changes) + 1, last + 1))
            self._changes += map(ControlChange.from_json, content)
        return self._changes[:last]

    def settings(self, entity: str, version: int) -> Mapping[str, int | str]:
        """Return the settings of an entity at a version, without those of the query's start."""
        changed: dict[str, ControlValue] = {}
        for number, each in enumerate(self.changes(version), 1):
            if each.entity == entity:
                changed[each.attribute] = number if each.value == NOW else each.value
        return {name: value for name, value in changed.items() if value is not None}

    def samples(self, version: int) -> dict[str, int]:
        """Return the number of the last request for rows of each part of hosted queries, for the last parts."""
        found: dict[str, int] = {}
        for number, each in enumerate(self.changes(version), 1):
            kind, _, key = each.entity.partition("/")
            if kind == PART:
                found.pop(key, None)
                found[key] = number
        return dict([*found.items()][-_MOST_PARTS:])

    def put(self, seen: int, change: ControlChange) -> int:
        """Write a change after version `seen`, and return its own version.

        Raise ControlConflictError if there is a later change than `seen`, and OptionError for an unfit value.
        """
        value = checked_value(change.entity, change.attribute, change.value)
        if self.version() != seen or not self._files.put(seen + 1, dataclasses.replace(change, value=value).to_json()):
            then = "".join(f", by which {each.entity}.{each.attribute} is {each.value}" for each in self.changes()[-1:])
            raise ControlConflictError.of("the controls", seen, self.version(), then)
        return seen + 1


SINK = "sink"
CONTROL = "control"
"""The member of an offset with the record of the controls."""

ControlRecord = Mapping[str, Any]
"""The controls in an offset: their ``version``; the ``settings`` of the source, queue or job whose offset it is, and of
the ``sink``; of a job, the last request for rows of each part; and in which batches the last versions were ``taken``. A
setting that is an act, such as ``maintenance``, has the version that last asked for it.
"""

_EVERY_S = 1.0
"""The interval at which changes in an object store are looked for."""
_REMEMBERED = 50


class ControlReader:
    """The part of a planner that takes the newest settings into its next offset. A replay needs the offset alone."""

    def __init__(self, checkpoint: TableFolder) -> None:
        self._checkpoint = checkpoint
        self._log = ControlLog(checkpoint)
        self._looked = float("-inf")
        self._known = 0

    def record(self, entity: str, before: ControlRecord | None, now_us: int) -> ControlRecord | None:
        """Return the record of an entity's next offset: that of the offset before, unless there are new changes."""
        version = self._version()
        if version <= (0 if before is None else before["version"]):
            return before
        return {
            "version": version,
            "settings": self._log.settings(entity, version),
            SINK: self._log.settings(SINK, version),
            **({SAMPLES: self._log.samples(version)} if entity == JOB else {}),
            "taken": taken_with([] if before is None else before["taken"], version, self._checkpoint, now_us),
        }

    def _version(self) -> int:
        now = time.monotonic()
        if self._log.is_local or now - self._looked >= _EVERY_S:
            self._known, self._looked = self._log.version(), now
        return self._known


def setting_in(record: ControlRecord | None, name: str) -> Any:
    """Return a setting of the entity whose offset has the record; None for the one of the query's start."""
    return None if record is None else record["settings"].get(name)


def newest_record(offsets: Iterable[object]) -> ControlRecord | None:
    """Return the record with the latest version among a batch's end offsets; None without controls."""
    found: list[ControlRecord] = [each[CONTROL] for each in offsets if isinstance(each, dict) and CONTROL in each]
    return max(found, key=lambda record: record["version"], default=None)


Taken = Sequence[Sequence[int]]
"""A version, the batch that was planned with it as the first one, and when; for some versions, in their order."""


def taken_with(before: Taken, version: int, checkpoint: TableFolder, now_us: int) -> Taken:
    """Return what was taken, with a version that the batch to be planned now takes."""
    # Whatever was planned before is journaled by now.
    planned = (int(name) for name in checkpoint.names("offsets") if name.isdigit())
    return [*before, [version, max(planned, default=-1) + 1, now_us]][-_REMEMBERED:]


def taken_in(taken: Taken, version: int) -> tuple[int, int] | None:
    """Return the batch that took a change, and when; None if none has, or the list no longer reaches so far back."""
    whole = len(taken) < _REMEMBERED  # else the first is there only for its version
    before = 0
    for number, (last, batch, at_us) in enumerate(taken):
        if before < version <= last and (whole or number):
            return batch, at_us
        before = last
    return None
