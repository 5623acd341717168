"""Expressions over Arrow tables: values, and the rows in which they cannot be computed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..conf.errors import SchemaError
from .arrow import arrow_function
from .nodes import Expression, fields

if TYPE_CHECKING:
    from .compile import CompiledColumns
    from .places import Text


class BoundColumn(NamedTuple):
    """A column of a list, with its text."""

    name: str
    expression: Expression
    sql: str


class RowEvaluator:
    """An evaluator of named expressions; pickled, it is its expressions. Polars is imported only where it is needed."""

    def __init__(self, columns: Sequence[tuple[str, Expression]], schema: pa.Schema) -> None:
        self._columns = tuple(columns)
        self._schema = schema

    def __reduce__(self) -> tuple[Any, ...]:
        return RowEvaluator, (self._columns, self._schema)

    @property
    def reads(self) -> list[str]:
        """The columns that the expressions need."""
        needed = frozenset[str]().union(*(fields(each) for _, each in self._columns))
        return [name for name in self._schema.names if name in needed]

    @cached_property
    def _arrow(self) -> dict[str, Any]:
        found = {name: arrow_function(each) for name, each in self._columns}
        return {name: function for name, function in found.items() if function is not None}

    @cached_property
    def _compiled(self) -> CompiledColumns:
        from .compile import compiled_columns

        return compiled_columns([each for each in self._columns if each[0] not in self._arrow], self._schema)

    def check(self, text: Text) -> None:
        """Raise the text's error for an expression that is not supported here, or has a value for no row."""
        try:
            failure = None if len(self._arrow) == len(self._columns) else self._compiled.constant_failure()
        except SchemaError as error:
            raise text.error((0, 0), error.problem, expected=error.expected, hint=error.hint) from None
        if failure is not None:
            raise text.error((0, 0), f"no row has a value of {failure.of}: {failure.reason}")

    def evaluate(self, rows: pa.Table) -> tuple[dict[str, pa.ChunkedArray], dict[str, npt.NDArray[np.bool_]]]:
        """Return values by name, and the rows in which each fails and is null. `rows` may lack columns not needed."""
        made = {name: function(rows) for name, function in self._arrow.items()}
        failed: dict[str, npt.NDArray[np.bool_]] = {}
        if len(made) < len(self._columns):
            import polars as pl

            compiled = self._compiled
            given = rows.select(compiled.reads)
            # Polars counts the rows of a frame by its columns.
            frame = pl.DataFrame(pl.from_arrow(given)) if compiled.reads else pl.DataFrame({"": np.zeros(len(rows))})
            found, failed = compiled.tried(frame)
            for each in found:
                kind = compiled.schema.field(each.name).type
                made[each.name] = pa.chunked_array([each.to_arrow(compat_level=pl.CompatLevel.oldest())]).cast(kind)
        return {name: made[name] for name, _ in self._columns}, failed
