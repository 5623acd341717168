"""Columns that form groups: those of `group_by`, and those by which windows have rows of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..conf.errors import SchemaError
from ..core.rows.system_column import SYSTEM

__all__ = ["check_group_columns"]


def check_group_columns(what: str, names: Sequence[str], schema: pa.Schema) -> None:
    """Refuse columns that do not exist, and those whose values form no groups.

    Parameters
    ----------
    what
        The step, and how its user names a column, with ``{}`` in the column's place: ``group_by({})``.
    names
        The columns.
    schema : pyarrow.Schema
        Of the rows.

    Raises
    ------
    SchemaError
        A column is absent, or its type forms no groups: fractions that look equal may differ.
    """
    for name in names:
        asked = what.format(repr(name))
        if name not in schema.names or name == SYSTEM:
            raise SchemaError(
                f"{asked}, which the stream has not",
                expected="columns among " + ", ".join(each for each in schema.names if each != SYSTEM),
                hint="correct the name",
            )
        kind = schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            raise SchemaError(
                f"{asked}, which is of type {kind}",
                expected="a column of whole numbers, decimals, texts, dates, times or booleans",
                hint="cast it where the rows are read: read(…, select='CAST(a AS BIGINT) AS a, …')",
            )
