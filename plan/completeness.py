"""Checks that a stream has every row once, as a window over it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..conf.errors import SchemaError
from ..core.pushdown.at_source import reads_coalesced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
__all__ = ["LeftOut", "check_complete", "left_out_by_source", "source_text"]


class LeftOut(NamedTuple):
    """The reason why a stream does not have every row once."""

    problem: str  # the step that drops or repeats rows, and how
    hint: str  # what to do instead


def check_complete(left_out: LeftOut | None, otherwise: str = "a window would count wrongly here") -> None:
    """Refuse an operator on a stream that does not have every row once; `otherwise` is the operator's wrong result."""
    if left_out is not None:
        raise SchemaError(f"{otherwise}: {left_out.problem}", expected="every row, once", hint=left_out.hint)


def left_out_by_source(df: DataFrame) -> LeftOut | None:
    """Return why a window would miscount the rows of a DataFrame as it is read, or None."""
    if not reads_coalesced(df):
        return None
    return LeftOut(
        "the source coalesces (coalesce=true): in each batch it leaves out all rows of a key but the newest",
        'read with spark.readStream.format("upstream") without coalesce; upstream.latest always coalesces',
    )


def source_text(given: Mapping[str, str] | None) -> str:
    """Return the input of a DataFrame in a few words, without secrets, from
    :func:`~upstream.core.pushdown.at_source.source_options`.
    """
    if given is None:
        return "a DataFrame"
    named = next(
        (given[name] for name in ("path", "paths", "subscribe", "subscribepattern", "assign") if name in given), ""
    )
    return f"{given.get('connector', 'files')} {named}".strip()
