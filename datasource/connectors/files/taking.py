"""What one batch takes of the files: the feeds' turns, and their shares of a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from ....conf.errors import SchemaError
from ..contract import Limit, Range
from .content import codec_of, count_lines
from .formats.columnar import Footer, footer
from .formats.lines import Head, LineFormat
from .frontier import Frontier, changed
from .options import FilesOptions
from .paths import kind_by_name
from .pieces import Budget, Moment, Piece, TakingFile
from .positions import Entry
from .store import FileAccess

__all__ = ["Taking"]

# A file that cannot be read to its end counts as damaged after this time without a change.
_DAMAGED_US = 60_000_000

FormatOf = Callable[[str, bytes], "LineFormat | None"]


class Taking:
    """Takes ranges from a frontier.

    Parameters
    ----------
    options
        How ranges are cut.
    format_of : callable
        The line format of a path and its first bytes, by option or name; ``None`` for Parquet.
    fits : callable
        Raises FeedChangedError if a file's columns are not those of the schema.
    access
        Reads the files.
    """

    def __init__(
        self,
        options: FilesOptions,
        format_of: FormatOf,
        fits: Callable[[str, Head | Footer], None],
        access: FileAccess,
    ) -> None:
        self._options = options
        self._format_of = format_of
        self._fits = fits
        self._access = access
        # Lines of compressed files that did not fit into a batch, by path, with the size and time they hold for.
        self._counted: dict[str, tuple[int, int, int]] = {}
        self._damaged: dict[str, int] = {}

    def take(self, frontier: Frontier, limit: Limit, moment: Moment) -> list[Range]:
        """Ranges within the limit, per feed in order of arrival; feeds share a limit fairly.

        Raises
        ------
        FeedChangedError
            A file is not what it was, or has other columns.
        """
        budget = Budget(limit)
        ranges: list[Range] = []
        waiting = list(frontier.turns)
        while waiting and not budget.spent():
            before = len(ranges)
            for number, feed in enumerate(waiting):
                share = budget.share(len(waiting) - number)
                for piece in [] if share.spent() else self._take_feed(frontier, feed, share, moment):
                    budget.take(piece.place["path"], piece.rows, piece.size)
                    ranges.append(Range(feed, piece.place, max(1, piece.span), piece.arrival_us))
            if len(ranges) == before:
                break
            waiting = [feed for feed in waiting if feed in frontier.turns]
        self._check_damaged(frontier, moment)
        return ranges

    def _check_damaged(self, frontier: Frontier, moment: Moment) -> None:
        for path, noticed in list(self._damaged.items()):
            why = frontier.held.get(path)
            if why is None:
                del self._damaged[path]
                continue
            since = min(noticed, frontier.entries[path].mtime_ns // 1000) if moment.frozen else noticed
            if moment.everything or moment.now_us - since >= _DAMAGED_US:
                what = (
                    "is still being written"
                    if moment.everything
                    else "has not changed for a minute and is not complete"
                )
                raise changed(path, f"{what}: {why}")

    def _take_feed(self, frontier: Frontier, feed: str, budget: Budget, moment: Moment) -> list[Piece]:
        taken: list[Piece] = []
        while not budget.spent() and (turn := frontier.peek(feed)) is not None:
            path, following = turn
            if not budget.admits(path):
                break
            try:
                with self._access.open(path) as file:
                    pieces = TakingFile(self, frontier, path, file, moment).take(budget, following)
            except FileNotFoundError as error:
                raise changed(path, "has disappeared before all of it was consumed") from error
            except OSError as error:
                raise changed(path, f"cannot be read: {error}") from error
            if pieces is None:
                break
            frontier.pop(feed)
            frontier.consumed(path)
            for piece in pieces:
                budget.take(path, piece.rows, piece.size)
            taken += pieces
        return taken

    def lines_of(self, path: str, entry: Entry, moment: Moment) -> int | str:
        """How many lines a compressed file holds at most, or why it cannot be read yet."""
        known = self._counted.get(path)
        if known is None or known[:2] != (entry.size, entry.mtime_ns):
            try:
                with self._access.open(path) as file:
                    lines = count_lines(file, entry.kind)
            except OSError as error:
                self._damaged[path] = moment.now_us
                return str(error)
            known = self._counted[path] = (entry.size, entry.mtime_ns, lines)
        return known[2]

    def forget_lines(self, path: str) -> None:
        """The file was taken."""
        self._counted.pop(path, None)
        self._damaged.pop(path, None)

    def footer_of(self, path: str, moment: Moment) -> Footer | None:
        """A Parquet file's footer, ``None`` if it is not there yet."""
        with self._access.open(path) as file:
            found = footer(file)
        if found is None:
            self._damaged[path] = moment.now_us
        return found

    def head_of(self, path: str, file: BinaryIO, end: int) -> Head | None:
        """What the first bytes of a text file say, ``None`` if they are not all there yet."""
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
        """What is to be read there: "text", "parquet", or text under a codec."""
        codec = codec_of(file, kind_by_name(path)[1])
        file.seek(0)
        if self._format_of(path, b"" if codec else file.read(64)) is None:
            return "parquet"
        return codec or "text"

    def text_format(self, path: str, start: bytes) -> LineFormat:
        """The format of a file that is known to hold lines."""
        form = self._format_of(path, start)
        assert form is not None
        return form

    def fit(self, path: str, foot: Footer) -> None:
        """Refuse other columns."""
        self._fits(path, foot)

    @property
    def options(self) -> FilesOptions:
        """How ranges are cut."""
        return self._options
