"""The lease below a checkpoint, by which one job at a time hosts its queries."""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import functools
import logging
import os
import threading
import uuid
from collections.abc import Callable, Generator

from ..conf.errors import CheckpointError, UpstreamError
from ..conf.process_identity import Process
from ..conf.units import format_duration_us, now_us
from ..sink.commit.lease import TableLease
from ..storage.folder import TableFolder
from ..storage.lease import Lease, LeaseFolder

_LOG = logging.getLogger("upstream.queries")
_FOLDER = "queries/lease"
# A job that crashed on another machine holds its checkpoint for five quarters of this.
_TERM_US = 60_000_000
_LOOKS = 6


class CheckpointLease(LeaseFolder):
    """The lease on a checkpoint, held by one run of the job. Two jobs on one would write the same batches."""

    def __init__(self, checkpoint: TableFolder) -> None:
        super().__init__(checkpoint, _FOLDER, exclusive=True)

    def held(self, lease: Lease, now_us: int) -> CheckpointError:
        left = format_duration_us(max(lease.until_us - now_us, 0))
        return CheckpointError(
            f"another job hosts the queries of the checkpoint {self._folder.location}: process {lease.process.pid} on "
            f"{lease.process.host}, since {_shown(lease.since_us)}; it renewed its lease last at "
            f"{_shown(lease.renewed_us)}",
            expected="one job that hosts the queries of a checkpoint",
            hint="change the queries of the running job from any process, or stop that job first. If it crashed on "
            f"another machine, this job can start in {left}",
        )

    def lost(self, lease: Lease) -> CheckpointError:
        return CheckpointError(
            f"another job has taken over the queries of the checkpoint {self._folder.location}: process "
            f"{lease.process.pid} on {lease.process.host}, at {_shown(lease.since_us)}",
            expected="a job that renews its lease each minute, which a suspended process or machine does not",
            hint="let the other job run, or stop it and start this one again. Each table has each batch once",
        )

    def unwritable(self, problem: str) -> CheckpointError:
        return CheckpointError(
            f"the lease of the job cannot be written to {self._folder.location}/{_FOLDER}: {problem}",
            expected=f"room in {self._folder.location}, and permission to write there",
            hint="make room or put the permission right, and start the job again. Nothing has changed",
        )


def writer_lease(table: TableFolder, checkpoint: str | None) -> Lease | None:
    """Return the newest lease, even if released, of a table's query or its job: `checkpoint` is that of either."""
    leases = [TableLease(table).newest()]
    if checkpoint is not None:
        leases.append(CheckpointLease(TableFolder(checkpoint, table.storage)).newest())
    return max((each for each in leases if each is not None), key=lambda each: each.renewed_us, default=None)


class HostLease:
    """The lease of one run of the job, from before its start until its end."""

    def __init__(
        self,
        checkpoint: TableFolder,
        process: Process | None = None,
        clock_us: Callable[[], int] = now_us,
        term_us: int = _TERM_US,
    ) -> None:
        self.holder = str(uuid.uuid4())
        self._folder = checkpoint
        self._lease = CheckpointLease(checkpoint)
        self._process = process if process is not None else Process.of(os.getpid())
        self._clock_us = clock_us
        self._term_us = term_us
        self._runs: Callable[[], bool] = lambda: True

    @contextlib.contextmanager
    def taken(self) -> Generator[None, None, None]:
        """Take the lease, and release it if the block fails; raise CheckpointError if another job holds it."""
        _ours[self.holder] = self
        try:
            with self._folder.guarded():
                self._release_ended()
                self._hold()
            yield
        except BaseException:
            self.release()
            raise

    def check(self) -> None:
        """Renew the lease if that is due; raise CheckpointError if another job took it over."""
        with self._folder.guarded():
            other = self._other()
            if other is not None:
                raise self._lease.lost(other)
            self._hold()

    def keep(self, ended: Callable[[float], bool], runs: Callable[[], bool]) -> None:
        """Renew the lease in a thread until the job ends, and release it then.

        `ended` waits up to some seconds and returns whether the job has ended; it raises if the job failed.
        """
        self._runs = runs
        _release_at_exit()
        threading.Thread(target=self._keep, args=(ended,), name="upstream-host-lease", daemon=True).start()

    def runs(self) -> bool:
        """Return whether the job of this lease is starting or running."""
        try:
            return self._runs()
        except Exception:  # noqa: BLE001 Spark is gone, in whichever way that shows
            return False

    def release(self) -> None:
        """Release the lease if it is this run's own. A lease that cannot be released expires."""
        _ours.pop(self.holder, None)
        try:
            with self._folder.guarded():
                self._lease.release(self.holder)
        except (OSError, UpstreamError) as error:
            _LOG.warning("the lease of the job at %s cannot be released: %s", self._folder.location, error)

    def _other(self) -> Lease | None:
        newest = self._lease.newest()
        return None if newest is None or newest.holder == self.holder else newest

    def _hold(self) -> None:
        self._lease.hold(self.holder, self._process, self._term_us, self._clock_us())

    def _release_ended(self) -> None:
        """Release the lease of an ended job of this process whose own thread has not done so yet."""
        found = self._lease.read()
        if found is None or found.process != self._process:
            return
        job = _ours.get(found.holder)
        if job is None or not job.runs():
            self._lease.release(found.holder)

    def _keep(self, ended: Callable[[float], bool]) -> None:
        try:
            while not ended(self._term_us / 1e6 / _LOOKS):
                try:
                    with self._folder.guarded():
                        other = self._other()
                        if other is not None:  # the next batch fails with the same words
                            _LOG.error("%s", self._lease.lost(other))
                            break
                        self._hold()
                except (OSError, UpstreamError) as error:
                    _LOG.warning("the lease of the job at %s was not renewed: %s", self._folder.location, error)
        except Exception:  # noqa: BLE001, S110 the job failed, or Spark is gone: who waits for the job sees why
            pass
        self.release()


_ours: dict[str, HostLease] = {}
"""The leases of this process, by holder."""


@functools.cache
def _release_at_exit() -> None:
    """Release this process's leases when it exits, because another machine cannot see that it is gone."""
    atexit.register(lambda: [each.release() for each in list(_ours.values())])


def _shown(time_us: int) -> str:
    return dt.datetime.fromtimestamp(time_us / 1e6, dt.timezone.utc).isoformat(timespec="seconds")
