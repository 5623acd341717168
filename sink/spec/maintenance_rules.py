"""The rules of maintenance: when it is due, and which versions stay; decided from numbers alone."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...delta_format.latest_table import LAYOUT_PROPERTY

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
    """The retention of a table's versions, and the time that maintenance may take.

    Readers may rely on every version from the *oldest promised* one on: the one that was current `retention_us`
    ago, but at most `versions` back. A version is read from the checkpoint before it. So the log stays from the
    newest checkpoint at or below the oldest promised version, the *base*. A data file stays if a version from
    the base on has it.
    """

    # time for which a version can be read after it was replaced; the table records it
    retention_us: int = 604_800_000_000
    versions: int = 10_000  # the most versions that stay, however young; the table records it
    budget_s: float = 2.0  # the most time for maintenance after a commit; the rest waits for the next time
    every: int = 100  # commits between two maintenances, each of which makes a checkpoint

    @classmethod
    def of_table(
        cls, configuration: Mapping[str, str], retention_us: int | None, versions: int | None, budget_s: float
    ) -> MaintenanceRules:
        """Return the given rules; for a rule that is None, the one that the table records."""
        recorded_s, recorded = configuration.get(_RETENTION), configuration.get(_VERSIONS)
        if retention_us is None:
            retention_us = cls.retention_us if recorded_s is None else int(recorded_s) * 1_000_000
        return cls(retention_us, versions or int(recorded or cls.versions), budget_s)

    def due(self, version: int, checkpoint: int, checkpointed_us: int, now_us: int) -> bool:
        """Return True if maintenance is due. Without a checkpoint (-1), `checkpointed_us` is when that was found."""
        # By the turn of the hundred, not by how long ago: there may have been checkpoints in between.
        turned = (version + 1) // self.every > (checkpoint + 1) // self.every
        # A table that is written to once an hour is to lose what is old as well.
        return turned or (version > checkpoint and now_us - checkpointed_us >= _HOUR_US)


def checkpoint_pays(entries: int, checkpoint: int) -> bool:
    """Return True if a checkpoint pays off although no maintenance is due: each reader reads the entries after it.

    Both arguments are bytes. A checkpoint is rewritten whole, so the cost of checkpoints follows the size of
    the log.
    """
    return entries >= max(_LONG_LOG, checkpoint)


class LogFiles(NamedTuple):
    """The files of a log by kind."""

    entries: Mapping[int, int]  # versions with an entry, ascending, and the time of writing in epoch microseconds
    checkpoints: tuple[int, ...]  # versions with a complete checkpoint, ascending
    names: Mapping[int, list[str]]  # by version, all files that are needless once only later versions stay

    @classmethod
    def of(cls, found: Iterable[tuple[str, int]]) -> LogFiles:
        """Return the files of a log from names and times of writing; names unknown to the format are skipped."""
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
        """Return the checkpoint from which all promised versions can be read; None if they need the log's start."""
        return max((version for version in self.checkpoints if version <= promised), default=None)

    def before(self, base: int) -> list[int]:
        """Return the versions below the base that still have a file, ascending."""
        return sorted(version for version in self.names if version < base)


def oldest_promised(entries: Mapping[int, int], rules: MaintenanceRules, now_us: int) -> int:
    """Return the oldest version on which readers may still rely; `entries` has at least one."""
    first, last = min(entries), max(entries)
    # The first that is younger than the retention took the place of one that somebody may just have opened.
    young = min(
        (version for version, written_us in entries.items() if written_us > now_us - rules.retention_us),
        default=last + 1,
    )
    return min(max(young - 1, last - rules.versions + 1, first), last)


def parse_interval_s(value: str | None) -> int | None:
    """Return the seconds of a table property in the form of :func:`retention_properties`; None for another form."""
    match = None if value is None else _SECONDS.fullmatch(value)
    return None if match is None else int(match.group(1))


def interval_due(recorded_s: int | None, rules: MaintenanceRules, kept_us: int | None) -> int | None:
    """Return the seconds that the table's properties for retention should have; None if they may stay.

    VACUUM obeys them, and checkpoints contain removed files for that long: at a commit a second, ten million in
    a week. So if the number of versions binds, the seconds follow it, in wide steps, since each change is a
    commit. `kept_us` is the age of the oldest promised version; None if the number of versions does not bind.
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
    """Return True if this package made a table, by its properties: others may promise their readers more."""
    return LAYOUT_PROPERTY in configuration or _RETENTION in configuration


def retention_properties(rules: MaintenanceRules | None, seconds: int | None = None) -> dict[str, str]:
    """Return the table's properties for retention, of so many seconds or those of the rules; none without rules."""
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
class MaintenanceResult:
    """The result of maintenance, or of a dry run."""

    version: int  # the table's before
    oldest: int = 0  # the oldest version that can still be read; 0 if only files were compacted
    seconds: float = 0.0
    checkpoint: bool = False  # True if the log got a checkpoint
    entries: int = 0  # versions whose log entries were removed
    files: int = 0  # data files removed that only those versions had, deletions for followers included
    orphans: int = 0  # files removed that no version had: of tasks and processes that died
    bytes: int = 0  # bytes removed, as far as the log has their size
    compacted: int = 0  # files that were merged, or rewritten without dead rows
    properties: bool = False  # True if the table's properties for retention were changed
    left: bool = False  # True if time ran out and some work is left
    held: str | None = None  # the reason if nothing was removed
    failed: str | None = None  # the error; the step is tried again, and no row is in danger
