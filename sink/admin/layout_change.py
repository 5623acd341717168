"""Changes of a table's layout: its number of buckets, and the rows that it keeps of each key."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import OptionError, TableError
from ...conf.options import path_argument, whole_argument
from ...conf.progress import tracked
from ...core.rows.buckets import bucket_of
from ...core.rows.columns import columns_at
from ...delta_format.latest_table import APPLIED_KEY, BUCKETS_PROPERTY, HISTORY_PROPERTY
from ..merge.batch_rows import as_pending
from ..merge.newest_rows import newest_rows
from ..spec.history import History
from ..table.contents import TableContents, commit_command, nothing_since
from ..table.table import TableChange
from ..table.tombstones import APP_ID, TombstoneList

if TYPE_CHECKING:
    from ..table.files import StagedFile


def change_history(path: str, history: str, *, storage: Mapping[str, str] | None = None) -> int:
    """Change how many of the newest rows of each key a table keeps; see :meth:`~upstream.LatestTable.set_history`.

    A larger number changes the log alone. It may take rows older than a forgotten deletion for history. A smaller
    number removes the surplus rows by the commit that records it, so no reader sees more rows than recorded. A process
    that dies leaves an unchanged table, and files that ``upstream maintain`` removes.
    """
    try:
        wanted = History.parse(str(history))
    except ValueError:
        raise OptionError(f"history={history!r}", expected="latest or 'latest N'") from None
    with TableContents.opened(path, storage) as contents:
        return _change(contents, wanted)


def _change(contents: TableContents, wanted: History) -> int:
    held = contents.layout.history
    if wanted == held:
        return contents.table.version()
    if held.count is None or wanted.count is None:
        raise TableError(
            f"the table at {contents.target.location} keeps {held}, and would have to keep {wanted}",
            expected="a change among latest and latest N",
            hint="fill a table at another path from this one's rows, read as a batch, by upstream.write_batch with the "
            "other history",
        )
    if not contents.layout.order:
        raise TableError(
            f"the table at {contents.target.location} records neither eventTime nor sequenceBy, and "
            f"would have to keep {wanted}",
            expected="a table that was made with eventTime, or with columns in sequenceBy",
            hint="fill a table at another path, with eventTime or sequenceBy",
        )
    if contents.layout.partial:
        raise TableError(
            f"the table at {contents.target.location} has partial updates (nullMeans or columnGroups), and would have "
            f"to keep {wanted}",
            expected="latest: a row is made of several, which the table does not have",
            hint="fill a table at another path from the input, without nullMeans and columnGroups",
        )
    with TableChange(contents.target, contents.table, contents.files) as change, contents.needed():
        keys = _leave_out(contents, wanted, change) if wanted.count < held.count else contents.snapshot.count()
        properties = {HISTORY_PROPERTY: None if wanted.latest else str(wanted)}
        commit_info = {APPLIED_KEY: nothing_since(contents.table).to_json()}
        done = [f"history {held} became {wanted}"]
        return commit_command(
            contents, change, "CHANGE HISTORY", done, keys, properties=properties, commit_info=commit_info
        )


def _leave_out(contents: TableContents, history: History, change: TableChange) -> int:
    """Rewrite the buckets that have too many rows of a key; return the table's number of rows afterwards."""
    layout, count = dataclasses.replace(contents.layout, history=history), 0
    for bucket in tracked(contents.buckets, "buckets"):
        paths = contents.snapshot.of_bucket(bucket).rows
        rows = pa.concat_tables([contents.files.schema.empty_table(), *map(contents.rows, paths)])
        newest = newest_rows(as_pending(rows), layout).rows
        count += newest.num_rows
        if newest.num_rows < rows.num_rows:
            change.replace(paths, [contents.files.stage(newest, bucket, 0)])
    return count


def rebucket_table(path: str, buckets: int, *, storage: Mapping[str, str] | None = None) -> int:
    """Rewrite a table in another number of buckets; see :meth:`~upstream.LatestTable.rebucket`.

    Followers see a commit that changes no row. Memory: the old buckets whose rows may meet in one new bucket. That is
    one old bucket if the new number is a multiple of the old.
    """
    count = whole_argument("buckets", buckets)
    if count is None:
        raise OptionError("no number of buckets is given", expected="at least 1")
    with TableContents.opened(path_argument("path", path), storage) as contents:
        return _rebucket(contents, count)


def _rebucket(contents: TableContents, buckets: int) -> int:
    layout = contents.layout
    if not layout.key:
        raise OptionError(
            f"the table at {contents.target.location} has no key by which its rows could be divided",
            expected="a table with an update key",
        )
    if buckets == layout.buckets:
        return contents.table.version()
    with TableChange(contents.target, contents.table, contents.files, changed=False) as change, contents.needed():
        rows = change.replace(contents.snapshot.rows, _parts(contents, buckets))
        buried: list[StagedFile] = []
        for file in _tombstones(contents, buckets):
            change.wrote(file.path)
            buried.append(file)
        none = TombstoneList()
        deletions = none.replaced(buried)
        deletions.write(contents.files, none, change.wrote)
        done, properties = [f"{layout.buckets} buckets became {buckets}"], {BUCKETS_PROPERTY: str(buckets)}
        numbers = {APP_ID: deletions.number}
        return commit_command(contents, change, "REBUCKET", done, rows, properties=properties, numbers=numbers)


def _parts(contents: TableContents, buckets: int) -> Iterator[StagedFile]:
    step = math.gcd(contents.layout.buckets, buckets)
    for first in tracked(range(step), "groups of buckets"):
        old = [bucket for bucket in contents.buckets if bucket % step == first]
        rows = [contents.rows(path) for bucket in old for path in contents.snapshot.of_bucket(bucket).rows]
        for bucket, part in _divided(rows, contents.layout.key, buckets):
            yield contents.files.stage(part, bucket, 0)


def _tombstones(contents: TableContents, buckets: int) -> Iterator[StagedFile]:
    """Yield the deletions as files of the new buckets, one file for each bucket that has any."""
    buried = [contents.buried(bucket) for bucket in contents.snapshot.tombstones.paths]
    for bucket, part in _divided(buried, contents.layout.key, buckets):
        yield contents.tombstones.stage(part, bucket, 0)


def _divided(tables: Sequence[pa.Table], key: Sequence[str], buckets: int) -> Iterator[tuple[int, pa.Table]]:
    if not tables:
        return
    rows = pa.concat_tables(tables)
    numbers = pa.array(bucket_of(columns_at(rows, key), buckets))
    for bucket in sorted(numbers.unique().to_pylist()):
        yield bucket, rows.filter(pc.equal(numbers, bucket))
