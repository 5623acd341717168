"""A change of the number of rows that a table keeps of each key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pyarrow as pa

from ...conf.errors import OptionError, TableError
from ...delta_format.latest_table import DELIVERED_KEY, KEEP_PROPERTY
from ..merge.newest_rows import newest_rows
from ..merge.pending import as_pending
from ..spec.history import Keep
from ..table.contents import Contents
from ..table.table_change import TableChange
from .repairs import commit_command, nothing_since

__all__ = ["change_keep"]


def change_keep(path: str, keep: str, *, storage: Mapping[str, str] | None = None) -> int:
    """Change how many of the newest rows of each key a table keeps; see :meth:`~upstream.LatestTable.keep_history`.

    A larger number changes the log alone. It may take rows older than a forgotten deletion for history. A smaller
    number removes the surplus rows by the commit that records it, so no reader sees more rows than recorded. A process
    that dies leaves the table as it was, and files that ``upstream maintain`` removes.
    """
    try:
        wanted = Keep.parse(str(keep))
    except ValueError:
        raise OptionError(f"keep {keep!r} is not among those there are", expected="latest or 'latest N'") from None
    with Contents.opened(path, storage) as contents:
        return _change(contents, wanted)


def _change(contents: Contents, wanted: Keep) -> int:
    held = contents.layout.keep
    if wanted == held:
        return contents.table.version()
    if held.count is None or wanted.count is None:
        raise TableError(
            f"the table at {contents.target.location} keeps {held}, and would have to keep {wanted}",
            expected="a change among latest and latest N",
            hint="fill a table at another path from this one's rows, read as a batch, by upstream.write_batch with the "
            "other keep",
        )
    if not contents.layout.order:
        raise TableError(
            f"the table at {contents.target.location} records no time and no sequence that orders its rows, and would "
            f"have to keep {wanted}",
            expected="a table that was made with a sequence, or with a time column and without guard=arrival",
            hint="fill a table at another path, with a time column or a sequence",
        )
    with TableChange(contents.target, contents.table, contents.files) as change, contents.needed():
        keys = _leave_out(contents, wanted, change) if wanted.count < held.count else contents.snapshot.count()
        properties = {KEEP_PROPERTY: None if wanted.latest else str(wanted)}
        commit_info = {DELIVERED_KEY: nothing_since(contents.table).to_json()}
        done = [f"keep {held} became {wanted}"]
        return commit_command(
            contents, change, "CHANGE KEEP", done, keys, properties=properties, commit_info=commit_info
        )


def _leave_out(contents: Contents, keep: Keep, change: TableChange) -> int:
    """Rewrite the buckets that have too many rows of a key; return the table's number of rows afterwards."""
    layout, count = dataclasses.replace(contents.layout, keep=keep), 0
    for bucket in contents.buckets:
        paths = contents.snapshot.of_bucket(bucket).rows
        rows = pa.concat_tables([contents.files.schema.empty_table(), *map(contents.rows, paths)])
        newest = newest_rows(as_pending(rows), layout).rows
        count += newest.num_rows
        if newest.num_rows < rows.num_rows:
            change.replace(paths, [contents.files.stage(newest, bucket, 0)])
    return count
