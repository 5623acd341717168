"""A check of the table's log: gaps, damaged checkpoints, and too many entries since the last one."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from ..table.contents import Contents

__all__ = ["LogState", "look_at_log"]

_LOG = "_delta_log/"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\..+)?\.parquet")
# Each takes some microseconds whenever the table is opened.
_MANY = 1_000


@dataclasses.dataclass(frozen=True)
class LogState:
    """The state of a table's log."""

    first: int | None  # the earliest version with an entry; None if there are no entries
    checkpoint: int | None  # the last version with a checkpoint
    since: int  # number of versions after the checkpoint
    problems: tuple[tuple[str, bool], ...]  # each with whether a new checkpoint mends it


def look_at_log(contents: Contents) -> LogState:
    """Look for gaps, and for checkpoints that are damaged, missing or old."""
    version = contents.snapshot.version
    sizes = {each.name: each.size for each in contents.target.folder.listing(_LOG) if not each.is_folder}
    entries = {int(found.group(1)) for name in sizes if (found := _ENTRY.fullmatch(name))}
    checkpoints: dict[int, list[str]] = {}
    for name in sizes:
        if found := _CHECKPOINT.fullmatch(name):
            checkpoints.setdefault(int(found.group(1)), []).append(name)
    problems: list[tuple[str, bool]] = []
    last = max((number for number in checkpoints if number <= version), default=None)
    for name in checkpoints.get(last, []) if last is not None else []:
        reason = _damage(contents, name)
        if reason:
            problems.append((f"the log's checkpoint {name} cannot be read: {reason}", True))
    problems += _pointer(contents, sizes, checkpoints)
    needed = range(0 if last is None else last + 1, version + 1)
    gap = [number for number in needed if number not in entries]
    if gap:
        problems.append(
            (f"the log lacks the entries of {_listed(gap)}, which its last checkpoint does not cover", False)
        )
    earlier = [number for number in range(min(entries, default=0), needed.start) if number not in entries]
    if earlier:
        problems.append(
            (
                (
                    f"the log lacks the entries of {_listed(earlier)}: the table is whole, but these versions cannot "
                    "be read or followed"
                ),
                False,
            )
        )
    if len(needed) > _MANY:
        problems.append(
            (f"{len(needed):,} versions have come since the log's last checkpoint: opening the table takes long", True)
        )
    return LogState(min(entries, default=None), last, len(needed), tuple(problems))


def _damage(contents: Contents, name: str) -> str | None:
    import pyarrow.parquet as pq

    where, filesystem = contents.target.folder.place(_LOG + name)
    try:
        pq.read_metadata(where, filesystem=filesystem)
    except (OSError, pa.ArrowException) as error:
        return str(error).partition("\n")[0]
    return None


def _pointer(contents: Contents, sizes: dict[str, int], checkpoints: dict[int, list[str]]) -> list[tuple[str, bool]]:
    name = "_last_checkpoint"
    if name not in sizes:
        return [("the log has checkpoints, but no _last_checkpoint names one", True)] if checkpoints else []
    try:
        named = int(json.loads(contents.target.folder.read(_LOG + name))["version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [(f"the log's _last_checkpoint cannot be read: {error}", True)]
    return (
        []
        if named in checkpoints
        else [(f"the log's _last_checkpoint names version {named}, of which there is no checkpoint", True)]
    )


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return f"version{'s' if len(numbers) > 1 else ''} {shown}" + (
        f" and {len(numbers) - 5:,} more" if len(numbers) > 5 else ""
    )
