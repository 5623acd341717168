"""What a join by time refuses of the rows that come."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import MalformedRowError, SchemaError
from ...core.rows.exact_integers import Int64s
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import deleted_mask, system_field

__all__ = ["checked_rows", "checked_times"]


def checked_rows(rows: pa.Table, *, tombstones: bool = False) -> pa.Table:
    """Refuse tombstones, unless they may come, and rows that represent several.

    Raises
    ------
    SchemaError
        Saying what to do instead.
    """
    covered = system_field(rows, "covered")
    if len(covered) and int(pc.max(covered).as_py() or 1) > 1:
        raise SchemaError(
            "a row before the join stands for several updates, of which the others were coalesced",
            expected="every row: a join over the newest ones only would miss pairs",
            hint="put the join before the queue, and read the source without coalescing",
        )
    gone = int(pc.sum(deleted_mask(rows)).as_py() or 0)
    if gone and not tombstones:
        raise SchemaError(
            f"{gone} rows before the join are tombstones",
            expected="rows with values: a join by time wants each row that there was, and a tombstone takes rows back",
            hint="leave them out before the join, with a function over the source, or read without `deleted`",
        )
    return rows


def checked_times(rows: pa.Table, name: str) -> Int64s:
    """Return the rows' times as numbers.

    Raises
    ------
    MalformedRowError
        A row has none.
    """
    column = rows.column(name)
    if column.null_count:
        raise MalformedRowError(
            f"{column.null_count} of {len(column)} rows have no time in {name!r}, so nothing can be said of when they "
            "meet others",
            expected="a time in each row",
            hint="take such rows out before the join, and count them",
        )
    return ordered(column).astype(np.int64, copy=False)
