"""Maintenance of many tables: some after each batch, within one budget of time."""

from __future__ import annotations

import contextlib
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...conf.clock import now_us
from ..maintenance.runner import maintain
from ..spec.maintenance_rules import MaintenanceRules
from .result_table import target_of

if TYPE_CHECKING:
    from .known_table import KnownTable
    from .result_table import ResultTable

__all__ = ["maintain_some", "versions_overdue"]

_LOG = logging.getLogger("upstream.maintenance")

_BUDGET_S = 1.0


def versions_overdue(location: str, version: int, maintained: int) -> int:
    """Return the number of versions for which a table's maintenance has been due; -1 if it is not.

    The location gives each table its own turn: tables that begin in one batch would otherwise all be due in
    one.
    """
    every = MaintenanceRules.every
    turn = zlib.crc32(location.encode()) % every
    last = (version + turn) // every * every - turn
    return version - last if last > max(maintained, 0) else -1


def maintain_some(
    tables: Sequence[tuple[ResultTable, KnownTable]],
    clock_us: Callable[[], int] = now_us,
    seconds: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Maintain the tables that are due, the most overdue first, as far as the time allows; return their names.

    It never raises: the batch is committed, and failed steps are tried again.
    """
    due = [
        (overdue, table, known)
        for table, known in tables
        if (overdue := versions_overdue(table.location, known.log.version, known.maintained)) >= 0
    ]
    late = seconds() + _BUDGET_S
    done: list[str] = []
    for _, table, known in sorted(due, key=lambda each: -each[0]):
        if done and seconds() > late:
            break
        _maintain(table, clock_us)
        known.maintained = known.log.version
        done.append(table.name)
    return done


def _maintain(table: ResultTable, clock_us: Callable[[], int]) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    target = target_of(table)
    try:
        loaded = DeltaTable(target.location, storage_options=dict(target.storage) or None)
    except (DeltaError, OSError, ValueError) as error:
        _LOG.warning("the table at %s cannot be maintained: %s", target.location, target.masked(error))
        return
    if target.options.maintenance == "off":
        with contextlib.suppress(DeltaError):  # the log is only read more slowly without
            loaded.create_checkpoint()
        return
    maintain(target, loaded, clock_us, due=True)
