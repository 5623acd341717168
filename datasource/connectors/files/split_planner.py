"""A batch's ranges of files: the feeds' turns, and their shares of a limit."""

from __future__ import annotations

from collections.abc import Callable

from ..contract import Limit, Range
from .formats.columnar import Footer
from .formats.lines import Head
from .frontier import Frontier, changed
from .inspector import FileInspector, FormatOf
from .options import FilesOptions
from .splits import Budget, FileSplitter, Moment, Split
from .store import FileAccess

__all__ = ["SplitPlanner"]

# A file that cannot be read to its end counts as damaged after this time without a change.
_DAMAGED_US = 60_000_000


class SplitPlanner:
    """A planner of ranges from a frontier. `format_of` and `fits` are as for :class:`~.inspector.FileInspector`."""

    def __init__(
        self,
        options: FilesOptions,
        format_of: FormatOf,
        fits: Callable[[str, Head | Footer], None],
        access: FileAccess,
    ) -> None:
        self._options = options
        self._access = access
        self._inspector = FileInspector(format_of, fits, access)

    def take(self, frontier: Frontier, limit: Limit, moment: Moment) -> list[Range]:
        """Return ranges within the limit, per feed in order of arrival; feeds share the limit fairly.

        Raise FeedChangedError if a file differs from its record, has other columns, or stays incomplete.
        """
        budget = Budget(limit)
        ranges: list[Range] = []
        waiting = list(frontier.turns)
        while waiting and not budget.spent():
            before = len(ranges)
            for number, feed in enumerate(waiting):
                share = budget.share(len(waiting) - number)
                for split in [] if share.spent() else self._take_feed(frontier, feed, share, moment):
                    budget.take(split.place["path"], split.rows, split.size)
                    ranges.append(Range(feed, split.place, max(1, split.span), split.arrival_us))
            if len(ranges) == before:
                break
            waiting = [feed for feed in waiting if feed in frontier.turns]
        self._check_damaged(frontier, moment)
        return ranges

    def _check_damaged(self, frontier: Frontier, moment: Moment) -> None:
        for path, noticed in list(self._inspector.damaged.items()):
            why = frontier.held.get(path)
            if why is None:
                del self._inspector.damaged[path]
                continue
            since = min(noticed, frontier.entries[path].mtime_ns // 1000) if moment.frozen else noticed
            if moment.everything or moment.now_us - since >= _DAMAGED_US:
                what = (
                    "is still being written"
                    if moment.everything
                    else "has not changed for a minute and is not complete"
                )
                raise changed(path, f"{what}: {why}")

    def _take_feed(self, frontier: Frontier, feed: str, budget: Budget, moment: Moment) -> list[Split]:
        taken: list[Split] = []
        while not budget.spent() and (turn := frontier.peek(feed)) is not None:
            path, following = turn
            if not budget.admits(path):
                break
            try:
                with self._access.open(path) as file:
                    splits = FileSplitter(self._options, self._inspector, frontier, path, file, moment).take(
                        budget, following
                    )
            except FileNotFoundError as error:
                raise changed(path, "has disappeared before all of it was consumed") from error
            except OSError as error:
                raise changed(path, f"cannot be read: {error}") from error
            if splits is None:
                break
            frontier.pop(feed)
            frontier.consumed(path)
            for split in splits:
                budget.take(path, split.rows, split.size)
            taken += splits
        return taken
