"""Arrow tables out of rows that a test writes down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def arrow_rows(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows as tuples, in the order of the schema's columns; none, if there are none."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    return pa.table(columns, schema=schema)
