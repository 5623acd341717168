"""Splits of one file: the driver cuts at line ends, within a budget, so that tasks never guess."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

from ....conf.errors import SchemaError
from ..contract import Limit
from .content import (
    Footer,
    codec_of,
    count_lines,
    fingerprint,
    footer,
    head_length,
    last_line_end,
    line_end_after,
    nth_line_end,
)
from .formats.lines import Head, LineFormat, last_row_end
from .frontier import Frontier, changed
from .options import FilesOptions
from .positions import FilePosition
from .store import FileAccess, kind_by_name

FormatOf = Callable[[str, bytes], "LineFormat | None"]


class FileInspector:
    """An inspector of files that caches expensive results.

    `format_of` returns the line format of a path and its first bytes, by option or name; None for Parquet. `fits`
    raises FeedChangedError if a file's columns are not the schema's. `damaged` maps files that cannot be read to their
    end to the time of that discovery.
    """

    def __init__(self, format_of: FormatOf, fits: Callable[[str, Head | Footer], None], access: FileAccess) -> None:
        self._format_of = format_of
        self._fits = fits
        self._access = access
        # Lines of compressed files that did not fit into a batch, by path, with the size and time they hold for.
        self._counted: dict[str, tuple[int, int, int]] = {}
        self.damaged: dict[str, int] = {}

    def lines_of(self, path: str, entry: FilePosition, now_us: int) -> int | str:
        """Return how many lines a compressed file holds at most, or why it cannot be read yet."""
        known = self._counted.get(path)
        if known is None or known[:2] != (entry.size, entry.mtime_ns):
            try:
                with self._access.open(path) as file:
                    lines = count_lines(file, entry.kind)
            except OSError as error:
                self.damaged[path] = now_us
                return str(error)
            known = self._counted[path] = (entry.size, entry.mtime_ns, lines)
        return known[2]

    def forget_lines(self, path: str) -> None:
        self._counted.pop(path, None)
        self.damaged.pop(path, None)

    def footer_of(self, path: str, now_us: int) -> Footer | None:
        """Return a Parquet file's footer, or ``None`` if it is not there yet."""
        with self._access.open(path) as file:
            found = footer(file)
        if found is None:
            self.damaged[path] = now_us
        return found

    def head_of(self, path: str, file: BinaryIO, end: int) -> Head | None:
        """Return the head of a text file, or ``None`` if its first bytes are not all there yet."""
        size = 1 << 16
        while True:
            file.seek(0)
            start = file.read(min(size, end))
            form = self.text_format(path, start)
            try:
                head = form.head(start, complete=False)
            except SchemaError as error:
                raise SchemaError(f"file {path}: {error.problem}", expected=error.expected, hint=error.hint) from error
            if head is not None:
                self._fits(path, head)
                return head
            if len(start) == end:
                return None
            size *= 4

    def kind_of(self, path: str, file: BinaryIO) -> str:
        """Return the kind of a file: "text", "parquet", or the codec of compressed text."""
        codec = codec_of(file, kind_by_name(path)[1])
        file.seek(0)
        if self._format_of(path, b"" if codec else file.read(64)) is None:
            return "parquet"
        return codec or "text"

    def text_format(self, path: str, start: bytes) -> LineFormat:
        form = self._format_of(path, start)
        assert form is not None
        return form

    def fit(self, path: str, foot: Footer) -> None:
        self._fits(path, foot)


QUIET_US = 60_000_000
"""A quote that is open at the end of a file counts as never closed after this time without a change."""

# An unfinished last line counts as finished after this time without a change.
_SETTLED_US = 10_000_000
# Ranges are cut no smaller than this much beyond the size asked for.
_SLACK = 1.25


@dataclasses.dataclass(frozen=True)
class PlanTime:
    """The circumstances in which a batch is planned."""

    now_us: int
    frozen: bool  # only input that was there at one time is read
    everything: bool  # all of that at once


class Split(NamedTuple):
    """A range of one file: its place, an upper bound of its rows, its arrival, and what it counts against limits."""

    place: dict[str, Any]
    span: int
    arrival_us: int | None
    rows: int
    size: int


