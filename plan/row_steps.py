"""Steps on single rows, as the user wrote them. Each compiler computes them in its own way."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Choice", "Filter", "RowStep"]


@dataclasses.dataclass(frozen=True)
class Filter:
    """A filter of rows."""

    condition: str | Column
    # the row that fails is dropped (``keep``) or becomes a tombstone (``delete``)
    on_leave: Literal["keep", "delete"] = "keep"

    @property
    def opaque(self) -> bool:
        """True if it has a Column of the user's, which may belong to a DataFrame of an earlier step."""
        return not isinstance(self.condition, str)

    @property
    def text(self) -> str:
        return f"where {_shown(self.condition)}" + (", else delete the key" if self.on_leave == "delete" else "")


@dataclasses.dataclass(frozen=True)
class Choice:
    """A choice of columns to keep or compute, besides the key, the time and the system column."""

    columns: tuple[str | Column, ...]

    @property
    def opaque(self) -> bool:
        """True if it has a Column of the user's, as in :class:`Filter`."""
        return not all(isinstance(each, str) for each in self.columns)

    @property
    def text(self) -> str:
        return "select " + ", ".join(map(_shown, self.columns))


RowStep = Filter | Choice


def _shown(expression: str | Column) -> str:
    """Return an expression as it was written, or as Spark prints it."""
    if isinstance(expression, str):
        return expression
    return str(expression).removeprefix("Column<'").removesuffix("'>")
