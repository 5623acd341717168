"""What ends one query and not the others."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from ...conf.errors import UpstreamError

__all__ = ["FAILURES", "reason_of"]

FAILURES = (UpstreamError, pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException)
"""Errors in the values of a query's rows. A panic of Polars is an exception that is no ``Exception``."""


def reason_of(error: BaseException) -> str:
    """Return why a query ended, for those who look at it."""
    return f"{type(error).__name__}: {error}"
