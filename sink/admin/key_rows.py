"""The rows of one key in a data file, dead rows included, and the file's other rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...conf.column_names import columns_of
from ...conf.errors import TableError
from ...core.rows.columns import columns_at
from ...core.rows.newest import key_codes

if TYPE_CHECKING:
    from ...delta_format.deletion_vectors import DeletionVector
    from ..merge.pending import Mask
    from ..table.files import DataFiles

__all__ = ["FileWithKey", "KeyRows"]


@dataclasses.dataclass(frozen=True)
class FileWithKey:
    """A file that holds rows of the key."""

    path: str
    live: int  # rows of the key that readers see
    dead: int  # rows of the key that readers do not see
    kept: pa.Table  # the other live rows


class KeyRows:
    """A search for the rows of one key. Each of the key's values is a column of one row."""

    def __init__(self, names: Sequence[str], values: Sequence[pa.Array]) -> None:
        self._names = tuple(names)
        self._values = tuple(values)

    def among(self, rows: pa.Table) -> Mask:
        """Return which rows have the key, by the same equality as in a batch."""
        if rows.num_rows == 0:
            return np.zeros(0, dtype=np.bool_)
        columns = columns_at(rows, self._names)
        stacked = [
            pa.chunked_array([*column.chunks, value.cast(column.type)], column.type)
            for column, value in zip(columns, self._values, strict=True)
        ]
        codes, _ = key_codes(stacked)
        return codes[:-1] == codes[-1]

    def found_in(self, files: DataFiles, path: str, vector: DeletionVector | None) -> FileWithKey | None:
        """Return the file's rows of the key; None if it has none, dead rows included."""
        try:
            columns = list(dict.fromkeys(columns_of(self._names, files.schema.names)))
            mine = self.among(files.read_rows([path], columns=columns))
            if not mine.any():
                return None
            dead = files.dead(vector, len(mine))
            kept = files.read_rows([path], [dead | mine])
        except FileNotFoundError as error:
            raise TableError(
                f"a file of the table is gone: {error}",
                expected="a table that `upstream check` finds right",
                hint="run `upstream repair` first",
            ) from error
        return FileWithKey(path, int((mine & ~dead).sum()), int((mine & dead).sum()), kept)
