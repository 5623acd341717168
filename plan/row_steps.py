"""Steps on each row by itself, as the user wrote them: each compiler computes them in its own way."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Choice", "Filter", "RowStep"]


@dataclasses.dataclass(frozen=True)
class Filter:
    """Rows that satisfy a condition.

    Attributes
    ----------
    condition : str or pyspark.sql.Column
    on_leave : str
        ``keep``: a row that fails is dropped. ``delete``: it becomes a tombstone.
    """

    condition: str | Column
    on_leave: Literal["keep", "delete"] = "keep"

    @property
    def opaque(self) -> bool:
        """Whether it contains a Column of the user's, which may belong to a DataFrame of the steps before."""
        return not isinstance(self.condition, str)

    @property
    def text(self) -> str:
        """Its effect, in a few words."""
        return f"where {_shown(self.condition)}" + (", else delete the key" if self.on_leave == "delete" else "")


@dataclasses.dataclass(frozen=True)
class Choice:
    """Columns that are kept or computed, beside the key, the time and the system column.

    Attributes
    ----------
    columns : tuple of str or pyspark.sql.Column
    """

    columns: tuple[str | Column, ...]

    @property
    def opaque(self) -> bool:
        """Whether it contains a Column of the user's, which may belong to a DataFrame of the steps before."""
        return not all(isinstance(each, str) for each in self.columns)

    @property
    def text(self) -> str:
        """Its effect, in a few words."""
        return "select " + ", ".join(map(_shown, self.columns))


RowStep = Filter | Choice


def _shown(expression: str | Column) -> str:
    """Return an expression as it was written, or as Spark prints it."""
    if isinstance(expression, str):
        return expression
    return str(expression).removeprefix("Column<'").removesuffix("'>")
