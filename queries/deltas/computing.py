"""Expressions of plans as what operators evaluate."""

from __future__ import annotations

import pyarrow as pa

from ..expressions.compile import compiled
from ..expressions.nodes import Expression, Field, fields
from .operator import Computed

__all__ = ["computed"]


def computed(expression: Expression, schema: pa.Schema) -> Computed:
    """Build what evaluates an expression over rows with these columns, with Spark's meaning.

    Raises
    ------
    SchemaError
        The rows have no such column, or the expression cannot be evaluated here.
    """
    evaluate = compiled(expression, schema).evaluate
    column = expression.name if isinstance(expression, Field) else None
    return Computed(evaluate, fields(expression), expression.type, column)
