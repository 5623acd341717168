"""The `files` connector: discovery, positions, the ranges of a batch, and parsing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from ....conf.errors import FeedChangedError, OptionError
from ..contract import Advance, Chunk, Connector, Limit, MalformedRows, Position, Range, UnreadInput
from .content import Footer
from .discovery import Discovery, Sampler
from .formats.debezium import ChangeEventFormat
from .formats.jsonlines import JsonFormat
from .formats.lines import Head, LineFormat
from .formats.separated_values import DelimitedFormat
from .formats.zeek import ZeekFormat
from .frontier import Frontier, changed
from .options import FilesOptions
from .positions import EMPTY
from .splits import QUIET_US, Budget, FileInspector, FileSplitter, FormatOf, PlanTime, Split
from .store import FileAccess, feed_root, is_tab_separated, kind_by_name
from .task import RangeReader

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

    def take(self, frontier: Frontier, limit: Limit, moment: PlanTime) -> list[Range]:
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

    def _check_damaged(self, frontier: Frontier, moment: PlanTime) -> None:
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

    def _take_feed(self, frontier: Frontier, feed: str, budget: Budget, moment: PlanTime) -> list[Split]:
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


# Without a checkpointLocation the offsets grow with the files; from this many on that is worth a word.
_MANY_FILES = 10_000


class FilesConnector(Connector):
    """CSV, JSON lines, Parquet and Zeek logs; files that appear and files that grow.

    Guarantee: each row of each file is in exactly one range, whole. A range reads the same each time, or reading raises
    :class:`~upstream.conf.errors.FeedChangedError`. Text timestamps without a zone stay so, whatever the schema is:
    only the caller has the zone.

    `state_folder` belongs to this query and outlives the driver; it holds the list of consumed files. `key` is empty if
    the user gives the types. With `unseen`, an inferred column without a value has the null type, else it is text.
    """

    name = "files"
    joins_ranges = True

    def __init__(
        self,
        options: FilesOptions,
        *,
        state_folder: str | None = None,
        access: FileAccess | None = None,
        key: Sequence[str] = (),
        time: str | None = None,
        unseen: bool = False,
    ) -> None:
        self._unseen = unseen
        self._key, self._time = tuple(key), time
        self._options = options
        self._given = options.given()
        self._roots = [feed_root(path) for path in self._given]
        self._access = access or FileAccess()
        self._state_folder = state_folder
        self._schema: pa.Schema | None = None
        self._formats: dict[tuple[str, str], LineFormat] = {}
        self._frozen = False
        self._discovery: Discovery | None = None
        self._frontier: Frontier | None = None
        self._planner: SplitPlanner | None = None
        self._warned = False
        self._given_up: dict[str, int] = {}

    # The contract

    def schema(self) -> pa.Schema:
        """Return the given schema, or infer it from the first 16 MB of the first files, at most 16 of them."""
        if self._schema is None:
            sampler = Sampler(self._line_format, self._given, self._access, unseen=self._unseen)
            self._schema = sampler.schema(self._listed().everything())
        return self._schema

    def fix_schema(self, schema: pa.Schema) -> None:
        for form in self._formats.values():
            form.check(schema)
        self._schema = schema

    def feeds(self, position: Position | None) -> Sequence[str]:
        if self._options.feeds == "path":
            return list(self._given)
        frontier = self._frontier
        if frontier is None or frontier.position != (EMPTY if position is None else position):
            frontier = Frontier(
                EMPTY if position is None else position, self._state_folder, self._feed_of, self._access
            )
        return sorted(frontier.entries)

    def freeze(self, now_us: int) -> None:
        del now_us
        self._listed().freeze()
        self._frozen = True

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        """Return the ranges that follow a position; for a batch read (frozen, without a limit), all of them.

        Raise FeedChangedError if a file disappeared, shrank, or differs from what was consumed of it. After
        :meth:`freeze`, raise OptionError if there is no file and a plain path does not exist.
        """
        start = EMPTY if position is None else position
        frontier = self._at(start, now_us)
        if self._frozen and not frontier.entries:
            self._check_paths()
        moment = PlanTime(now_us, self._frozen, self._frozen and limit == Limit())
        ranges = self._split_planner().take(frontier, limit, moment)
        if ranges:
            frontier.position = frontier.ledger.position()
        self._frontier = frontier
        self._warn(frontier)
        waiting = {feed: frontier.turns[feed][0][0] for feed in list(frontier.turns) if frontier.peek(feed) is not None}
        return Advance(frontier.position if ranges else start, ranges, waiting=waiting)

    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        """Yield the rows of a range, in blocks of some megabytes; malformed lines are judged on the columns read."""
        schema = self.schema()
        wanted = schema.names if columns is None else list(columns)
        return RangeReader(part, schema, wanted, self._line_format, self._fits, self._access).chunks(malformed)

    def limit(self, common: Limit) -> Limit:
        return Limit(common.rows, common.bytes, self._options.max_files)

    def backlog(self, position: Position | None, now_us: int) -> dict[str, Any] | None:
        """Return how many files and bytes were seen and wait; None if the last look was at another position."""
        del now_us
        frontier = self._frontier
        if frontier is None or frontier.position != (EMPTY if position is None else position):
            return None
        return dict(frontier.backlog())

    def unread(self, position: Position | None, now_us: int, limit: Limit) -> UnreadInput:
        """Return the input beyond a position; a last line without its end is not among it."""
        frontier = Frontier(EMPTY if position is None else position, self._state_folder, self._feed_of, self._access)
        frontier.start(self._listed().everything(), now_us)
        left = frontier.left()
        files, size = ({feed: some[at] for feed, some in left.items()} for at in (0, 1))
        ranges = self._split_planner().take(frontier, limit, PlanTime(now_us, frozen=False, everything=False))
        return UnreadInput(ranges, not any(count for count, _ in frontier.left().values()), files, size)

    def commit(self, position: Position) -> None:
        """Remove a list of files that was replaced."""
        if self._frontier is not None:
            self._frontier.ledger.forget(position)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks only read.
        return {**self.__dict__, "_discovery": None, "_frontier": None, "_planner": None}

    # The driver

    def _listed(self) -> Discovery:
        if self._discovery is None:
            self._discovery = Discovery(
                self._roots,
                recursive=self._options.recursive,
                name_filter=self._options.name_filter,
                access=self._access,
            )
        return self._discovery

    def _split_planner(self) -> SplitPlanner:
        if self._planner is None:
            self._planner = SplitPlanner(self._options, self._line_format, self._fits, self._access)
        return self._planner

    def _at(self, position: Position, now_us: int) -> Frontier:
        frontier = self._frontier
        self._frontier = None  # kept only if nothing fails
        if frontier is None or frontier.position != position:
            frontier = Frontier(position, self._state_folder, self._feed_of, self._access)
            frontier.start(self._listed().everything(), now_us)
            return frontier
        found, gone = self._listed().changes()
        frontier.rename(found, gone)
        frontier.look_outside(now_us)
        for path, seen in found.items():
            frontier.see(path, seen, now_us)
        frontier.vanish(list(gone))
        if self._frozen:
            for path in [path for path, why in frontier.held.items() if why == "unfinished"]:
                frontier.again(path, now_us)
        elif self._options.multi_line:
            self._give_up(frontier, now_us)
        return frontier

    def _give_up(self, frontier: Frontier, now_us: int) -> None:
        """Requeue files that have not changed for a while: their last rows may wait for a quote that never comes."""
        for path, why in list(frontier.held.items()):
            changed_ns = frontier.entries[path].mtime_ns
            quiet = now_us - changed_ns // 1000 >= QUIET_US
            if why == "unfinished" and quiet and self._given_up.get(path) != changed_ns:
                self._given_up[path] = changed_ns
                frontier.again(path, now_us)

    def _feed_of(self, path: str, root: int) -> str:
        return path if self._options.feeds == "file" else self._given[root]

    def _check_paths(self) -> None:
        for given, root in zip(self._given, self._roots, strict=True):
            if not self._access.is_pattern(root) and not self._access.exists(root):
                raise OptionError(f"path {given!r} does not exist", hint="correct the option `path`")

    def _warn(self, frontier: Frontier) -> None:
        if self._warned or not frontier.ledger.inline_only or len(frontier.entries) <= _MANY_FILES:
            return
        self._warned = True
        warnings.warn(
            f"{len(frontier.entries)} files are listed in every offset of this query; set the option "
            "checkpointLocation to "
            "the query's checkpoint folder, and the list is kept there",
            stacklevel=2,
        )

    def _fits(self, path: str, found: Head | Footer) -> None:
        names = found.schema.names if isinstance(found, Footer) else found.columns
        if names is None or self._schema is None:
            return
        missing = [name for name in self._schema.names if name not in names]
        unexpected = [name for name in names if name not in self._schema.names]
        if missing or unexpected:
            parts = (
                f"lacks {', '.join(missing)}" if missing else "",
                f"has besides {', '.join(unexpected)}" if unexpected else "",
            )
            raise FeedChangedError(
                f"the columns of file {path} are not those of the query: it "
                f"{' and '.join(part for part in parts if part)}",
                expected="the columns " + ", ".join(self._schema.names),
                hint="move the file away or leave it out with pathGlobFilter, and restart; or start with a new "
                "checkpoint",
            )

    def _line_format(self, path: str, start: bytes) -> LineFormat | None:
        by_name, codec = kind_by_name(path)
        form = self._options.file_format or by_name
        if form is None:
            raise OptionError(
                f"the name of file {path} does not say its format",
                expected="one of .csv .tsv .json .jsonl .ndjson .parquet .log",
                hint="set the option fileFormat, or leave the file out with pathGlobFilter",
            )
        if form == "zeek" and self._options.file_format is None and start and not b"#separator".startswith(start[:10]):
            raise OptionError(
                f"file {path} is called a log, and does not begin with #separator as Zeek's do",
                hint="set the option fileFormat, or leave the file out with pathGlobFilter",
            )
        if form == "parquet":
            if codec is not None:
                raise OptionError(
                    f"file {path} is Parquet within {codec}",
                    hint="decompress it: Parquet compresses its columns itself",
                )
            return None
        sep = self._options.sep or ("\t" if is_tab_separated(path) else ",")
        known = self._formats.get((form, sep))
        if known is None:
            known = self._formats[form, sep] = self._new_format(form, sep)
            if self._schema is not None:
                known.check(self._schema)
        return known

    def _new_format(self, form: str, sep: str) -> LineFormat:
        options = self._options
        if form == "json":
            return JsonFormat()
        if form == "debezium":
            return ChangeEventFormat()
        if form == "zeek":
            return ZeekFormat()
        return DelimitedFormat(
            header=options.header,
            sep=sep,
            quote=options.quote,
            multi_line=options.multi_line,
            max_row_bytes=options.max_row_bytes,
            null_value=options.null_value,
            key=self._key,
            time=self._time,
        )