class Budget:
    """The rest of a batch's limit. At least one split always fits, so that the stream progresses."""

    def __init__(self, limit: Limit) -> None:
        self.rows = limit.rows
        self.bytes = limit.bytes
        self.files = limit.files
        self.paths: set[str] = set()
        self.moved = False

    def spent(self) -> bool:
        return self.rows == 0 or self.bytes == 0

    def admits(self, path: str) -> bool:
        return self.files is None or path in self.paths or len(self.paths) < self.files

    def exceeded_by(self, rows: int, size: int) -> bool:
        return (self.rows is not None and rows > self.rows) or (self.bytes is not None and size > self.bytes)

    def share(self, parts: int) -> Budget:
        part = Budget(
            Limit(
                None if self.rows is None else -(-self.rows // parts),
                None if self.bytes is None else -(-self.bytes // parts),
                self.files,
            )
        )
        part.paths, part.moved = self.paths, self.moved
        return part

    def take(self, path: str, rows: int, size: int) -> None:
        self.paths.add(path)
        self.moved = True
        if self.rows is not None:
            self.rows = max(0, self.rows - rows)
        if self.bytes is not None:
            self.bytes = max(0, self.bytes - size)


class FileSplitter:
    """A splitter of one open file."""

    def __init__(
        self,
        options: FilesOptions,
        inspector: FileInspector,
        frontier: Frontier,
        path: str,
        file: BinaryIO,
        moment: PlanTime,
    ) -> None:
        self._options = options
        self._inspector = inspector
        self._frontier = frontier
        self._path = path
        self._file = file
        self._moment = moment
        self._entry = frontier.entries[path]
        self._marked = (-1, -1, "")

    def take(self, budget: Budget, following: int | None) -> list[Split] | None:
        """Return splits, none if there is nothing to read yet; ``None`` if the next split exceeds the budget."""
        entry = self._entry
        size = self._file.seek(0, 2)
        if size < (entry.end if entry.kind in ("", "text") else entry.size):
            raise changed(self._path, f"has shrunk to {size} bytes")
        if not entry.kind:
            entry.kind = self._inspector.kind_of(self._path, self._file)
        if entry.kind == "parquet":
            return self._groups(budget)
        if entry.kind != "text":
            return self._compressed(budget)
        if self._begun() and self._continued():
            return self._lines(budget, following)
        return []

    # Text: ranges of bytes between line ends

    def _begun(self) -> bool:
        """Skip the header; return whether it is complete."""
        entry = self._entry
        if entry.mark:
            return True
        head = self._inspector.head_of(self._path, self._file, entry.end)
        if head is None:
            entry.kind = ""
            self._hold("its header is not complete")
            return False
        entry.head = head_length(entry.end, head.start)
        self._step_to(head.start)
        return True

    def _continued(self) -> bool:
        """Skip the end of a last line that was taken without one; return whether the rest can be split."""
        entry = self._entry
        if entry.to < 4:  # nothing, or a byte order mark
            return True
        self._file.seek(entry.to - 1)
        around = self._file.read(3)
        if around[:1] == b"\n":
            return True
        if around[1:] == b"\r" and entry.end == entry.to + 1:
            self._hold("unfinished")
            return False
        skip = 1 if around[1:2] == b"\n" else 2 if around[1:] == b"\r\n" else 0
        if not skip:
            raise changed(
                self._path,
                f"continues at byte {entry.to} within a line that was delivered as its last one; it was not complete "
                "then, "
                "and lastLine=terminated would have waited for it",
            )
        self._step_to(entry.to + skip)
        return True

    def _step_to(self, to: int) -> None:
        entry = self._entry
        entry.to = min(to, entry.end)
        entry.mark = self._mark(entry.to)
        entry.segments[:] = [segment for segment in entry.segments if segment[0] > entry.to]

    def _lines(self, budget: Budget, following: int | None) -> list[Split]:
        entry = self._entry
        if not entry.segments:
            return []
        ends, all_of_it = self._finished(following)
        last_seen, last_arrival = entry.segments[-1]
        if all_of_it and self._options.multi_line and self._moment.now_us - entry.mtime_ns // 1000 >= QUIET_US:
            low = ends[-1][0] if ends else entry.to
            end = last_line_end(self._file, low, last_seen)
            if end > low:
                ends.append((end, last_arrival))
        if all_of_it and (not ends or ends[-1][0] < last_seen) and self._last_counts():
            ends.append((last_seen, last_arrival))
        low = high = entry.to
        rows: int | None = None
        if ends:
            high, rows = self._within(low, ends[-1][0], budget)
        splits = self._cut(low, high, ends, rows)
        self._step_to(high)
        if entry.segments and self._last_row_end(high, entry.end) == high:
            self._hold("unfinished")
        return splits

    def _finished(self, following: int | None) -> tuple[list[tuple[int, int]], bool]:
        """Return each segment's last row end and arrival, up to other files' earlier rows, and whether that is all.

        A row that spans segments arrives with the last of them.
        """
        ends: list[tuple[int, int]] = []
        low = self._entry.to
        for number, (end, arrival) in enumerate(self._entry.segments):
            if following is not None and arrival > following:
                if not ends:  # only the start of a row came before
                    del self._entry.segments[:number]
                return ends, False
            row_end = self._last_row_end(low, end)
            if row_end > low:
                ends.append((row_end, arrival))
                low = row_end
        return ends, True

    def _last_row_end(self, low: int, high: int) -> int:
        if not self._options.multi_line:
            return last_line_end(self._file, low, high)
        return last_row_end(self._file, low, high, self._options.quote.encode(), self._options.max_row_bytes)

    def _last_counts(self) -> bool:
        rule, moment = self._options.last_line, self._moment
        if rule == "terminated":
            return False
        if rule == "auto":
            settled = moment.now_us - self._entry.mtime_ns // 1000 >= _SETTLED_US
            if not moment.frozen or not (settled or moment.everything):
                return False
        # If it is longer now, it was not complete when it was seen.
        return self._file.seek(0, 2) == self._entry.end

    def _within(self, low: int, high: int, budget: Budget) -> tuple[int, int | None]:
        """Return the end within the budget, after at least one line, and the number of lines if rows are limited.

        With `multiLine`, the budget does not move the end.
        """
        if self._options.multi_line:
            return high, None
        if budget.bytes is not None and high - low > budget.bytes:
            end = last_line_end(self._file, low, low + budget.bytes)
            high = end if end > low else line_end_after(self._file, low, high)
        if budget.rows is None:
            return high, None
        end, rows = nth_line_end(self._file, low, high, budget.rows)
        if rows == budget.rows:
            return end, rows
        return high, max(1, rows + self._unterminated(high))

    def _unterminated(self, high: int) -> bool:
        self._file.seek(high - 1)
        return self._file.read(1) != b"\n"

    def _cut(self, low: int, high: int, ends: list[tuple[int, int]], rows: int | None) -> list[Split]:
        splits: list[Split] = []
        while low < high:
            end = high
            if high - low > self._options.split_bytes * _SLACK and not self._options.multi_line:
                end = line_end_after(self._file, low + self._options.split_bytes - 1, high)
            inside: list[tuple[int, int]] = []
            for each, arrival in ends:
                if each > low:
                    inside.append((min(each, end), arrival))
                if each >= end:
                    break
            place: dict[str, Any] = {
                "path": self._path,
                "from": low,
                "to": end,
                "head": self._entry.head,
                "mark": self._mark(end),
            }
            same = len({arrival for _, arrival in inside}) == 1
            if not same:
                place["arrivals"] = [list(each) for each in inside]
            here = 0
            if rows is not None:
                here = rows if end == high else nth_line_end(self._file, low, end, 1 << 62)[1]
                rows -= here
            size = end - low
            splits.append(Split(place, min(size, here) or size, inside[0][1] if same else None, here, size))
            low = end
        return splits

    # Compressed text: whole files

    def _compressed(self, budget: Budget) -> list[Split] | None:
        entry = self._entry
        lines = self._inspector.lines_of(self._path, entry, self._moment.now_us)
        if isinstance(lines, str):
            self._hold(lines)
            return []
        if budget.moved and budget.exceeded_by(lines, entry.size):
            return None
        self._inspector.forget_lines(self._path)
        place = self._whole()
        arrival = entry.segments[0][1]
        entry.to = entry.size
        entry.segments.clear()
        place["codec"] = entry.kind
        return [Split(place, lines, arrival, lines, entry.size)] if lines else []

    # Parquet: row groups

    def _groups(self, budget: Budget) -> list[Split] | None:
        entry = self._entry
        foot = self._inspector.footer_of(self._path, self._moment.now_us)
        if foot is None:
            self._hold("its footer is not written")
            return []
        self._inspector.forget_lines(self._path)
        self._inspector.fit(self._path, foot)
        arrival = entry.segments[0][1]
        splits: list[Split] = []
        left = budget.share(1)
        low, last = entry.to, len(foot.rows)
        while low < last and not left.spent():
            high, rows, size = low, 0, 0
            while high < last and (high == low or size + foot.sizes[high] <= self._options.split_bytes):
                more, bigger = rows + foot.rows[high], size + foot.sizes[high]
                if left.exceeded_by(more, bigger) and (left.moved or high > low):
                    break
                high, rows, size = high + 1, more, bigger
            if high == low:
                break
            splits.append(Split({**self._whole(), "groups": [low, high]}, rows, arrival, rows, size))
            left.moved = True
            left.rows = None if left.rows is None else max(0, left.rows - rows)
            left.bytes = None if left.bytes is None else max(0, left.bytes - size)
            low = high
        if not splits and low < last:
            return None
        entry.to = low
        if low == last:
            self._whole()
            entry.segments.clear()
        return [split for split in splits if split.rows]

    def _whole(self) -> dict[str, Any]:
        """Return a range of a whole file that must stay as it is, by a fingerprint of all of it."""
        entry = self._entry
        entry.head = head_length(entry.size, 0)
        entry.mark = self._mark(entry.size)
        return {"path": self._path, "size": entry.size, "head": entry.head, "mark": entry.mark}

    def _mark(self, to: int) -> str:
        head = self._entry.head
        if self._marked[:2] != (head, to):
            self._marked = (head, to, fingerprint(self._file, head, to))
        return self._marked[2]

    def _hold(self, why: str) -> None:
        self._frontier.hold(self._path, why)
