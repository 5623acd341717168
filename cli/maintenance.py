"""``upstream erase`` and ``upstream maintain``: without a JVM."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console

from ..sink.admin.erase import Erasure, erase_key
from ..sink.admin.keys import text_key
from ..sink.admin.maintain import maintain_table
from ..sink.spec.maintenance_rules import MaintenanceResult


def print_erasure(
    path: str,
    key: Sequence[str],
    storage: Mapping[str, str],
    *,
    outputs: Sequence[str],
    index_location: str | None,
    dry_run: bool,
) -> None:
    """Erase a key, and print the result."""
    done = erase_key(
        path, *key, parse=text_key, storage=storage, outputs=outputs, index_location=index_location, dry_run=dry_run
    )
    say = Console(highlight=False, markup=False, soft_wrap=True)
    for line in _erasure_lines(done, dry=dry_run):
        say.print(line)


def _erasure_lines(done: Erasure, *, dry: bool) -> list[str]:
    verb = "would be erased" if dry else "erased"
    lines = [
        (
            f"{verb}: {done.rows:,} rows, {done.dead:,} rows marked as dead, "
            f"{done.tombstones:,} remembered deletions of {done.location}"
        )
    ]
    lines += [f"{verb}: {count:,} rows of {place}" for place, count in done.outputs.items()]
    if not done.outputs:
        lines.append("no table of late or conflicting rows is named in the log; give others by --output")
    if not dry:
        lines.append(f"removed: {done.indexes:,} files of this machine's index cache")
        lines.append(f"{done.location} is at version {done.version}")
    if not done.found:
        lines.append("the key is nowhere in what is current")
    for each in done.remains:
        until = "no date" if each.until_us is None else f"until {_time(each.until_us)}"
        lines.append(f"remains, {until}: {each.what} ({each.how})")
    return lines


def _time(micros: int) -> str:
    return dt.datetime.fromtimestamp(micros / 1e6, dt.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def maintain(
    path: str, *, retention_us: int | None, versions: int | None, dry: bool, compact: bool, storage: dict[str, str]
) -> None:
    """Maintain a whole table, without a time limit, and print the result.

    Without `retention_us` or `versions`, the table's own settings apply. `dry` changes nothing. `compact` also rewrites
    buckets with small files or dead rows; a query that is writing continues with the new files.
    """
    done = maintain_table(
        path, storage=storage, retention_us=retention_us, versions=versions, dry_run=dry, compact=compact
    )
    for line in _maintenance_lines(done, dry=dry):
        sys.stdout.write(line + "\n")


def _maintenance_lines(done: MaintenanceResult, *, dry: bool) -> list[str]:
    verb = "would be removed" if dry else "removed"
    lines = [
        f"{done.entries:,} versions {verb} from the log, with {done.files:,} files that only they had",
        f"{done.orphans:,} files {verb} that no version had",
        f"{done.bytes:,} bytes in all, as far as the log tells",
    ]
    if done.compacted:
        lines.append(f"{done.compacted:,} files rewritten: merged, and without dead rows")
    if done.held:
        lines.append(f"nothing more: {done.held}")
    lines.append(f"versions {done.oldest} to {done.version} can be read")
    return lines
