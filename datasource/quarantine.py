"""Receivers of malformed rows: a folder of JSON lines, or an error."""

from __future__ import annotations

import json

from ..conf.errors import MalformedRowError, UpstreamError
from ..storage.atomic_write import write_whole
from ..storage.folder import TableFolder, folder_at

__all__ = ["Failing", "Quarantine", "count_quarantined"]

# A line of a broken binary file can be long; what is kept of it is enough to recognise it.
_MOST_TEXT = 65_536
_BLOCK = 1 << 20
# What is held of malformed rows until it is written, so that memory does not grow with them.
_MOST_BYTES = 8 << 20


class Failing:
    """Raises MalformedRowError on the first malformed row (`onMalformed=fail`)."""

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        where = place + (f", line {line}" if line is not None else "")
        raise MalformedRowError(
            f"malformed row at {where}: {reason}; it reads {text[:200]!r}",
            hint="mend the row and restart, or set onMalformed=quarantine to put such rows aside",
        )


class Quarantine:
    """A writer of one task's malformed rows, in files of some megabytes.

    All machines of a cluster share the folder. A replay uses the same names for the same rows and replaces the files,
    so each row is there once. `name` is the first file's; the next are numbered.
    """

    def __init__(self, folder: str | TableFolder, name: str) -> None:
        self._folder = folder_at(folder)
        self._name = name
        self._lines: list[bytes] = []
        self._size = 0
        self._files = 0
        self._rows = 0

    def report(self, *, text: str, place: str, line: int | None, reason: str) -> None:
        row = {"place": place, "line": line, "reason": reason, "text": text[:_MOST_TEXT]}
        # A name or a text of any bytes can be written.
        self._lines.append((json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))
        self._size += len(self._lines[-1])
        self._rows += 1
        if self._size >= _MOST_BYTES:
            self._put()

    def write(self) -> int:
        """Write the rest atomically, and return the number of rows. Without rows there is no file."""
        if self._lines:
            self._put()
        return self._rows

    def _put(self) -> None:
        name = self._name if not self._files else f"{self._name.removesuffix('.jsonl')}-{self._files:04d}.jsonl"
        lines = self._lines
        try:
            with self._folder.guarded():
                write_whole(self._folder, name, lambda stream: stream.write(b"".join(lines)))
        except OSError as error:
            raise UpstreamError(
                f"{len(lines)} malformed rows cannot be written to {self._folder.location}: {error}",
                hint="set quarantineLocation to a folder that every worker can write to, or onMalformed=fail",
            ) from error
        self._lines, self._size, self._files = [], 0, self._files + 1


def count_quarantined(folder: TableFolder) -> int:
    """Return the number of rows in a quarantine folder."""
    names = [name for name in folder.names("") if name.endswith(".jsonl")]
    return sum(folder.each(lambda name: _lines(folder, name), names))


def _lines(folder: TableFolder, name: str) -> int:
    lines = low = 0
    while block := folder.read_range(name, low, _BLOCK):
        lines, low = lines + block.count(b"\n"), low + len(block)
    return lines
