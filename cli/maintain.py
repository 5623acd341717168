"""``upstream maintain``: a query's maintenance of its table, on demand and without a JVM."""

from __future__ import annotations

import sys

from ..sink.admin.maintain import maintain_table
from ..sink.spec.maintenance_rules import Maintained

__all__ = ["maintain"]


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
    for line in _lines(done, dry=dry):
        sys.stdout.write(line + "\n")


def _lines(done: Maintained, *, dry: bool) -> list[str]:
    verb = "would be removed" if dry else "removed"
    lines = [
        f"{done.entries:,} versions {verb} from the log, with {done.files:,} files that only they had",
        f"{done.orphans:,} files {verb} that no version had",
        f"{done.bytes:,} bytes in all, as far as the log tells",
    ]
    if done.compacted:
        lines.append(f"{done.compacted:,} files written anew, put together and without dead rows")
    if done.held:
        lines.append(f"nothing more: {done.held}")
    lines.append(f"versions {done.oldest} to {done.version} can be read")
    return lines
