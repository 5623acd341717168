"""The lease by which one streaming query at a time writes a table."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ...conf.errors import TableError
from ...conf.process_identity import Process
from ...conf.units import format_duration_us, now_us
from ...storage.folder import TableFolder
from ...storage.lease import Lease, LeaseFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        """Release any holder's lease and return it. A live holder takes it again, unless another query was first."""
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
            f"{process.pid} on {process.host}, which renewed its lease at {renewed}",
            expected="one streaming query that writes a table: two would make each other's commits fail",
            hint=f"stop one of them. If the other has stopped, this one can start in {left}, or at once after "
            f"`upstream release {self._folder.location}`. The stopped query can resume with its own checkpointLocation",
        )

    def unwritable(self, problem: str) -> TableError:
        return TableError(
            f"the lease of the table at {self._folder.location} cannot be written to {PLACE}: {problem}",
            expected="room on the disk, and a folder that the driver can write to",
            hint="make room or correct the permission, and restart the query. Nothing has changed",
        )


_log = logging.getLogger(__name__)
# How often leases are looked at: a fraction of the shortest.
_LOOKS = 6
_LEAST_S = 0.2


class LeaseKeeper:
    """The leases of one driver's queries, renewed and released in a thread.

    A query renews its lease with its batches, and an idle query has none. A query that no Python process has started
    loses its lease while it is idle. It is then refused if another one has begun to write. `running` returns the ids of
    all running queries; it raises when Spark has been stopped.
    """

    def __init__(
        self, process: Process, running: Callable[[], Collection[str]], clock_us: Callable[[], int] = now_us
    ) -> None:
        self._process = process
        self._running = running
        self._clock_us = clock_us
        self._tables: dict[str, TableFolder] = {}
        self._term_us: dict[str, int] = {}
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, folder: TableFolder, term_us: int) -> None:
        """Maintain a table's lease from now on; release at once a lease that an ended query of this driver has left."""
        with folder.guarded():
            self.look_at(folder, self._running())
        with self._lock:
            self._tables[folder.location] = folder
            self._term_us[folder.location] = term_us
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="upstream-leases", daemon=True)
                self._thread.start()
        self._woken.set()

    def look_at(self, folder: TableFolder, running: Collection[str]) -> Lease | None:
        """Renew a table's lease if its query runs in this driver, release it if it has ended; return the lease left."""
        place = TableLease(folder)
        lease = place.read()
        if lease is None or lease.process != self._process:
            return lease
        if lease.holder not in running:
            place.release(lease.holder)
            return None
        place.hold(lease.holder, self._process, lease.term_us, self._clock_us())
        return lease

    def _keep(self) -> None:
        while True:
            with self._lock:
                wait_s = max(min(self._term_us.values()) / 1e6 / _LOOKS, _LEAST_S)
            if self._woken.wait(wait_s):
                self._woken.clear()
                continue
            try:
                running = self._running()
            except Exception:  # noqa: BLE001 Spark has been stopped, in whichever way that shows
                with self._lock:
                    self._thread = None
                return
            for folder in list(self._tables.values()):
                try:
                    with folder.guarded():
                        self.look_at(folder, running)
                except (OSError, TableError) as error:
                    _log.warning("The lease of the table at %s cannot be renewed: %s", folder.location, error)


_keepers: dict[tuple[Process, str], LeaseKeeper] = {}


def keep_lease(session: SparkSession, folder: TableFolder, term_us: int) -> None:
    """Maintain the lease of a table that a query of this session is about to write; do nothing without a JVM."""
    if term_us == 0:
        return
    try:
        context = session.sparkContext
        jvm: Any = context._jvm
        process = Process.of(int(jvm.java.lang.ProcessHandle.current().pid()))
    except Exception:  # noqa: BLE001 Spark Connect, whose client has no JVM and may not reach the table either
        return
    # A process may have one application after another.
    keeper = _keepers.setdefault(
        (process, str(context.applicationId)), LeaseKeeper(process, lambda: running_queries(session))
    )
    keeper.add(folder, term_us)


def running_queries(session: SparkSession) -> dict[str, str]:
    """Return the checkpoints of all running queries of the application, by their ids: a session lists only its own."""
    context: Any = session.sparkContext._jsc
    java: Any = session._jsparkSession
    if context.sc().isStopped():
        raise RuntimeError("Spark has been stopped")
    found = java.sharedState().activeStreamingQueries()
    return {str(each.toString()): str(found[each].resolvedCheckpointRoot()) for each in found.keySet().toArray()}
