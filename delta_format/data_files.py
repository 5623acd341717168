"""The data files of a loaded Delta table, as delta-rs lists them."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from .column_mapping import kinds_in

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["LiveFiles", "has_early_times"]


@dataclasses.dataclass(frozen=True)
class LiveFiles:
    """The data files, as parallel lists."""

    paths: list[str]  # relative to the table
    sizes: list[int]  # in bytes
    rows: list[int | None]  # counts that include dead rows; None where the log has none
    _actions: pa.Table

    @classmethod
    def of(cls, table: DeltaTable) -> LiveFiles:
        # pa.table would do the same, and import pandas to find out that this is no data frame.
        actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
        paths = [unquote(path) for path in actions.column("path").to_pylist()]
        counted = "num_records" in actions.column_names
        rows: list[int | None] = actions.column("num_records").to_pylist() if counted else [None] * len(paths)
        return cls(paths, actions.column("size_bytes").to_pylist(), rows, actions)

    def partition(self, name: str) -> list[Any]:
        """Return each file's value of a partition column."""
        return self._actions.column("partition").combine_chunks().field(name).to_pylist()


def has_early_times(table: DeltaTable, schema: Any) -> bool:
    """Return whether the log proves that all times of a loaded table are in the years 1678 to 2261.

    Spark writes times in nanoseconds, and many readers misread times beyond those years. The table has no column
    mapping.
    """
    divided = table.metadata().partition_columns  # of these the log has the values themselves
    paths = list(_times_in({"fields": [field for field in schema["fields"] if field["name"] not in divided]}))
    if not paths:
        return True
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    if not {"num_records", *(f"{kind}.{path}" for path in paths for kind in _STATS)} <= set(actions.column_names):
        return len(actions) == 0
    return all(_is_early(actions, path) for path in paths)


_STATS = ("min", "max", "null_count")
_EARLIEST, _LATEST = (dt.datetime(year, 1, 1, tzinfo=dt.timezone.utc) for year in (1678, 2262))


def _is_early(actions: pa.Table, path: str) -> bool:
    low, high, nulls = (actions.column(f"{kind}.{path}") for kind in _STATS)
    if not pa.types.is_timestamp(low.type):
        return False
    within = pc.and_(pc.greater_equal(low, pa.scalar(_EARLIEST, low.type)), pc.less(high, pa.scalar(_LATEST, low.type)))
    known = pc.or_kleene(within, pc.equal(nulls, actions.column("num_records")))
    return pc.all(known, skip_nulls=False).as_py() is True


def _times_in(kind: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of times in a struct, and of lists and maps with times, which have no statistics."""
    for field in kind["fields"]:
        inner, where = field["type"], f"{path}{field['name']}"
        if isinstance(inner, dict) and inner["type"] == "struct":
            yield from _times_in(inner, f"{where}.")
        elif inner == "timestamp" or (isinstance(inner, dict) and "timestamp" in kinds_in(inner)):
            yield where
