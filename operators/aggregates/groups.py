"""Rows and states by group: the input of every part."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...conf.errors import SchemaError
from ...core.rows.exact_integers import Int64s, Mask


class Groups:
    """The group of each row or state: a code from 0 to ``size - 1``. Some groups may have no rows."""

    def __init__(self, codes: npt.NDArray[np.integer], size: int) -> None:
        # np.bincount and fancy indexing want machine integers; a cast here saves one in each part.
        self.codes: Int64s = np.ascontiguousarray(codes, dtype=np.int64)
        self.size = size

    @cached_property
    def counts(self) -> Int64s:
        return np.bincount(self.codes, minlength=self.size).astype(np.int64, copy=False)

    def at(self, which: Mask | Int64s) -> Groups:
        return Groups(self.codes[which], self.size)

    def check(self, rows: int) -> None:
        """Raise ValueError unless there are `rows` codes, all in range."""
        if len(self.codes) != rows:
            raise ValueError(f"{len(self.codes)} codes for {rows} rows")
        if rows and not 0 <= int(self.codes.min()) <= int(self.codes.max()) < self.size:
            raise ValueError(f"codes from {self.codes.min()} to {self.codes.max()}, but there are {self.size} groups")


class GroupedRows:
    """Rows to be lifted, by group. Several parts share the result of dropping a column's nulls."""

    def __init__(self, columns: Mapping[str, pa.Array], groups: Groups) -> None:
        self._columns = columns
        self._valid: dict[str, tuple[pa.Array, Groups]] = {}
        self.groups = groups

    def column(self, name: str) -> pa.Array:
        return self._columns[name]

    def valid(self, name: str) -> tuple[pa.Array, Groups]:
        """Return a column's values without its nulls, and their groups."""
        if name not in self._valid:
            array, groups = self._columns[name], self.groups
            if array.null_count:
                array, groups = array.drop_null(), groups.at(valid_mask(array))
            self._valid[name] = array, groups
        return self._valid[name]

    def complete(self, name: str, role: str) -> pa.Array:
        """Return a column. Raise SchemaError, which describes its `role`, if it has nulls."""
        array = self._columns[name]
        if array.null_count:
            raise SchemaError(
                f"{array.null_count} rows have no {name}, which is {role}",
                expected=f"a {name} in every row",
                hint=f'leave such rows out, for example where("{name} IS NOT NULL")',
            )
        return array


def valid_mask(array: pa.Array) -> Mask:
    """Return the mask of the values that are not null."""
    return array.is_valid().to_numpy(zero_copy_only=False)
