"""``upstream check``: find the faults of a stored table, one bucket in memory at a time."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...conf.errors import OptionError, SchemaError, TableError
from ...conf.locations import absolute_location
from ...conf.progress import tracked
from ...core.rows.buckets import bucket_of
from ...core.rows.columns import columns_at, null_rows
from ...core.rows.exact_integers import Mask
from ...core.rows.newest import key_codes
from ...core.rows.system_column import SYSTEM, SYSTEM_TYPE
from ...delta_format.latest_table import SEQ
from ..merge.batch_rows import as_pending
from ..merge.newest_rows import contest, newest_rows
from ..merge.task_rows import RowBuffer
from ..spec.history import History, PartialUpdates
from ..spec.layout import Layout, buckets_outgrown
from ..table.contents import TableContents, Unreadable, rows_recorded

if TYPE_CHECKING:
    from types import TracebackType

    from ..merge.batch_rows import BatchRows


_LOG = "_delta_log/"
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\..+)?\.parquet")
# Each takes some microseconds whenever the table is opened.
_MANY = 1_000


@dataclasses.dataclass(frozen=True)
class LogState:
    """The state of a table's log."""

    first: int | None  # the earliest version with an entry; None if there are no entries
    checkpoint: int | None  # the last version with a checkpoint
    since: int  # number of versions after the checkpoint
    problems: tuple[tuple[str, bool], ...]  # each with whether a new checkpoint mends it


def look_at_log(contents: TableContents) -> LogState:
    """Look for gaps, and for checkpoints that are damaged, missing or old."""
    version = contents.snapshot.version
    sizes = {each.name: each.size for each in contents.target.folder.listing(_LOG) if not each.is_folder}
    entries = {int(found.group(1)) for name in sizes if (found := _ENTRY.fullmatch(name))}
    checkpoints: dict[int, list[str]] = {}
    for name in sizes:
        if found := _CHECKPOINT.fullmatch(name):
            checkpoints.setdefault(int(found.group(1)), []).append(name)
    problems: list[tuple[str, bool]] = []
    last = max((number for number in checkpoints if number <= version), default=None)
    for name in checkpoints.get(last, []) if last is not None else []:
        reason = _damage(contents, name)
        if reason:
            problems.append((f"the log's checkpoint {name} cannot be read: {reason}", True))
    problems += _pointer(contents, sizes, checkpoints)
    needed = range(0 if last is None else last + 1, version + 1)
    gap = [number for number in needed if number not in entries]
    if gap:
        problems.append(
            (f"the log lacks the entries of {_listed(gap)}, which its last checkpoint does not cover", False)
        )
    earlier = [number for number in range(min(entries, default=0), needed.start) if number not in entries]
    if earlier:
        problems.append(
            (
                (
                    f"the log lacks the entries of {_listed(earlier)}: the table is whole, but these versions cannot "
                    "be read or followed"
                ),
                False,
            )
        )
    if len(needed) > _MANY:
        problems.append(
            (f"{len(needed):,} versions have come since the log's last checkpoint: opening the table takes long", True)
        )
    return LogState(min(entries, default=None), last, len(needed), tuple(problems))


def _damage(contents: TableContents, name: str) -> str | None:
    import pyarrow.parquet as pq

    where, filesystem = contents.target.folder.place(_LOG + name)
    try:
        pq.read_metadata(where, filesystem=filesystem)
    except (OSError, pa.ArrowException) as error:
        return str(error).partition("\n")[0]
    return None


