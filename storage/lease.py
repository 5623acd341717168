"""Leases on folders, each with one holder at a time, which renews it. Its release, end or silence frees the lease."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from abc import ABC, abstractmethod
from typing import Any

from ..conf.errors import UpstreamError
from ..conf.process_identity import Process
from .atomic_write import write_whole
from .folder import TableFolder

_LOG = logging.getLogger(__name__)
# Renewed when a third is over: two renewals may be lost.
_RENEW_AFTER = 3
# Clocks of two machines may differ by a quarter of the term without a lease being taken too early.
_ALLOWANCE = 4
# Each attempt fails only if another process has taken the lease meanwhile.
_ATTEMPTS = 10


@dataclasses.dataclass(frozen=True)
class Lease:
    """A lease as its file has it. Times are in microseconds since the epoch, by the holder's clock."""

    holder: str  # an id: a restart with the same id has the lease at once
    process: Process
    since_us: int  # when the holder took it
    renewed_us: int  # when the holder took it or last renewed it
    term_us: int  # the validity from then on
    released: bool = False  # whether the holder gave it up

    @property
    def until_us(self) -> int:
        """The time from which another holder may take it, by that holder's clock."""
        return self.renewed_us + self.term_us + self.term_us // _ALLOWANCE

    def has_ended(self, now_us: int) -> bool:
        """Return whether it was released or has expired, or the holder's process is gone."""
        return self.released or now_us >= self.until_us or self.process.is_gone()

    def is_due(self, now_us: int) -> bool:
        """Return whether the holder must renew it, also because its clock was set back."""
        return abs(now_us - self.renewed_us) >= self.term_us // _RENEW_AFTER

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Lease:
        """Return the lease that :meth:`to_json` described, ignoring names of later versions."""
        known: dict[str, Any] = {field.name: value[field.name] for field in dataclasses.fields(cls)}
        process = {field.name: value["process"][field.name] for field in dataclasses.fields(Process)}
        known["process"] = Process(**process)
        return cls(**known)


class LeaseFolder(ABC):
    """The lease on a folder, in numbered files of which the newest counts.

    To take the lease, a holder puts the next number, so one of two concurrent attempts fails. It renews its own file
    alone, so even a delayed renewal never undoes a later holder's lease. The newest file outlives a release, so numbers
    only grow. Without `exclusive`, in a store without conditional puts, the last writer wins and the other finds out
    when it reads the file.
    """

    def __init__(self, folder: TableFolder, below: str, *, exclusive: bool) -> None:
        self._folder = folder
        self._place = folder.below(below)
        self._below = below
        self._exclusive = exclusive

    def read(self) -> Lease | None:
        """Return the lease; None if there is none, if it was released, or if its file is incomplete."""
        found = self.newest()
        return None if found is None or found.released else found

    def newest(self) -> Lease | None:
        """Return the newest lease, even if released; None if there is none, or if its file is incomplete."""
        return self._newest()[1]

    def hold(self, holder: str, process: Process, term_us: int, now_us: int) -> None:
        """Take the lease, or renew it; a term of 0 takes none and ignores others.

        An UpstreamError means that another holder, not known to be gone, has it, or that the file cannot be written and
        the lease has expired.
        """
        if term_us == 0:
            return
        for _ in range(_ATTEMPTS):
            number, found = self._newest()
            if found is not None and found.holder == holder and not found.released:
                renewed = dataclasses.replace(found, process=process, renewed_us=now_us, term_us=term_us)
                if found.is_due(now_us) or dataclasses.replace(found, renewed_us=now_us) != renewed:
                    self._renew(number, found, renewed)
                return
            if found is not None and not found.has_ended(now_us):
                raise self.held(found, now_us)
            if self._put(number + 1, Lease(holder, process, now_us, now_us, term_us)):
                # A slow process can put a number again whose file is gone, so only the newest counts.
                last, winner = self._newest()
                if last == number + 1 and winner is not None and winner.holder == holder:
                    self._place.remove(_name(each) for each in self._numbers() if each <= number)
                    return
        raise self.unwritable(f"other processes took it {_ATTEMPTS} times meanwhile")

    def release(self, holder: str | None = None) -> Lease | None:
        """Release the lease of a holder, or of any holder by default; return it, or None."""
        number, found = self._newest()
        if found is None or found.released or holder not in (None, found.holder):
            return None
        self._write(number, dataclasses.replace(found, released=True))
        return found

    @abstractmethod
    def held(self, lease: Lease, now_us: int) -> UpstreamError:
        """Return the error for a lease that another holder has."""

    @abstractmethod
    def unwritable(self, problem: str) -> UpstreamError:
        """Return the error for a lease that cannot be written."""

    def _numbers(self) -> list[int]:
        try:
            names = self._place.names("")
        except NotADirectoryError:  # a file in the folder's place: it is refused when the lease is written
            return []
        stems = (name.partition(".") for name in names)
        return [int(stem) for stem, _, suffix in stems if suffix == "json" and stem.isdigit()]

    def _newest(self) -> tuple[int, Lease | None]:
        """Return the newest number and its lease; 0 and None if there is none."""
        number = 0
        for _ in range(_ATTEMPTS):
            number = max(self._numbers(), default=0)
            if not number:
                return 0, None
            try:
                return number, Lease.from_json(json.loads(self._place.read(_name(number))))
            except FileNotFoundError:  # a later holder has removed it: look again
                continue
            except (ValueError, KeyError, TypeError):
                break
        return number, None

    def _put(self, number: int, lease: Lease) -> bool:
        """Write a new number; return False if another process has put it."""
        if not self._exclusive:
            self._write(number, lease)
            return True
        try:
            if self._place.is_local:
                os.makedirs(self._place.location, exist_ok=True)
            return self._place.put_new(_name(number), _content(lease))
        except OSError as error:
            raise self.unwritable(self._folder.masked(error)) from error

    def _renew(self, number: int, lease: Lease, renewed: Lease) -> None:
        """Write a renewed lease. A failure is only a warning while the lease is still valid."""
        try:
            self._write(number, renewed)
        except UpstreamError as error:
            if renewed.renewed_us >= lease.renewed_us + lease.term_us:
                raise
            _LOG.warning("%s The lease is valid until it is %d s old.", error, lease.term_us // 1_000_000)

    def _write(self, number: int, lease: Lease) -> None:
        try:
            write_whole(self._place, _name(number), lambda stream: stream.write(_content(lease)))
        except OSError as error:
            raise self.unwritable(self._folder.masked(error)) from error


def _name(number: int) -> str:
    return f"{number:020d}.json"


def _content(lease: Lease) -> bytes:
    return json.dumps(lease.to_json()).encode()
