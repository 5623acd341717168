"""The kernel of table joins: find the table's row for each row of a stream."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...conf.errors import TableError
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import Int64s
from ...core.rows.split import some_at_once
from ...core.rows.system_column import passing_mask
from ..joins.arriving import numbers_of, without_key
from ..joins.matching import SortedRows, equal_keys, is_exact, matches, sorted_rows
from ..runtime.entries import grouped
from .plan import TableJoinPlan

__all__ = ["indexed", "joined"]


def indexed(table: pa.Table, plan: TableJoinPlan) -> SortedRows:
    """Return the table's rows, sorted for lookup by key, without those that have a null in their key.

    Inner and left joins give one result for each row, so they refuse a key that is in several rows.
    """
    names = plan.table_on
    table = table.filter(pa.array(~without_key(table, names)))
    if plan.one and table.num_rows:
        codes, first, size = grouped(columns_at(table, names))
        if size < table.num_rows:
            again = np.ones(table.num_rows, dtype=np.bool_)
            again[first] = False
            row = table.select(list(names)).slice(int(first[codes[np.flatnonzero(again)[0]]]), 1).to_pylist()[0]
            key = ", ".join(f"{name} {value!r}" for name, value in row.items())
            raise TableError(
                f"the table at {plan.location} has {table.num_rows - size} rows more than keys: {key} is in several",
                expected="one row for each key, so that a row of the stream has one result",
                hint="join on columns that name one row, clean the table up, or use how='semi' or how='anti'",
            )
    numbers = numbers_of(table, names)
    return sorted_rows(numbers, np.zeros(len(numbers), dtype=np.int64), table.combine_chunks())


def joined(batches: Iterator[pa.RecordBatch], table: SortedRows, plan: TableJoinPlan) -> Iterator[pa.RecordBatch]:
    """Yield a task's joined rows; punctuation and tombstones keep their places, with nulls for the table's columns."""
    for rows in some_at_once(batches):
        passing = passing_mask(rows).to_numpy()
        found = _found(rows, ~passing & ~without_key(rows, plan.on), table, plan)
        stays = np.ones(rows.num_rows, dtype=np.bool_)
        if plan.how != "left":
            stays = passing | ((found < 0) if plan.how == "anti" else (found >= 0))
        at = pa.array(found[stays], mask=found[stays] < 0)
        columns = {name: table.table.column(source).take(at) for name, source in plan.columns}
        kept = rows if stays.all() else rows.filter(pa.array(stays))
        columns |= {name: kept.column(name) for name in plan.before.names}
        result = pa.table({name: columns[name] for name in plan.schema.names}).cast(plan.schema)
        yield from result.combine_chunks().to_batches(max_chunksize=10_000)


def _found(rows: pa.Table, asks: npt.NDArray[np.bool_], table: SortedRows, plan: TableJoinPlan) -> Int64s:
    """Return the position in the table of each row's partner; -1 for none."""
    found = np.full(rows.num_rows, -1, dtype=np.int64)
    probes = rows.filter(pa.array(asks))
    place = np.flatnonzero(asks)
    none = np.zeros(len(place), dtype=np.int64)
    exact = is_exact([plan.before.field(name).type for name in plan.on])
    for at, there in matches(numbers_of(probes, plan.on), none, none, table):
        if exact:
            found[place[at]] = there
        else:
            same = equal_keys(probes, plan.on, at, table.table, plan.table_on, there).to_numpy(zero_copy_only=False)
            found[place[at[same]]] = there[same]
    return found
