"""Maintenance by hand: what a query does for its table between batches, whole and without a limit of time."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

from ...conf.errors import TableError
from ...conf.locations import absolute_location
from ...storage.folder import TableFolder
from ..maintenance.compact import compact_table
from ..maintenance.runner import Upkeep
from ..spec.maintenance_rules import Maintained, MaintenanceRules, is_ours
from ..spec.options import SinkOptions, SinkTarget
from .scan import open_table

__all__ = ["maintain_table"]


def maintain_table(
    path: str,
    *,
    storage: Mapping[str, str] | None = None,
    retention_us: int | None = None,
    versions: int | None = None,
    dry_run: bool = False,
    compact: bool = False,
) -> Maintained:
    """Remove what no version within the retention needs, and make a checkpoint of the log.

    Parameters
    ----------
    path, storage
        The table.
    retention_us, versions
        How much of its past is kept; None is what the table records.
    dry_run
        Only say what would be done.
    compact
        Write files again that are small or have dead rows, too. A batch under way may have to be repeated.

    Returns
    -------
    Maintained

    Raises
    ------
    TableError
        There is no such table, UpStream has not made it, or it cannot be read or written.
    """
    from deltalake.exceptions import DeltaError

    folder = TableFolder(absolute_location(path), storage or {})
    table = open_table(folder, path)
    try:
        configuration = table.metadata().configuration
        if not is_ours(configuration):
            raise TableError(
                f"the Delta table in {path} was not made by this package, and may promise its readers more",
                expected="a table that write_latest or write_batch has made",
                hint="use Delta's VACUUM",
            )
        rules = MaintenanceRules.of_table(configuration, retention_us, versions, math.inf)
        target = SinkTarget(SinkOptions(), folder.location, dict(folder.storage), "")
        written_again = functools.partial(compact_table, target) if compact else _leave
        return Upkeep(folder, table, rules, dry=dry_run, compact=written_again).run(whole=True)
    except (DeltaError, OSError) as error:
        said = folder.masked(error).strip().splitlines()[0]
        raise TableError(
            f"the table in {path} cannot be maintained: {said}",
            expected="a table that can be read and written from here",
        ) from error


def _leave(table: object) -> int:
    del table
    return 0
