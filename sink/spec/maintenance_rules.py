"""When a table is due for maintenance, and what it may lose then: decided from numbers alone.

What stays is decided by versions, not by files. Readers are promised every version from the *oldest promised* one on:
the one that was current `retention` ago or, if that is further back than `retentionVersions`, so many versions ago.
Since a version is read from the checkpoint before it, the log stays from the newest checkpoint that is not above the
oldest promised version, the *base*; and a data file stays if a version from the base on has it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...delta_format.latest_table import LAYOUT_PROPERTY, known_fields

__all__ = [
    "FILE_RETENTION",
    "LogFiles",
    "Maintained",
    "MaintenanceRules",
    "checkpoint_pays",
    "interval_due",
    "is_ours",
    "oldest_promised",
    "parse_interval_s",
    "retention_properties",
]

_RETENTION, _VERSIONS = "upstream.retentionSeconds", "upstream.retentionVersions"

FILE_RETENTION = "delta.deletedFileRetentionDuration"
"""The table property by which VACUUM goes, and checkpoints of the log."""

_NAMED = re.compile(r"\.?(\d{20})\.(.+)")
# Where one name holds a range of versions, such as 00…10.00…20.compacted.json.
_RANGE = re.compile(r"(\d{20})\.compacted\.json(\.crc)?")
_PART = re.compile(r"checkpoint\.(\d{10})\.(\d{10})\.parquet")
_WHOLE = re.compile(r"checkpoint\.(?:[0-9a-f-]{36}\.)?(?:parquet|json)")
_HOUR_US = 3_600_000_000
# What a reader parses in some 10 ms.
_LONG_LOG = 512 * 1024
_SECONDS = re.compile(r"interval (\d+) seconds")


@dataclasses.dataclass(frozen=True)
class MaintenanceRules:
    """How much of a table's past is kept, and how much time upkeep may take.

    Attributes
    ----------
    retention_us : int
        For how long a version can be read after another one took its place; a table records it, for writers without the
        option.
    versions : int
        The most versions that are kept, however young; recorded as well.
    budget_s : float
        The most time that upkeep may take after a commit; what is not done waits for the next time.
    every : int
        Commits from one maintenance to the next; each makes a checkpoint of the log.
    """

    retention_us: int = 604_800_000_000
    versions: int = 10_000
    budget_s: float = 2.0
    every: int = 100

    @classmethod
    def of_table(
        cls, configuration: Mapping[str, str], retention_us: int | None, versions: int | None, budget_s: float
    ) -> MaintenanceRules:
        """Return the given rules; a rule that is not given is the one that the table records."""
        recorded_s, recorded = configuration.get(_RETENTION), configuration.get(_VERSIONS)
        if retention_us is None:
            retention_us = cls.retention_us if recorded_s is None else int(recorded_s) * 1_000_000
        return cls(retention_us, versions or int(recorded or cls.versions), budget_s)

    def due(self, version: int, checkpoint: int, checkpointed_us: int, now_us: int) -> bool:
        """Return whether maintenance is due at a version.

        Parameters
        ----------
        version
            The latest version.
        checkpoint, checkpointed_us
            The log's last checkpoint, and when it was made; -1 without any, and when that was found.
        now_us
            The time.
        """
        # By the turn of the hundred, not by how long ago: there may have been checkpoints in between.
        turned = (version + 1) // self.every > (checkpoint + 1) // self.every
        # A table that is written to once an hour is to lose what is old as well.
        return turned or (version > checkpoint and now_us - checkpointed_us >= _HOUR_US)


def checkpoint_pays(entries: int, checkpoint: int) -> bool:
    """Return whether the log is to have a checkpoint although no maintenance is due.

    Each reader reads the entries after the last one.

    Parameters
    ----------
    entries, checkpoint
        Bytes of the entries since then, and of the checkpoint, which is rewritten. So the cost of checkpoints follows
        the size of the log.
    """
    return entries >= max(_LONG_LOG, checkpoint)


class LogFiles(NamedTuple):
    """The files of a log by what they are.

    Attributes
    ----------
    entries : mapping of int to int
        The versions whose entry is there, ascending, and when it was written (microseconds since the epoch).
    checkpoints : tuple of int
        The versions of which there is a complete checkpoint, ascending.
    names : mapping of int to list of str
        All files that are needed no more once only later versions are kept.
    """

    entries: Mapping[int, int]
    checkpoints: tuple[int, ...]
    names: Mapping[int, list[str]]

    @classmethod
    def of(cls, found: Iterable[tuple[str, int]]) -> LogFiles:
        """Return the files of a log, from names and times of writing; names unknown to the format are skipped."""
        entries: dict[int, int] = {}
        names: dict[int, list[str]] = {}
        whole: set[int] = set()
        parts: dict[tuple[int, int], set[int]] = {}
        for name, written_us in found:
            match = _NAMED.fullmatch(name)
            if match is None:
                continue
            version, rest = int(match.group(1)), match.group(2)
            if ranged := _RANGE.fullmatch(rest):
                version = int(ranged.group(1))
            elif not name.startswith("."):
                if rest == "json":
                    entries[version] = written_us
                elif _WHOLE.fullmatch(rest):
                    whole.add(version)
                elif part := _PART.fullmatch(rest):
                    parts.setdefault((version, int(part.group(2))), set()).add(int(part.group(1)))
            names.setdefault(version, []).append(name)
        whole |= {version for (version, count), present in parts.items() if len(present) == count}
        return cls(dict(sorted(entries.items())), tuple(sorted(whole)), names)

    def base(self, promised: int) -> int | None:
        """Return the checkpoint from which all promised versions can be read; None if they need the log's beginning."""
        return max((version for version in self.checkpoints if version <= promised), default=None)

    def before(self, base: int) -> list[int]:
        """Return the versions below the base of which any file is left, ascending."""
        return sorted(version for version in self.names if version < base)


