"""Arrangements: the rows that an operator keeps, found by a number of their key."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import Int64s
from ...operators.runtime.key_pages import KeyPages
from .zsets import conformed, dtypes_of, to_table

__all__ = ["NUMBER", "Arrangement"]

NUMBER = "__number"
"""The column with the number by which a row is found."""


class Arrangement:
    """The rows of an operator's state, in pages by key.

    A step calls :meth:`read` once, and :meth:`write` at most once.

    Parameters
    ----------
    pages : KeyPages
        Of ``schema`` and the column :data:`NUMBER`.
    schema : pyarrow.Schema
        Of the rows.
    """

    def __init__(self, pages: KeyPages, schema: pa.Schema) -> None:
        self._pages = pages
        self._schema = schema.append(pa.field(NUMBER, pa.int64()))
        self._dtypes = dtypes_of(schema)
        self._read = self._schema.empty_table()
        self._mine: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)  # of the rows on the pages that were read

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._pages.rows

    @property
    def numbers(self) -> Int64s:
        """The numbers of the rows that the last call read."""
        return _numbers(self._read)[self._mine]

    def read(self, numbers: Int64s) -> pl.DataFrame:
        """Return all rows with some numbers."""
        numbers = np.unique(numbers)
        self._read = self._pages.read(self._pages.pages(numbers))
        self._mine = np.isin(_numbers(self._read), numbers)
        return self._frame(self._read.filter(pa.array(self._mine)))

    def read_all(self) -> pl.DataFrame:
        """Return all rows."""
        self._read = self._pages.read(self._pages.all_pages)
        self._mine = np.ones(self._read.num_rows, dtype=np.bool_)
        return self._frame(self._read)

    def keep(self, stays: Callable[[pl.DataFrame], npt.NDArray[np.bool_]]) -> bool:
        """Remove the rows that do not stay; return whether there were any."""
        if self.rows == 0:
            return False
        rows = self.read_all()
        there = stays(rows)
        if not there.all():
            self.write(rows.filter(pl.Series(there)), _numbers(self._read)[there])
        return not there.all()

    def write(self, rows: pl.DataFrame, numbers: Int64s, replaced: npt.NDArray[np.bool_] | None = None) -> None:
        """Put rows in place of those that were read.

        Parameters
        ----------
        rows
            With numbers that were read, as they are from now on.
        numbers : int64 array of length rows
            Their numbers.
        replaced : bool array, optional
            Which of the rows that were read they replace. Without it, all.
        """
        was = _numbers(self._read)
        mine = self._mine.copy()
        if replaced is not None:
            mine[mine] = replaced
        pages = self._pages.pages(np.concatenate([was[mine], numbers]))
        touched = self._pages.among(was, pages)
        others = self._read.filter(pa.array(touched & ~mine))
        table = to_table(conformed(rows, self._dtypes), pa.schema(list(self._schema)[:-1]))
        table = table.append_column(NUMBER, pa.array(numbers))
        self._pages.write(pages, int(touched.sum()), pa.concat_tables([others.select(table.column_names), table]))

    def _frame(self, table: pa.Table) -> pl.DataFrame:
        frame = pl.from_arrow(table.drop_columns([NUMBER]))
        assert isinstance(frame, pl.DataFrame)
        return conformed(frame, self._dtypes)


def _numbers(table: pa.Table) -> Int64s:
    return table.column(NUMBER).to_numpy()
