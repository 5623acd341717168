"""Maintenance by command: all that a query does for its table between batches, without a time limit."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

from ...conf.errors import TableError
from ...conf.locations import absolute_location
from ...storage.folder import TableFolder
from ..maintenance.compact import compact_table
from ..maintenance.runner import TableMaintenance
from ..spec.maintenance_rules import MaintenanceResult, MaintenanceRules, is_ours
from ..spec.options import SinkOptions, SinkTarget
from .scan import open_table


def maintain_table(
    path: str,
    *,
    storage: Mapping[str, str] | None = None,
    retention_us: int | None = None,
    versions: int | None = None,
    dry_run: bool = False,
    compact: bool = False,
) -> MaintenanceResult:
    """Maintain a table; see :meth:`~upstream.LatestTable.maintain` and :meth:`~upstream.LatestTable.compact`."""
    from deltalake.exceptions import DeltaError

    folder = TableFolder(absolute_location(path), storage or {})
    table = open_table(path, storage)
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
        return TableMaintenance(folder, table, rules, dry=dry_run, compact=written_again).run(whole=True)
    except (DeltaError, OSError) as error:
        said = folder.masked(error).strip().splitlines()[0]
        raise TableError(
            f"the table in {path} cannot be maintained: {said}",
            expected="a table that can be read and written from here",
        ) from error


def _leave(table: object) -> int:
    del table
    return 0
