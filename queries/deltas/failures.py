"""What ends one query and not the others."""

from __future__ import annotations

import polars as pl

from ...conf.errors import CheckpointError, TableError

__all__ = ["FAILURES", "attributed", "reason_of"]

FAILURES = (Exception, pl.exceptions.PanicException)
"""What planning, evaluating or merging a query may raise. A panic of Polars is no ``Exception``."""

_ENVIRONMENT = (OSError, EOFError, CheckpointError)


def attributed(error: BaseException) -> BaseException:
    """Return an error that ends its query. One of a disk, a store or the state is raised: the batch is repeated."""
    # Spark's own errors come from its state store; the values of a query never pass through it.
    of_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
    of_disk = isinstance(error, TableError) and isinstance(error.__cause__, OSError)
    if isinstance(error, _ENVIRONMENT) or of_spark or of_disk:
        raise error
    return error


def reason_of(error: BaseException) -> str:
    """Return why a query ended, for those who look at it; see :func:`attributed`."""
    return f"{type(error).__name__}: {attributed(error)}"
