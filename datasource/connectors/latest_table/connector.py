"""The `latest` connector: a table as the first run finds it, then the changes of each commit."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from ....conf.errors import FeedChangedError, OptionError, SchemaError
from ....conf.locations import absolute_location
from ....conf.options import one_of, option, positive_int, text
from ....core.rows.event_times import NO_TIME, bound_us
from ....delta_format.latest_table import CommitChanges
from ....storage.folder import TableFolder
from ...options import SourceOptions
from ..contract import Advance, Chunk, Connector, Limit, MalformedRows, Position, Range
from .changes import CHANGE, CHANGE_FIELD, BucketChange, as_inserted, bucket_changes, keep_after, read_changes
from .table import NEW_CHECKPOINT, TableLog, TableVersion, count_rows, describe, live_files, read_range


@dataclasses.dataclass(frozen=True)
class LatestOptions:
    """The options of the `latest` connector; see each option's documentation."""

    PASSED_ON: ClassVar[Mapping[str, str]] = {"storage.": "passed_on"}

    path: str | None = option(
        "path",
        text(),
        None,
        "Set the table: a folder, or an address in an object store. Options that begin with `storage.` go to "
        "the store without that prefix.",
    )
    max_files: int = option(
        "maxFilesPerTrigger",
        positive_int(),
        1000,
        "Set the maximum number of files that one batch reads rows from. A commit is never split. The table "
        "that the first run begins with is split between files.",
    )
    changes: str = option(
        "changes",
        one_of("newest", "full"),
        "newest",
        "Choose what a commit gives. `newest`: its new rows and deleted keys. `full`: also the rows that these "
        "replaced or deleted. As in Delta's change data feed, the column `_change_type` is then `insert`, "
        "`update_preimage`, `update_postimage`, or `delete`.",
    )
    passed_on: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def full(self) -> bool:
        return self.changes == "full"

    def folder(self) -> TableFolder:
        if self.path is None:
            raise OptionError(
                "no path is given for connector=latest", hint='name the table with load("…") or the option `path`'
            )
        return TableFolder(absolute_location(self.path), self.passed_on)

    def completed(self, common: SourceOptions) -> SourceOptions:
        """Return the common options, with the table's own key, time and progress where the user has given none."""
        folder = self.folder()
        with folder.guarded():
            table = describe(folder)
        changes: dict[str, Any] = {"key": common.key or table.key, "sequence": common.sequence or table.sequence}
        if common.time is None and table.time not in changes["key"]:
            changes["time"] = table.time
        if common.progress is None and table.time is not None and changes.get("time", common.time) == table.time:
            changes["progress"] = "from_table"
        if self.full:
            _check_full(common)
            # Preimages are as old as the rows that they replace: no progress is to be made of their times.
            changes["progress"] = common.progress or changes.get("progress", "none")
        return dataclasses.replace(common, **changes)


def _check_full(common: SourceOptions) -> None:
    """Raise OptionError for options under which replaced rows would be lost, or taken for late ones."""
    problems: list[str] = []
    if common.coalesce:
        problems.append("coalesce=true with changes=full: it would leave out the rows that were replaced")
    if common.progress not in (None, "from_table", "none"):
        problems.append(f"watermark={common.progress} with changes=full: rows that were replaced have earlier times")
    if problems:
        raise OptionError(
            "; ".join(problems),
            expected="changes=full with every row, and with watermark=from_table or watermark=none",
            hint="leave out the options named; or leave out changes, for the rows that came alone",
        )


