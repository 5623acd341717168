"""Which data files hold a Delta table at the version at which it is loaded, as delta-rs tells."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["LiveFiles"]


@dataclasses.dataclass(frozen=True)
class LiveFiles:
    """The data files, each at one place of the lists.

    Attributes
    ----------
    paths : list of str
        Relative to the table.
    sizes : list of int
        In bytes, as the log says.
    rows : list of int or None
        How many each holds, dead ones included; None where the log does not say.
    """

    paths: list[str]
    sizes: list[int]
    rows: list[int | None]
    _actions: pa.Table

    @classmethod
    def of(cls, table: DeltaTable) -> LiveFiles:
        """Return the data files of a loaded table."""
        # pa.table would do the same, and import pandas to find out that this is no data frame.
        actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
        paths = [unquote(path) for path in actions.column("path").to_pylist()]
        counted = "num_records" in actions.column_names
        rows: list[int | None] = actions.column("num_records").to_pylist() if counted else [None] * len(paths)
        return cls(paths, actions.column("size_bytes").to_pylist(), rows, actions)

    def partition(self, name: str) -> list[Any]:
        """Return each file's value of a column that partitions the table."""
        return self._actions.column("partition").combine_chunks().field(name).to_pylist()
