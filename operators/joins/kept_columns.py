"""The columns of a join's kept rows, recorded in its state: a query that resumes may add columns, but not drop any."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import pyarrow as pa

from ...conf.errors import CheckpointError
from ...core.rows.widening import covers
from .band import SIDES
from .plan import JoinSide

__all__ = ["check_columns", "columns_to_json"]


def columns_to_json(sides: Sequence[JoinSide]) -> list[str]:
    """Return the columns of both sides as a JSON value."""
    schemas = [each.schema.remove_metadata().serialize().to_pybytes() for each in sides]
    return [base64.b64encode(each).decode() for each in schemas]


def check_columns(sides: Sequence[JoinSide], saved: Sequence[str], kept: Sequence[int]) -> None:
    """Refuse a side that lacks a column of its kept rows, or has it in another type; `kept` counts rows by side."""
    for name, side, columns, rows in zip(SIDES, sides, saved, kept, strict=True):
        was = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(columns)))
        if rows and not covers(side.schema, was):
            raise CheckpointError(
                f"rows of the {name} with other columns are kept in this checkpoint's join: {_listed(was)}",
                expected=f"the same columns, or more; now there are {_listed(side.schema)}",
                hint="put the columns back, or start with a new checkpointLocation",
            )


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
