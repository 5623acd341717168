"""The rows of one key in a data file, dead ones included, and the file's rows without them."""

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
    """A file that holds rows of the key.

    Attributes
    ----------
    path : str
    live, dead : int
        Rows of the key that readers see, and that they do not.
    kept : pyarrow.Table
        The other live rows.
    """

    path: str
    live: int
    dead: int
    kept: pa.Table


class KeyRows:
    """Looks for the rows of a key.

    Parameters
    ----------
    names
        The key's columns, or their fields.
    values
        Of each, a column of one row.
    """

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
        """Return what a file holds of the key; None where it holds nothing, dead rows included.

        Raises
        ------
        TableError
            The file, or its vector, is gone or damaged.
        """
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
