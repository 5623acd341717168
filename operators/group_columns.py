"""Checks of the columns that form groups, of `group_by` and of windows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..conf.errors import SchemaError
from ..core.rows.system_column import SYSTEM

__all__ = ["check_group_columns"]


def check_group_columns(what: str, names: Sequence[str], schema: pa.Schema) -> None:
    """Raise SchemaError for columns that do not exist or form no groups, such as fractions: equal-looking ones may
    differ.

    `what` is the user's call with ``{}`` for the column, such as ``group_by({})``.
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