def _pointer(
    contents: TableContents, sizes: dict[str, int], checkpoints: dict[int, list[str]]
) -> list[tuple[str, bool]]:
    name = "_last_checkpoint"
    if name not in sizes:
        return [("the log has checkpoints, but no _last_checkpoint names one", True)] if checkpoints else []
    try:
        named = int(json.loads(contents.target.folder.read(_LOG + name))["version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [(f"the log's _last_checkpoint cannot be read: {error}", True)]
    return (
        []
        if named in checkpoints
        else [(f"the log's _last_checkpoint names version {named}, of which there is no checkpoint", True)]
    )


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return f"version{'s' if len(numbers) > 1 else ''} {shown}" + (
        f" and {len(numbers) - 5:,} more" if len(numbers) > 5 else ""
    )


@dataclasses.dataclass(frozen=True)
class BucketState:
    """A bucket's rows and faults."""

    bucket: int
    rows: int = 0  # in the readable files
    unreadable: tuple[Unreadable, ...] = ()
    lost: int | None = 0  # rows of the unreadable files by the log; None if it has no row counts
    duplicates: int = 0  # rows beyond the number that the table keeps of each key
    # the number of rows that belong to each other bucket
    misplaced: Mapping[int, int] = dataclasses.field(default_factory=dict)
    overruled: int = 0  # rows that are older than a deletion of their key
    tombstones: int = 0
    unburied: Unreadable | None = None  # the tombstone file, if it cannot be read

    @property
    def is_right(self) -> bool:
        """Return True if its data files and rows have no fault; unreadable tombstones do not count."""
        return not (self.unreadable or self.duplicates or self.misplaced or self.overruled)


def look_at(contents: TableContents, bucket: int) -> tuple[BucketState, pa.Table, pa.Table]:
    """Read a bucket; return its state, its readable rows and its tombstones, each with the deciding columns alone."""
    parts: list[pa.Table] = []
    unreadable: list[Unreadable] = []
    paths = contents.snapshot.of_bucket(bucket).rows
    for path in paths:
        try:
            parts.append(contents.deciding(path))
        except Unreadable as found:
            unreadable.append(found)
    empty = contents.files.schema.empty_table().select(contents.layout.deciding)
    rows = pa.concat_tables(parts) if parts else empty
    unburied: Unreadable | None = None
    try:
        buried = contents.buried(bucket)
    except Unreadable as found:
        buried, unburied = empty, found
    state = BucketState(
        bucket,
        rows.num_rows,
        tuple(unreadable),
        contents.snapshot.count(found.path for found in unreadable),
        _duplicates(rows, contents.layout),
        _misplaced(rows, bucket, contents.layout),
        int((~newer(buried, rows, contents.layout, or_equal=True)).sum()),
        buried.num_rows,
        unburied,
    )
    return state, rows, buried


def newer(held: pa.Table, rows: pa.Table, layout: Layout, *, or_equal: bool = False) -> Mask:
    """Return which rows are newer (or of equal time, with `or_equal`) than the row held of their key, if one is."""
    if not layout.order:
        # Nothing says which is newer: what is held answers for the key.
        return contest(held, rows, layout).rival < 0 if not or_equal else np.ones(rows.num_rows, dtype=np.bool_)
    before, after = (0, 0) if or_equal else (1, 0)
    return contest(_with_seq(held, before), _with_seq(rows, after), layout).won


def _with_seq(rows: pa.Table, seq: int) -> pa.Table:
    place = rows.schema.get_field_index(SEQ)
    return rows.set_column(place, SEQ, pa.array(np.full(rows.num_rows, seq), pa.int64()))


def _duplicates(rows: pa.Table, layout: Layout) -> int:
    if rows.num_rows == 0 or layout.history.count is None:
        return 0
    codes, size = key_codes(columns_at(rows, layout.key))
    return int(np.maximum(np.bincount(codes, minlength=size) - layout.history.count, 0).sum())


def _misplaced(rows: pa.Table, bucket: int, layout: Layout) -> dict[int, int]:
    if rows.num_rows == 0 or not layout.key:
        return {}
    belongs, counts = np.unique(bucket_of(columns_at(rows, layout.key), layout.buckets), return_counts=True)
    return {int(other): int(count) for other, count in zip(belongs, counts, strict=True) if other != bucket}


class SourceRows:
    """The newest row of each key of a source, with the deciding columns alone.

    The source is Parquet, a file or a folder, or a Delta table; None has no rows.
    """

    def __init__(self, contents: TableContents, source: str | None) -> None:
        layout = contents.layout
        if source is not None and not layout.key:
            raise OptionError(
                f"the table at {contents.target.location} has no key",
                expected="without a source: rows are looked for by their keys",
                hint="leave the source out",
            )
        self._place = contents.target.location
        self._source = source
        self._storage = dict(contents.target.storage)
        fields = tuple(field for field in layout.fields if field[0] in layout.deciding)
        self._layout = dataclasses.replace(layout, fields=fields, history=History(), partial=PartialUpdates())
        self._gathering = RowBuffer(self._layout, self._layout.arrow_schema())

    def __enter__(self) -> SourceRows:  # noqa: PYI034 it is not to be inherited from
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gathering.close()

    def by_bucket(self) -> Iterator[tuple[int, BatchRows]]:
        """Yield the newest rows by bucket, in the order of the buckets."""
        if self._source is None:
            return
        for batch in self._batches(absolute_location(self._source)):
            self._gathering.add(batch)
        yield from self._gathering.by_bucket()

    def _batches(self, place: str) -> Iterator[pa.RecordBatch]:
        wanted = [name for name in self._layout.deciding if name != SEQ]
        try:
            reader = self._open(place, wanted)
        except (OSError, pa.ArrowException) as error:
            raise TableError(
                f"the source {place} cannot be read: {str(error).partition(chr(10))[0]}",
                expected="a folder or a file of Parquet, or a Delta table",
                hint="check the path",
            ) from error
        schema = self._layout.arrow_schema()
        for batch in reader:
            names = [*wanted, *([SYSTEM] if SYSTEM in batch.schema.names else [])]
            kinds = [SYSTEM_TYPE if name == SYSTEM else schema.field(name).type for name in names]
            columns = [batch.column(name).cast(kind) for name, kind in zip(names, kinds, strict=True)]
            # A row without a key or a time is in no table, and punctuation is not a row.
            rows = pa.RecordBatch.from_arrays(columns, names=names).drop_null()
            nulls = [null_rows(column) for column in columns_at(pa.Table.from_batches([rows]), self._layout.key)]
            yield rows.filter(pa.array(~np.logical_or.reduce(nulls)))

    def _open(self, place: str, wanted: list[str]) -> Any:
        """Open the source as batches with at least these columns, and the system column if it has one."""
        from deltalake import DeltaTable, QueryBuilder

        storage = self._storage or None
        if not os.path.isfile(place) and DeltaTable.is_deltatable(place, storage):
            table = DeltaTable(place, storage_options=storage)
            names = [field.name for field in table.schema().fields]
            columns = ", ".join('"' + name.replace('"', '""') + '"' for name in self._chosen(names, wanted, place))
            # Its query engine, unlike its Arrow dataset, passes over rows that deletion vectors delete.
            found: Any = QueryBuilder().register("source", table).execute(f"SELECT {columns} FROM source")  # noqa: S608 names, quoted
            return pa.RecordBatchReader.from_stream(found)
        import pyarrow.dataset as pds

        if "://" not in place and not os.path.exists(place):
            raise FileNotFoundError("there is nothing")
        form = pds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
        dataset = pds.dataset(place, format=form)
        return dataset.to_batches(columns=self._chosen(dataset.schema.names, wanted, place))

    def _chosen(self, names: list[str], wanted: list[str], place: str) -> list[str]:
        absent = [name for name in wanted if name not in names]
        if absent:
            raise SchemaError(
                f"the source {place} has no column {', '.join(absent)}",
                expected=f"the key and the time of the table at {self._place}: {', '.join(wanted)}",
                hint="name input that has them under these names",
            )
        return [*wanted, *([SYSTEM] if SYSTEM in names else [])]


_EXAMPLES = 5


@dataclasses.dataclass(frozen=True)
class Finding:
    """A fault."""

    text: str  # a sentence
    mends: bool  # True if ``upstream repair`` mends it


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """The result of a check."""

    location: str
    version: int
    rows: int
    files: int
    buckets: int
    tombstones: int
    log: LogState
    compared: int | None  # number of the source's keys compared; None without a source
    findings: tuple[Finding, ...]  # empty if the table has no fault
    wanted_buckets: int | None = None  # recommended number of buckets if the table has outgrown its own

    @property
    def healthy(self) -> bool:
        return not self.findings


def check_table(path: str, *, storage: Mapping[str, str] | None = None, source: str | None = None) -> CheckReport:
    """Check a table; see :meth:`~upstream.LatestTable.check` for the checks and the errors."""
    with TableContents.opened(path, storage) as contents:
        return _check(contents, source)


def _check(contents: TableContents, source: str | None) -> CheckReport:
    log = look_at_log(contents)
    states: list[BucketState] = []
    lost: list[Finding] = []
    compared = 0
    with SourceRows(contents, source) as given:
        for bucket, rows in _aligned(given.by_bucket(), tracked(contents.buckets, "buckets")):
            state, held, buried = look_at(contents, bucket)
            states.append(state)
            if rows is not None:
                compared += rows.rows.num_rows
                lost += _lost(contents, bucket, rows.rows, held, buried)
    found = [finding for state in states for finding in _findings(state)]
    counted = sum(state.rows for state in states)
    found += [*lost, *_miscounted(contents, counted, whole=not any(state.unreadable for state in states))]
    return CheckReport(
        contents.target.location,
        contents.snapshot.version,
        counted,
        len(contents.snapshot.rows),
        contents.layout.buckets,
        sum(state.tombstones for state in states),
        log,
        None if source is None else compared,
        (*[Finding(text, mends) for text, mends in log.problems], *found),
        # Where all rows are kept none is overtaken, and no bucket is rewritten.
        None if contents.layout.history.count is None else buckets_outgrown(counted, contents.layout.buckets),
    )


def _aligned(rows: Iterator[tuple[int, BatchRows]], buckets: Iterable[int]) -> Iterator[tuple[int, BatchRows | None]]:
    """Yield each bucket with its rows of the source, or None; the rows come in the order of the buckets."""
    coming = next(rows, None)
    for bucket in buckets:
        if coming is not None and coming[0] == bucket:
            yield bucket, coming[1]
            coming = next(rows, None)
        else:
            yield bucket, None


def _findings(state: BucketState) -> Iterator[Finding]:
    where = f"bucket {state.bucket}"
    for file in state.unreadable:
        yield Finding(f"{where}: the data file {file.path} cannot be read: {file.reason}", True)
    if state.duplicates:
        yield Finding(f"{where}: {state.duplicates:,} rows more than the table keeps of their keys", True)
    if state.misplaced:
        others = ", ".join(str(other) for other in sorted(state.misplaced)[:_EXAMPLES])
        yield Finding(
            f"{where}: {sum(state.misplaced.values()):,} rows belong to other buckets (such as {others})", True
        )
    if state.overruled:
        yield Finding(f"{where}: {state.overruled:,} rows are older than a deletion of their key", True)
    if state.unburied is not None:
        yield Finding(
            f"{where}: its deletions in {state.unburied.path} cannot be read ({state.unburied.reason}): older rows "
            "could bring deleted keys back",
            True,
        )


def _lost(contents: TableContents, bucket: int, given: pa.Table, held: pa.Table, buried: pa.Table) -> list[Finding]:
    layout = contents.layout
    given = given.select(layout.deciding)
    if layout.history.count is not None and held.num_rows:  # the newest answers for its key
        whole = dataclasses.replace(layout, history=History(), partial=PartialUpdates())
        held = newest_rows(as_pending(held), whole).rows
    missing = newer(held, given, layout) & newer(buried, given, layout)
    if not missing.any():
        return []
    some = given.filter(pa.array(missing)).slice(0, _EXAMPLES)
    keys = zip(*(column.to_pylist() for column in columns_at(some, layout.key)), strict=True)
    shown = "; ".join(", ".join(str(value) for value in key) for key in keys)
    count = int(np.count_nonzero(missing))
    text = f"bucket {bucket}: {count:,} keys of the source are newer there, or only there (such as {shown})"
    return [Finding(text, False)]


def _miscounted(contents: TableContents, counted: int, *, whole: bool) -> Iterator[Finding]:
    recorded = rows_recorded(contents.table)
    if recorded is None or not whole or recorded.rows == counted:
        return
    since = "" if recorded.version == contents.snapshot.version else f"; commits since then: {recorded.since}"
    yield Finding(
        f"the summary of version {recorded.version} counts {recorded.rows:,} rows, and the table has "
        f"{counted:,}{since}",
        True,
    )
