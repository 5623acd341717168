"""One job at a time hosts the queries of a checkpoint: it holds a lease below the checkpoint, and another job is
refused at its start.

Two jobs on one checkpoint would write the same batches, and Spark would fail whichever comes second.
"""

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

from ...conf.clock import now_us
from ...conf.errors import CheckpointError, UpstreamError
from ...conf.process_identity import Process
from ...conf.units import format_duration_us
from ...storage.folder import TableFolder
from ...storage.lease import Lease, LeaseFolder

__all__ = ["CheckpointLease", "HostLease"]

_LOG = logging.getLogger("upstream.queries")
_FOLDER = "queries/lease"
# A job on another machine that died without a word holds its checkpoint for five quarters of this.
_TERM_US = 60_000_000
_LOOKS = 6


class CheckpointLease(LeaseFolder):
    """The lease on a checkpoint. Its holder is one run of the job.

    Parameters
    ----------
    checkpoint
        The checkpoint's folder.
    """

    def __init__(self, checkpoint: TableFolder) -> None:
        super().__init__(checkpoint, _FOLDER, exclusive=True)

    def held(self, lease: Lease, now_us: int) -> CheckpointError:
        """Return the error that another job hosts the queries."""
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
        """Return the error that another job took the lease over."""
        return CheckpointError(
            f"another job took over the queries of the checkpoint {self._folder.location}: process {lease.process.pid} "
            f"on {lease.process.host}, at {_shown(lease.since_us)}",
            expected="a job that renews its lease: this one did not for longer than a minute, as in a suspended "
            "process or machine",
            hint="let the other job run, or stop it and start this one again. Each table has each batch once",
        )

    def unwritable(self, problem: str) -> CheckpointError:
        """Return the error that the lease cannot be written."""
        return CheckpointError(
            f"the lease of the job cannot be written to {self._folder.location}/{_FOLDER}: {problem}",
            expected=f"room in {self._folder.location}, and permission to write there",
            hint="make room or put the permission right, and start the job again. Nothing has changed",
        )


class HostLease:
    """The lease of one run of the job, from before its start until its end.

    Parameters
    ----------
    checkpoint
        The checkpoint's folder.
    process
        The process that starts the job [default: this one].
    clock_us
        The time.
    term_us
        The lease's term.
    """

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
        """Take the lease, and release it if the block fails.

        Raises
        ------
        CheckpointError
            Another job holds it, or it cannot be written.
        """
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
        """Refuse to go on if another job took the lease over; renew it if that is due.

        Raises
        ------
        CheckpointError
            Another job took it over.
        """
        with self._folder.guarded():
            other = self._other()
            if other is not None:
                raise self._lease.lost(other)
            self._hold()

    def keep(self, ended: Callable[[float], bool], runs: Callable[[], bool]) -> None:
        """Renew the lease in a thread until the job ends, and release it then.

        Parameters
        ----------
        ended
            Waits for the end of the job, for some seconds, and returns whether it came; raises if the job failed.
        runs
            Returns whether the job runs.
        """
        self._runs = runs
        _release_at_exit()
        threading.Thread(target=self._keep, args=(ended,), name="upstream-host-lease", daemon=True).start()

    def runs(self) -> bool:
        """Return whether the job of this lease is starting or runs."""
        try:
            return self._runs()
        except Exception:  # noqa: BLE001 Spark is gone, in whichever way that shows
            return False

    def release(self) -> None:
        """Release the lease if it is this run's own. A lease that cannot be released runs out."""
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
        """Release the lease of a job of this process that has ended, before its own thread does so."""
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
    """Release what this process holds when it ends: on another machine, no one could see that it is gone."""
    atexit.register(lambda: [each.release() for each in list(_ours.values())])


def _shown(time_us: int) -> str:
    return dt.datetime.fromtimestamp(time_us / 1e6, dt.timezone.utc).isoformat(timespec="seconds")
