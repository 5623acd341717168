"""Expressions drawn at random, evaluated by Spark and by us: equal in type and value, or an error of both."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from upstream.conf.errors import QueryError
from upstream.queries.expressions.compile import compiled

from .pairs import SCHEMA, Drawn, Pair, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INEXACT = ("power(",)
"""Java and C may differ in the last digit."""


def _ours(pair: Pair, frame: pl.DataFrame) -> tuple[list[Any], list[bool]]:
    """Our values, and in which rows there is an error."""
    evaluated = compiled(pair.ours, SCHEMA)
    try:
        return evaluated.evaluate(frame).to_arrow().cast(pair.ours.type).to_pylist(), [False] * frame.height
    except QueryError:
        values, failed = [], []
        for at in range(frame.height):
            try:
                values += evaluated.evaluate(frame[at]).to_arrow().cast(pair.ours.type).to_pylist()
                failed.append(False)
            except QueryError as error:
                if "outside the years" in str(error) or "date of today" in str(error):
                    failed.append(None)
                else:
                    failed.append(True)
                values.append(None)
        return values, failed
