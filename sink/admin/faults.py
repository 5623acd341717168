"""The faults of a stored table: of its log, and of one bucket."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from ...core.rows.buckets import bucket_of
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import Mask
from ...core.rows.newest import key_codes
from ...delta_format.latest_table import SEQ
from ..merge.newest_rows import contest
from ..spec.layout import Layout
from ..table.contents import TableContents, Unreadable

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
    """Return which rows are newer by their time than the row held of their key; rows of keys without one are newer.

    At most one row is held of each key. `or_equal` counts equal times as newer, whichever row arrived first.
    """
    if not layout.order:
        # Nothing says which is newer: what is held answers for the key.
        return contest(held, rows, layout).rival < 0 if not or_equal else np.ones(rows.num_rows, dtype=np.bool_)
    before, after = (0, 0) if or_equal else (1, 0)
    return contest(_with_seq(held, before), _with_seq(rows, after), layout).won


def _with_seq(rows: pa.Table, seq: int) -> pa.Table:
    place = rows.schema.get_field_index(SEQ)
    return rows.set_column(place, SEQ, pa.array(np.full(rows.num_rows, seq), pa.int64()))


def _duplicates(rows: pa.Table, layout: Layout) -> int:
    if rows.num_rows == 0 or layout.keep.count is None:
        return 0
    codes, size = key_codes(columns_at(rows, layout.key))
    return int(np.maximum(np.bincount(codes, minlength=size) - layout.keep.count, 0).sum())


def _misplaced(rows: pa.Table, bucket: int, layout: Layout) -> dict[int, int]:
    if rows.num_rows == 0 or not layout.key:
        return {}
    belongs, counts = np.unique(bucket_of(columns_at(rows, layout.key), layout.buckets), return_counts=True)
    return {int(other): int(count) for other, count in zip(belongs, counts, strict=True) if other != bucket}
