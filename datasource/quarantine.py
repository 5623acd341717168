"""Where rows go that cannot be read: a folder of JSON lines, or an error."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from ..conf.errors import MalformedRowError, UpstreamError

__all__ = ["Failing", "Ignoring", "Quarantine", "count_quarantined"]

# A line of a broken binary file can be long; what is kept of it is enough to recognise it.
_MOST_TEXT = 65_536


class Failing:
    """Raises on the first malformed row (`onMalformed=fail`)."""

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        """Raise :class:`MalformedRowError` naming the place and the reason."""
        where = place + (f", line {line}" if line is not None else "")
        raise MalformedRowError(
            f"malformed row at {where}: {reason}; it reads {text[:200]!r}",
            hint="mend the row and restart, or set onMalformed=quarantine to put such rows aside",
        )


class Ignoring:
    """Takes no notice: for the driver's look at times, since the task that reads the row will report it."""

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        """Do nothing."""


@dataclasses.dataclass(frozen=True)
class _Row:
    place: str
    line: int | None
    reason: str
    text: str


class Quarantine:
    """Gathers malformed rows of one task and writes them as one file.

    Parameters
    ----------
    folder : str
        Where to; created if absent. On a cluster, a folder that all machines share.
    name : str
        The file's name. A replay of the batch uses the same name and so replaces the file: each row is there once.
    """

    def __init__(self, folder: str, name: str) -> None:
        self._folder = Path(folder)
        self._name = name
        self._rows: list[_Row] = []

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        """Take one malformed row."""
        self._rows.append(_Row(place, line, reason, text[:_MOST_TEXT]))

    def write(self) -> int:
        """Write what was gathered, atomically; the number of rows. No rows, no file."""
        if not self._rows:
            return 0
        body = "".join(json.dumps(dataclasses.asdict(row), ensure_ascii=False) + "\n" for row in self._rows)
        # Another attempt of the same task may be writing the same file.
        staged = self._folder / f".{self._name}.{os.getpid()}.tmp"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            staged.write_text(body, encoding="utf-8")
            os.replace(staged, self._folder / self._name)
        except OSError as error:
            raise UpstreamError(
                f"{len(self._rows)} malformed rows cannot be written to {self._folder}: {error}",
                hint="set quarantineLocation to a folder that every worker can write to, or onMalformed=fail",
            ) from error
        return len(self._rows)


def count_quarantined(folder: str | os.PathLike[str]) -> int:
    """How many rows a quarantine folder holds; 0 if there is none."""
    total = 0
    for path in Path(folder).glob("*.jsonl"):
        with path.open("rb") as file:
            total += sum(block.count(b"\n") for block in iter(lambda f=file: f.read(1 << 20), b""))
    return total
