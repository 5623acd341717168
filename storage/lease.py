"""A lease on a folder: one holder at a time, which renews it, and whose end or silence frees it.

A lease is a file with a number, and the newest number counts. Who takes the lease puts the next number, so of two that
take it over at once one finds the number taken. The holder renews its own file alone: however late it does so, a later
holder keeps the lease. The newest file stays when its lease is released, so that numbers only grow.
"""

from __future__ import annotations

import dataclasses
import json
import os
from abc import ABC, abstractmethod
from typing import Any

from ..conf.errors import UpstreamError
from ..conf.process_identity import Process
from .atomic_write import write_whole
from .folder import TableFolder

__all__ = ["Lease", "LeaseFolder"]

# Renewed when a third is over: two renewals may be lost.
_RENEW_AFTER = 3
# Clocks of two machines may differ by a quarter of the term without a lease being taken too early.
_ALLOWANCE = 4
# Each attempt fails only if another process has taken the lease meanwhile.
_ATTEMPTS = 10


@dataclasses.dataclass(frozen=True)
class Lease:
    """A lease as its file has it.

    Attributes
    ----------
    holder : str
        The holder's id. Another start of the same holder has the lease at once.
    process : Process
        The holder's.
    since_us : int
        When the holder took it, by its own clock, in microseconds since the epoch.
    renewed_us : int
        When the holder took or renewed it last.
    term_us : int
        For how long then.
    released : bool
        Whether the holder gave it up.
    """

    holder: str
    process: Process
    since_us: int
    renewed_us: int
    term_us: int
    released: bool = False

    @property
    def until_us(self) -> int:
        """The time from which another holder may take it, by that holder's clock."""
        return self.renewed_us + self.term_us + self.term_us // _ALLOWANCE

    def has_ended(self, now_us: int) -> bool:
        """Return whether it was released or has run out, or the holder's process is gone."""
        return self.released or now_us >= self.until_us or self.process.is_gone()

    def is_due(self, now_us: int) -> bool:
        """Return whether the holder is to renew it. A clock that was set back makes it due as well."""
        return abs(now_us - self.renewed_us) >= self.term_us // _RENEW_AFTER

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value, the inverse of :meth:`from_json`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Lease:
        """Return the lease that :meth:`to_json` described. Unknown names, of later versions, are ignored."""
        known: dict[str, Any] = {field.name: value[field.name] for field in dataclasses.fields(cls)}
        process = {field.name: value["process"][field.name] for field in dataclasses.fields(Process)}
        known["process"] = Process(**process)
        return cls(**known)


class LeaseFolder(ABC):
    """The lease on a folder.

    Parameters
    ----------
    folder
        The folder.
    below
        The path below it of the folder with the lease's files.
    exclusive
        Whether a file is put only if its number is free, which not every object store can do. Otherwise of two that
        take the lease at once, the one that wrote last has it, and the other finds out when it reads the file back, or
        later.
    """

    def __init__(self, folder: TableFolder, below: str, *, exclusive: bool) -> None:
        self._folder = folder
        self._place = folder.below(below)
        self._below = below
        self._exclusive = exclusive

    def read(self) -> Lease | None:
        """Return the lease; None if there is none, if it was released, or if its file is not whole."""
        found = self.newest()
        return None if found is None or found.released else found

    def newest(self) -> Lease | None:
        """Return the newest lease, also if it was released; None if there is none, or if its file is not whole."""
        return self._newest()[1]

    def hold(self, holder: str, process: Process, term_us: int, now_us: int) -> None:
        """Take the lease, or renew it.

        Parameters
        ----------
        holder, process
            The id of who is to have it, and its process.
        term_us
            The lease's term; 0 takes none and ignores others.
        now_us
            The time.

        Raises
        ------
        UpstreamError
            Another holder has it, and its process is not known to be gone; or the file cannot be written.
        """
        if term_us == 0:
            return
        for _ in range(_ATTEMPTS):
            number, found = self._newest()
            if found is not None and found.holder == holder and not found.released:
                renewed = dataclasses.replace(found, process=process, renewed_us=now_us, term_us=term_us)
                if found.is_due(now_us) or dataclasses.replace(found, renewed_us=now_us) != renewed:
                    self._write(number, renewed)
                return
            if found is not None and not found.has_ended(now_us):
                raise self.held(found, now_us)
            if self._put(number + 1, Lease(holder, process, now_us, now_us, term_us)):
                # A number whose file is gone can be put once more by who looked long ago. The newest counts.
                last, winner = self._newest()
                if last == number + 1 and winner is not None and winner.holder == holder:
                    self._place.remove(_name(each) for each in self._numbers() if each <= number)
                    return
        raise self.unwritable(f"other processes took it {_ATTEMPTS} times meanwhile")

    def release(self, holder: str | None = None) -> Lease | None:
        """Release the lease of a holder, or without one whoever holds it; return what was released."""
        number, found = self._newest()
        if found is None or found.released or holder not in (None, found.holder):
            return None
        self._write(number, dataclasses.replace(found, released=True))
        return found

    @abstractmethod
    def held(self, lease: Lease, now_us: int) -> UpstreamError:
        """Return the error that another holder has the lease."""

    @abstractmethod
    def unwritable(self, problem: str) -> UpstreamError:
        """Return the error that the lease cannot be written."""

    def _numbers(self) -> list[int]:
        try:
            names = self._place.names("")
        except NotADirectoryError:  # a file in the folder's place: it is refused when the lease is written
            return []
        stems = (name.partition(".") for name in names)
        return [int(stem) for stem, _, suffix in stems if suffix == "json" and stem.isdigit()]

    def _newest(self) -> tuple[int, Lease | None]:
        """Return the newest number, 0 if there is none, and its lease."""
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

    def _write(self, number: int, lease: Lease) -> None:
        try:
            write_whole(self._place, _name(number), lambda stream: stream.write(_content(lease)))
        except OSError as error:
            raise self.unwritable(self._folder.masked(error)) from error


def _name(number: int) -> str:
    return f"{number:020d}.json"


def _content(lease: Lease) -> bytes:
    return json.dumps(lease.to_json()).encode()
