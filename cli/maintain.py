"""``upstream maintain``: what a query does for its table between batches, by hand. No JVM."""

from __future__ import annotations

import functools
import math
import sys

from ..conf.locations import absolute_location
from ..sink.maintenance.compact import compact_table
from ..sink.maintenance.runner import Upkeep
from ..sink.spec.maintenance_rules import Maintained, MaintenanceRules, is_ours
from ..sink.spec.options import SinkOptions, SinkTarget
from ..storage.folder import TableFolder
from .failures import FAILED, Failure

__all__ = ["maintain"]


def maintain(
    path: str, *, retention_us: int | None, versions: int | None, dry: bool, compact: bool, storage: dict[str, str]
) -> None:
    """Look after a table, whole and without a limit of time, and print what was done.

    Parameters
    ----------
    path
        The table.
    retention_us, versions
        How much of its past is kept; None is what the table records.
    dry
        Only say what would be done.
    compact
        Write anew what has small files or dead rows as well, which a batch under way may not survive.
    storage
        Options for an object store.

    Raises
    ------
    Failure
        There is no such table, or it is not one of ours.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    folder = TableFolder(absolute_location(path), storage)
    try:
        table = DeltaTable(folder.location, storage_options=storage or None)
        configuration = table.metadata().configuration
        if not is_ours(configuration):
            raise Failure(
                f"The Delta table in {path} was not made by this package, and may promise its readers more: use VACUUM.",
                FAILED,
            )
        rules = MaintenanceRules.of_table(configuration, retention_us, versions, math.inf)
        target = SinkTarget(SinkOptions(), folder.location, storage, "")
        written_anew = functools.partial(compact_table, target) if compact else _leave
        upkeep = Upkeep(folder, table, rules, dry=dry, compact=written_anew)
        done = upkeep.run(whole=True)
    except TableNotFoundError:
        raise Failure(f"There is no table in {path}.", FAILED) from None
    except (DeltaError, OSError) as error:
        told = folder.masked(error).strip().splitlines()[0]
        raise Failure(f"The table in {path} cannot be looked after: {told}", FAILED) from error
    for line in _lines(done, dry=dry):
        sys.stdout.write(line + "\n")


def _leave(table: object) -> int:
    del table
    return 0


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
