"""Inspection of files before they are split: kind, header or footer, and lines if compressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from ....conf.errors import SchemaError
from .content import codec_of, count_lines
from .formats.columnar import Footer, footer
from .formats.lines import Head, LineFormat
from .paths import kind_by_name
from .positions import Entry
from .store import FileAccess

__all__ = ["FileInspector", "FormatOf"]

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

    def lines_of(self, path: str, entry: Entry, now_us: int) -> int | str:
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
