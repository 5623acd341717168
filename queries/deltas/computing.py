"""Expressions of plans as what operators evaluate."""

from __future__ import annotations

import pyarrow as pa

from ..expressions.compile import compiled
from ..expressions.nodes import Expression, fields
from .operator import Computed

__all__ = ["computed"]


def computed(expression: Expression, schema: pa.Schema) -> Computed:
    """Build what evaluates an expression over rows with these columns, with Spark's meaning.

    Raises
    ------
    SchemaError
        The rows have no such column, or the expression cannot be evaluated here.
    """
    return Computed(compiled(expression, schema).evaluate, fields(expression), expression.type)
