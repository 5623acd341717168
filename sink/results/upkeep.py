"""Maintenance of many tables: some after each batch, within a budget of time for all.

Tables that begin in one batch would all be due in one batch, too. So each has a turn of its own among the versions; and
what the budget does not reach waits for the next batch, the most overdue first.
"""

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
    """Return for how many versions a table's maintenance has been due; -1 if it is not.

    Parameters
    ----------
    location
        The table's, which gives it its turn.
    version, maintained
        Its version, and that of its last maintenance.
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
    """Maintain tables that are due, as far as the time goes, and return the names of those that were.

    It never raises: the batch is committed, and what fails is tried again.

    Parameters
    ----------
    tables
        Those that the batch has committed to.
    clock_us, seconds
        The time, and a clock that only measures.
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
