"""One streaming query at a time writes a table: it holds a lease, a small file beside the table's data, and another one
is refused at its start.

The lease spares people a mistake; that no two writers harm each other is assured by Delta's commits alone
(:mod:`~upstream.sink.commit.commit`), also where a lease has run out, clocks disagree, or a file was removed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import uuid
from typing import Any

from ...conf.errors import TableError
from ...conf.process_identity import Process
from ...conf.units import format_duration_us
from ...storage.folder import TableFolder

__all__ = ["PLACE", "Lease", "hold_lease", "read_lease", "release_lease"]

PLACE = "_upstream_lease.json"
"""In the table's folder; readers and VACUUM pass over names that begin so."""

# Renewed when a third is over: two renewals may be lost.
_RENEW_AFTER = 3
# Clocks of two machines may differ by a quarter of the term without a lease being taken too early.
_ALLOWANCE = 4


@dataclasses.dataclass(frozen=True)
class Lease:
    """Who writes the table.

    Attributes
    ----------
    query_id : str
        The id of the query's checkpoint.
    process : Process
        The driver's.
    renewed_us : int
        When it was taken or renewed last, by the holder's clock, in microseconds since the epoch.
    term_us : int
        For how long then.
    """

    query_id: str
    process: Process
    renewed_us: int
    term_us: int

    @property
    def until_us(self) -> int:
        """The time from which another query may take it, by that query's clock."""
        return self.renewed_us + self.term_us + self.term_us // _ALLOWANCE

    def has_ended(self, now_us: int) -> bool:
        """Return whether it has run out, or the holder's process is gone."""
        return now_us >= self.until_us or self.process.is_gone()

    def is_due(self, now_us: int) -> bool:
        """Return whether the holder is to renew it. A clock that was set back makes it due as well."""
        return abs(now_us - self.renewed_us) >= self.term_us // _RENEW_AFTER

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value, the inverse of :meth:`from_json`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Lease:
        """Return the lease that :meth:`to_json` described. Unknown names, of later versions, are ignored."""
        process = {field.name: value["process"][field.name] for field in dataclasses.fields(Process)}
        return cls(value["query_id"], Process(**process), value["renewed_us"], value["term_us"])


def hold_lease(folder: TableFolder, query_id: str, process: Process, term_us: int, now_us: int) -> None:
    """Take the lease for a query, or renew it.

    Parameters
    ----------
    folder
        The table's folder.
    query_id, process
        The query that is to write, and its driver's process.
    term_us
        The lease's term; 0 takes none and ignores others.
    now_us
        The time.

    Raises
    ------
    TableError
        Another query holds it, and its driver is not known to be gone.
    """
    if term_us == 0:
        return
    found = read_lease(folder)
    mine = found is not None and found.query_id == query_id
    if found is not None and not mine and not found.has_ended(now_us):
        raise _held(found, folder, now_us)
    wanted = Lease(query_id, process, now_us, term_us)
    if (
        found is not None
        and mine
        and not found.is_due(now_us)
        and dataclasses.replace(found, renewed_us=now_us) == wanted
    ):
        return
    _write(folder, wanted)
    if not mine:
        # Two may have found it free at once. Who wrote last has it; should the other not see that here, it will in its
        # next batch.
        found = read_lease(folder)
        if found is not None and found.query_id != query_id:
            raise _held(found, folder, now_us)


def read_lease(folder: TableFolder) -> Lease | None:
    """Return the lease on the table; None if there is none, or if the file is not whole.

    A damaged file does no harm: the lease protects nothing that Delta's commits do not.
    """
    try:
        return Lease.from_json(json.loads(folder.read(PLACE)))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def release_lease(folder: TableFolder) -> Lease | None:
    """Remove the lease, whoever holds it; return what was removed.

    A live holder takes it again with its next batch, unless another query has it by then.

    Raises
    ------
    TableError
        There is neither a lease nor a table.
    """
    found = read_lease(folder)
    if found is None and not folder.names("_delta_log"):
        raise TableError(
            f"there is no table at {folder.location}",
            expected="a folder or an address that holds one",
            hint="check the path",
        )
    where, filesystem = folder.place(PLACE)
    with contextlib.suppress(FileNotFoundError):
        if filesystem is None:
            os.remove(where)
        elif found is not None:
            filesystem.delete_file(where)
    return found


def _write(folder: TableFolder, lease: Lease) -> None:
    content = json.dumps(lease.to_json()).encode()
    where, filesystem = folder.place(PLACE)
    try:
        if filesystem is not None:
            folder.write(PLACE, content)
            return
        os.makedirs(folder.location, exist_ok=True)
        new = f"{where}.{uuid.uuid4()}"
        try:
            with open(new, "wb") as file:
                file.write(content)
            os.replace(new, where)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(new)
            raise
    except OSError as error:
        raise TableError(
            f"the lease of the table at {folder.location} cannot be written to {PLACE}: {folder.masked(error)}",
            expected="room on the disk, and a folder that may be written to beside the driver",
            hint="make room or put the permission right, and restart the query. The table is as it was",
        ) from error


def _held(lease: Lease, folder: TableFolder, now_us: int) -> TableError:
    renewed = dt.datetime.fromtimestamp(lease.renewed_us / 1e6, dt.timezone.utc).isoformat(timespec="seconds")
    left = format_duration_us(max(lease.until_us - now_us, 0))
    process = lease.process
    return TableError(
        f"the table at {folder.location} is being written by another query, {lease.query_id}, of process {process.pid} "
        f"on {process.host}; "
        f"it said so last at {renewed}",
        expected="one streaming query that writes a table: of two, each would fail whenever the other has committed",
        hint=f"stop one of them. If the other is stopped already, this one may start in {left}, or at once after "
        "`upstream release "
        f"{folder.location}`; with its own checkpointLocation that query goes on at any time",
    )
