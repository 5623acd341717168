"""``upstream check``: check the table's guarantees, one bucket in memory at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...core.rows.columns import columns_at
from ..merge.newest_rows import newest_rows
from ..merge.pending import as_pending
from ..spec.history import Keep
from ..spec.placement import buckets_outgrown
from ..table.contents import Contents
from .bucket_state import BucketState, look_at, newer
from .log_state import LogState, look_at_log
from .repairs import rows_recorded
from .source_rows import SourceRows

if TYPE_CHECKING:
    from ..merge.pending import Pending

__all__ = ["Finding", "Report", "check_table"]

_EXAMPLES = 5


@dataclasses.dataclass(frozen=True)
class Finding:
    """A fault."""

    text: str  # a sentence
    mends: bool  # True if ``upstream repair`` mends it


@dataclasses.dataclass(frozen=True)
class Report:
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


def check_table(path: str, *, storage: Mapping[str, str] | None = None, source: str | None = None) -> Report:
    """Check a table; see :meth:`~upstream.LatestTable.check` for the checks and the errors."""
    with Contents.opened(path, storage) as contents:
        return _check(contents, source)


def _check(contents: Contents, source: str | None) -> Report:
    log = look_at_log(contents)
    states: list[BucketState] = []
    lost: list[Finding] = []
    compared = 0
    with SourceRows(contents, source) as given:
        for bucket, rows in _aligned(given.by_bucket(), contents.buckets):
            state, held, buried = look_at(contents, bucket)
            states.append(state)
            if rows is not None:
                compared += rows.rows.num_rows
                lost += _lost(contents, bucket, rows.rows, held, buried)
    found = [finding for state in states for finding in _findings(state)]
    counted = sum(state.rows for state in states)
    found += [*lost, *_miscounted(contents, counted, whole=not any(state.unreadable for state in states))]
    return Report(
        contents.target.location,
        contents.snapshot.version,
        counted,
        len(contents.snapshot.rows),
        contents.layout.buckets,
        sum(state.tombstones for state in states),
        log,
        None if source is None else compared,
        (*[Finding(text, mends) for text, mends in log.problems], *found),
        # Where all rows are kept none is overtaken, and no bucket is written anew.
        None if contents.layout.keep.count is None else buckets_outgrown(counted, contents.layout.buckets),
    )


def _aligned(rows: Iterator[tuple[int, Pending]], buckets: Iterable[int]) -> Iterator[tuple[int, Pending | None]]:
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


def _lost(contents: Contents, bucket: int, given: pa.Table, held: pa.Table, buried: pa.Table) -> list[Finding]:
    layout = contents.layout
    given = given.select(layout.deciding)
    if layout.keep.count is not None and held.num_rows:  # the newest answers for its key
        held = newest_rows(as_pending(held), dataclasses.replace(layout, keep=Keep())).rows
    missing = newer(held, given, layout) & newer(buried, given, layout)
    if not missing.any():
        return []
    some = given.filter(pa.array(missing)).slice(0, _EXAMPLES)
    keys = zip(*(column.to_pylist() for column in columns_at(some, layout.key)), strict=True)
    shown = "; ".join(", ".join(str(value) for value in key) for key in keys)
    count = int(np.count_nonzero(missing))
    text = f"bucket {bucket}: {count:,} keys of the source are newer there, or only there (such as {shown})"
    return [Finding(text, False)]


def _miscounted(contents: Contents, counted: int, *, whole: bool) -> Iterator[Finding]:
    recorded = rows_recorded(contents.table)
    if recorded is None or not whole or recorded.rows == counted:
        return
    since = "" if recorded.version == contents.snapshot.version else f"; commits since then: {recorded.since}"
    yield Finding(
        f"the summary of version {recorded.version} counts {recorded.rows:,} rows, and the table has "
        f"{counted:,}{since}",
        True,
    )
