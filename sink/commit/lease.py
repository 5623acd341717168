"""The lease by which one streaming query at a time writes a table."""

from __future__ import annotations

import datetime as dt

from ...conf.errors import TableError
from ...conf.units import format_duration_us
from ...storage.folder import TableFolder
from ...storage.lease import Lease, LeaseFolder

__all__ = ["PLACE", "TableLease"]

PLACE = "_upstream_lease"
"""In the table's folder; readers and VACUUM pass over names that begin so."""


class TableLease(LeaseFolder):
    """The lease on a table; its holder is a query, by the id of its checkpoint.

    It only warns people early. Delta's commits alone keep two writers from harming each other, even if a lease has run
    out, clocks disagree, or the lease's file was removed.
    """

    def __init__(self, folder: TableFolder) -> None:
        # Stores that refuse a second object of one name are not asked for: the table's commits need none.
        super().__init__(folder, PLACE, exclusive=folder.is_local)

    def release(self, holder: str | None = None) -> Lease | None:
        """Release the lease, whoever holds it, and return it; raise a TableError if there is no table either.

        A live holder takes it again with its next batch, unless another query has it by then.
        """
        found = super().release(holder)
        if found is None and not self._folder.names("_delta_log"):
            raise TableError(
                f"there is no table at {self._folder.location}",
                expected="a folder or an address that holds one",
                hint="check the path",
            )
        return found

    def held(self, lease: Lease, now_us: int) -> TableError:
        renewed = dt.datetime.fromtimestamp(lease.renewed_us / 1e6, dt.timezone.utc).isoformat(timespec="seconds")
        left = format_duration_us(max(lease.until_us - now_us, 0))
        process = lease.process
        return TableError(
            f"the table at {self._folder.location} is being written by another query, {lease.holder}, of process "
            f"{process.pid} on {process.host}; it said so last at {renewed}",
            expected="one streaming query that writes a table: of two, each would fail whenever the other has "
            "committed",
            hint=f"stop one of them. If the other is stopped already, this one may start in {left}, or at once after "
            f"`upstream release {self._folder.location}`; with its own checkpointLocation that query goes on at any "
            "time",
        )

    def unwritable(self, problem: str) -> TableError:
        return TableError(
            f"the lease of the table at {self._folder.location} cannot be written to {PLACE}: {problem}",
            expected="room on the disk, and a folder that may be written to beside the driver",
            hint="make room or put the permission right, and restart the query. The table is as it was",
        )
