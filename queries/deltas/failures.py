"""Failures that end one query and leave the others running."""

from __future__ import annotations

import polars as pl

from ...conf.errors import CheckpointError, TableError

__all__ = ["FAILURES", "attributed", "reason_of"]

FAILURES = (Exception, pl.exceptions.PanicException)
"""The errors of planning, evaluating or merging a query. A panic of Polars is no ``Exception``."""

_ENVIRONMENT = (OSError, EOFError, CheckpointError)


def attributed(error: BaseException) -> BaseException:
    """Return an error that ends its query, or raise one of a disk, a store or the state, so the batch is repeated."""
    # Spark's own errors come from its state store; the values of a query never pass through it.
    of_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
    of_disk = isinstance(error, TableError) and isinstance(error.__cause__, OSError)
    if isinstance(error, _ENVIRONMENT) or of_spark or of_disk:
        raise error
    return error


def reason_of(error: BaseException) -> str:
    """Return the reason that users see for a query's end; raise as :func:`attributed` does."""
    return f"{type(error).__name__}: {attributed(error)}"