class LatestConnector(Connector):
    """One feed, named by the table's path. A position is a version of the table.

    The first run reads the whole table. Each later version brings the rows that its commit applied, deleted keys as
    tombstones, and the table's low-watermark. With ``changes=full`` it also brings each row that its commit removed.

    Guarantee: each row that a commit after the first version applied is in exactly one range; commits are in order,
    none divided. A range reads the same each time, or reading raises :class:`~upstream.conf.errors.FeedChangedError`.
    """

    name: ClassVar[str] = "latest"
    smallest_task: int = 50_000

    def __init__(self, options: LatestOptions, common: SourceOptions) -> None:
        if common.max_bytes_per_trigger is not None:
            raise OptionError(
                "maxBytesPerTrigger for connector=latest, whose commits count rows",
                hint="set maxRowsPerTrigger or maxFilesPerTrigger",
            )
        self._options = options
        self._common = common
        self._folder: TableFolder = options.folder()
        self._log = TableLog(self._folder)
        self._feed = options.path or ""
        self._described: TableVersion | None = None
        self._schema: pa.Schema | None = None
        self._frozen: int | None = None

    def schema(self) -> pa.Schema:
        """Return the given schema, or the table's without the sink's own columns."""
        if self._schema is None:
            self._schema = self._columns()
        return self._schema

    def key(self) -> Sequence[str]:
        return self._common.key

    def event_time(self) -> str | None:
        return self._common.time

    def fix_schema(self, schema: pa.Schema) -> None:
        columns = self._columns().names
        if self._options.full and CHANGE not in schema.names:
            raise SchemaError(
                f"changes=full, and a schema without the column {CHANGE!r}",
                expected=f"`{CHANGE}` STRING among the columns: it has what each row is",
                hint=f"add `{CHANGE}` STRING to the option `schema`; if the checkpoint was begun without changes=full, "
                "start with a new one",
            )
        absent = [name for name in schema.names if name not in columns]
        if absent:
            raise SchemaError(
                f"the table at {self._folder.location} has no column {', '.join(map(repr, absent))}",
                expected="some of " + ", ".join(columns),
                hint="correct the option `schema`, or start with a new checkpoint if the table has changed",
            )
        self._schema = schema

    def feeds(self, position: Position | None) -> Sequence[str]:
        del position
        return [self._feed]

    def freeze(self, now_us: int) -> None:
        del now_us
        with self._folder.guarded():
            self._frozen = describe(self._folder).version

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        """Return the step within `limit`: files of the first version, then whole commits, at least one.

        Raise FeedChangedError if unread versions are gone, other writers changed rows, or the table was recreated.
        """
        with self._folder.guarded():
            if position is None:
                table = describe(self._folder)
                version = table.version if self._frozen is None else self._frozen
                position = {
                    "table": table.table_id,
                    "version": version,
                    "files": 0,
                    "arrival_us": now_us,
                    "ended": False,
                }
                if self._options.full:
                    position["keep"] = describe(self._folder, version).keep
            if position["files"] is None:
                return self._commits(position, limit)
            return self._snapshot(position, limit)

    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        """Yield a range's rows. Columns without that of changes get only added rows, by which feeds progress."""
        del malformed
        schema = self.schema()
        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        with self._folder.guarded():
            if not self._options.full or CHANGE not in wanted.names:
                yield from read_range(self._folder, part, wanted)
            elif "bucket" in part.place:
                yield from read_changes(self._folder, part, self._change(part), self._table(), wanted)
            else:
                came = pa.schema([field for field in wanted if field.name != CHANGE])
                yield from (as_inserted(chunk, wanted) for chunk in read_range(self._folder, part, came))

    def limit(self, common: Limit) -> Limit:
        return Limit(common.rows, common.bytes, self._options.max_files)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks only read; of the table they need the key, to find the rows that were replaced.
        return {**self.__dict__, "_described": self._described if self._options.full else None}

    def _table(self) -> TableVersion:
        if self._described is None:
            with self._folder.guarded():
                self._described = describe(self._folder)
        return self._described

    def _columns(self) -> pa.Schema:
        columns = self._table().columns
        if not self._options.full:
            return columns
        if CHANGE in columns.names:
            raise SchemaError(
                f"changes=full of the table at {self._folder.location}, which has a column {CHANGE!r} of its own",
                expected="a table without it: the column has what each row is",
                hint="leave out changes, or give the column another name in the query that writes the table",
            )
        return columns.append(CHANGE_FIELD)

    def _snapshot(self, position: Position, limit: Limit) -> Advance:
        """Return files of the table at the position's version, from the position's file on."""
        from deltalake.exceptions import DeltaError

        version, arrival = int(position["version"]), int(position["arrival_us"])
        try:
            files = live_files(self._folder, version)
        except (DeltaError, FileNotFoundError) as error:
            raise self._log.gone(version, "the log") from error
        ranges: list[Range] = []
        room = _Room(limit)
        taken = int(position["files"])
        for file in itertools.islice(files, taken, None):
            if not room.take(file.live, 1):
                return Advance({**position, "files": taken}, ranges, waiting={self._feed: arrival})
            place: dict[str, Any] = {"version": version, "path": file.path, "rows": file.rows}
            if file.vector is not None:
                place["vector"] = file.vector.to_json()
            ranges.append(self._range(place, file.live, arrival))
            taken += 1
        last = self._log.last_applied(version)
        reached = {**position, "files": None, "ended": last is not None and last.ended}
        return Advance(reached, ranges, self._over(reached), promised=self._promised(last))

    def _commits(self, position: Position, limit: Limit) -> Advance:
        ranges: list[Range] = []
        promised: dict[str, int] = {}
        room = _Room(limit)
        waiting: dict[str, int] = {}
        version, arrival, ended = int(position["version"]), int(position["arrival_us"]), bool(position["ended"])
        kept: dict[str, int | None] = {"keep": position["keep"]} if self._options.full else {}
        while self._frozen is None or version < self._frozen:
            found = self._log.applied(version + 1, position["table"])
            if found is None:
                break
            places, after = self._of_commit(version + 1, found), kept
            if self._options.full:
                places, after = self._changes_of(version + 1, kept["keep"])
            # One that only promises something counts as well: the offset has to hold its promise.
            if not room.take(sum(each.span for each in places), max(sum(each.files for each in places), 1)):
                waiting = {self._feed: max(arrival, found.committed_at_us)}
                break
            version, kept = version + 1, after
            # The clock of another machine may be behind the last one's; what was committed later arrived later.
            arrival = max(arrival, found.committed_at_us)
            ended = found.ended or (ended and not found.committed_at_us)
            ranges += [self._range(each.place, each.span, arrival) for each in places]
            promised |= self._promised(found)
        if version == position["version"]:
            self._check_silence(position)
            return Advance(position, [], self._over(position))
        if describe(self._folder).table_id != position["table"]:
            raise self._log.made_anew()
        reached = {**position, **kept, "version": version, "arrival_us": arrival, "ended": ended}
        # A step without rows is one as well: else its entry would be read again and again, until it is gone.
        ranges = ranges or [self._range({"version": version}, 0, arrival)]
        over = frozenset[str]() if waiting else self._over(reached)
        return Advance(reached, ranges, over, waiting, promised)

    def _of_commit(self, version: int, found: CommitChanges) -> list[_Place]:
        came = [_Place({"version": version, "path": path, "rows": rows}, rows) for path, rows in found.rows.items()]
        return came + [
            _Place({"version": version, "path": path, "rows": rows, "deleted": True}, rows)
            for path, rows in found.deletions.items()
        ]

    def _changes_of(self, version: int, keep: int | None) -> tuple[list[_Place], dict[str, int | None]]:
        """Return what a commit did, bucket by bucket, and how many rows of a key the table keeps after it."""
        actions = self._log.actions(version) or []
        after = keep_after(actions, keep)
        history = not {keep, after} <= {1, None}
        places: list[_Place] = []
        for bucket, change in bucket_changes(actions, self._folder.location).items():
            most = change.most_changes(keep)
            if most is None:  # a key that was erased, fewer rows of each key: seldom, and not counted in the log
                try:
                    most = sum(count_rows(self._folder, rows.path) for rows in change.left)
                except FileNotFoundError as error:
                    raise self._log.gone(version, f"a file of bucket {bucket}") from error
            place: dict[str, Any] = {"version": version, "bucket": bucket, "history": history}
            for file in change.came:
                if file.fresh:
                    place |= {"path": file.path, "rows": file.fresh}
            if most:
                places.append(_Place(place, most, change.files))
        return places, {"keep": after}

    def _change(self, part: Range) -> BucketChange:
        version, bucket = int(part.place["version"]), part.place["bucket"]
        actions = self._log.actions(version)
        if actions is None:
            raise self._log.gone(version, "the log entry")
        return bucket_changes(actions, self._folder.location)[bucket]

    def _promised(self, found: CommitChanges | None) -> dict[str, int]:
        """Return the table's low-watermark, if a commit records it and `time` is the table's own time column."""
        common = self._common
        if found is None or found.low_watermark is None or common.time is None or common.time != self._table().time:
            return {}
        kind = self._table().columns.field(common.time).type
        bound = bound_us(found.low_watermark, kind, common.time_format, common.time_zone)
        return {} if bound == NO_TIME else {self._feed: bound}

    def _range(self, place: dict[str, Any], span: int, arrival: int) -> Range:
        return Range(self._feed, place, span, arrival)

    def _over(self, position: Position) -> frozenset[str]:
        return frozenset([self._feed] if position["ended"] else [])

    def _check_silence(self, position: Position) -> None:
        """Raise FeedChangedError if there is no input because the log does not continue at the position."""
        version = int(position["version"])
        if self._log.has(version):
            return
        table = describe(self._folder)
        if table.table_id != position["table"]:
            raise self._log.made_anew()
        if table.version > version:
            raise self._log.gone(version + 1, "the log entry")
        if table.version < version:
            raise FeedChangedError(
                f"the table at {self._folder.location} is at version {table.version}, and version {version} of it has "
                "been read",
                expected="a table that continues from where it was",
                hint=NEW_CHECKPOINT,
            )


class _Place(NamedTuple):
    """A range of a commit: its place, the maximum of its rows, and the number of files to read."""

    place: dict[str, Any]
    span: int
    files: int = 1


class _Room:
    """The rest of a step's limit; the first unit always fits."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._rows = self._files = 0
        self._empty = True

    def take(self, rows: int, files: int) -> bool:
        self._rows += rows
        self._files += files
        fits = self._rows <= (self._limit.rows or self._rows) and self._files <= (self._limit.files or self._files)
        taken = fits or self._empty
        self._empty = self._empty and not (rows or files)
        return taken