def oldest_promised(entries: Mapping[int, int], rules: MaintenanceRules, now_us: int) -> int:
    """Return the oldest version on which readers may still rely.

    Parameters
    ----------
    entries
        The entries of :class:`LogFiles`; at least one.
    rules
        The rules on how much is kept.
    now_us
        The time.
    """
    first, last = min(entries), max(entries)
    # The first that is younger than the retention took the place of one that somebody may just have opened.
    young = min(
        (version for version, written_us in entries.items() if written_us > now_us - rules.retention_us),
        default=last + 1,
    )
    return min(max(young - 1, last - rules.versions + 1, first), last)


def parse_interval_s(value: str | None) -> int | None:
    """Return the seconds of a table property in the form of :func:`interval_due`; None for another form."""
    match = None if value is None else _SECONDS.fullmatch(value)
    return None if match is None else int(match.group(1))


def interval_due(recorded_s: int | None, rules: MaintenanceRules, kept_us: int | None) -> int | None:
    """Return the seconds that the table's own properties for retention should have; None if they may stay.

    VACUUM obeys them, and checkpoints carry removed files along for as long: at a commit a second, those of a week are
    ten million. So if the number of versions binds, they follow it, in wide steps, since each change is a commit.

    Parameters
    ----------
    recorded_s
        Their current value.
    rules
        The rules on how much is kept.
    kept_us
        The age of the oldest promised version if the number of versions binds; None if it does not.
    """
    most = _seconds(rules.retention_us)
    if kept_us is None:
        return None if recorded_s == most else most
    need = min(_seconds(kept_us), most)
    hour = _HOUR_US // 1_000_000
    if recorded_s is not None and need <= recorded_s <= max(4 * need, hour):
        return None
    return min(-(-2 * need // hour) * hour, most)


def is_ours(configuration: Mapping[str, str]) -> bool:
    """Return whether a table was made by this package, by its properties: others may promise their readers more."""
    return LAYOUT_PROPERTY in configuration or _RETENTION in configuration


def retention_properties(rules: MaintenanceRules | None, seconds: int | None = None) -> dict[str, str]:
    """Return the table's properties for retention: so many seconds, or those of the rules; none without rules."""
    if rules is None:
        return {}
    interval = f"interval {seconds or _seconds(rules.retention_us)} seconds"
    # Whoever makes a checkpoint removes entries of the log else, and with them the only word of which files they took
    # out of use.
    return {
        FILE_RETENTION: interval,
        "delta.logRetentionDuration": interval,
        "delta.enableExpiredLogCleanup": "false",
        _RETENTION: str(_seconds(rules.retention_us)),
        _VERSIONS: str(rules.versions),
    }


def _seconds(micros: int) -> int:
    return max(-(-micros // 1_000_000), 1)


@dataclasses.dataclass
class Maintained:
    """What maintenance did, or would do.

    Attributes
    ----------
    version : int
        The table's, before.
    oldest : int
        The oldest version that can still be read; 0 where nothing but files was put together.
    seconds : float
        How long it took.
    checkpoint : bool
        Whether the log got a checkpoint.
    entries : int
        Versions whose log entries were removed.
    files : int
        Data files removed that only those versions had, deletions for followers included.
    orphans : int
        Files removed that no version had: of tasks and processes that died.
    bytes : int
        Bytes removed, as far as the log has their size.
    compacted : int
        Files that were put together, or rid of dead rows.
    properties : bool
        Whether the table's properties for retention were changed.
    left : bool
        Whether time ran out, so that something waits for the next time.
    held : str or None
        Why nothing was removed.
    failed : str or None
        What went wrong. It is tried again the next time; no row is in danger.
    """

    version: int
    oldest: int = 0
    seconds: float = 0.0
    checkpoint: bool = False
    entries: int = 0
    files: int = 0
    orphans: int = 0
    bytes: int = 0
    compacted: int = 0
    properties: bool = False
    left: bool = False
    held: str | None = None
    failed: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Maintained:
        """Return the value that :func:`dataclasses.asdict` described."""
        return cls(**known_fields(cls, value))
