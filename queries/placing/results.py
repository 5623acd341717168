"""The table of a query's result, and the columns that identify its rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import polars as pl
import pyarrow as pa

from ..deltas.years import check_years
from ..deltas.zsets import BEGINNING, TIME, WEIGHT, columns_of, int64s, to_table
from ..relations.bounds import growth_of
from ..relations.keys import key_of
from ..relations.nodes import Changes, Copies, Node
from ..relations.nulls import never_null
from .row_keys import row_keys

__all__ = ["Result", "result_of"]

_MOMENT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Result:
    """The table of a query."""

    kind: Literal["latest", "feed"]  # "latest": the current rows by key; "feed": one row for each change, forever.
    key: tuple[str, ...]  # Columns of the table, never null; empty for a feed.
    plan: Node  # The query's plan; copies of rows are numbered if they can be equal.
    schema: pa.Schema
    identity: tuple[str, ...]  # The plan's identifying columns: the key, unless there is a `row_key`.
    row_key: str | None  # The table's first column, if it holds the identity as text.
    time: str | None  # A feed's last column, each change's time; null for rows from the beginning.

    def of(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Return the plan's changes with the columns of the table, followed by their time and weight."""
        more: list[pl.Series | pl.Expr] = []
        if self.row_key is not None:
            rows = to_table(changes.select(columns_of(changes)), self.plan.schema)
            texts = pl.Series(self.row_key, row_keys(rows, self.identity), dtype=pl.String)
            more.append(texts)
        if self.time is not None:
            times = int64s(changes, TIME)
            check_years(times[times != BEGINNING], "the result changes")
            at = pl.when(pl.col(TIME) != BEGINNING).then(pl.col(TIME)).cast(pl.Datetime("us", "UTC"))
            more.append(at.alias(self.time))
        if not more and changes.columns == [*self.schema.names, TIME, WEIGHT]:
            return changes
        return changes.with_columns(more).select(*self.schema.names, TIME, WEIGHT)


def result_of(plan: Node) -> Result:
    """Return the table for the result of a plan. Streams of changes, and equal rows that never leave, become feeds.

    The key is :func:`~..relations.keys.key_of`. Where rows can be equal, their copies are numbered in a column
    ``copy``, and all columns are the key. The key is a column ``row_key`` with the values as text if one can be null, a
    type is unsuitable, or there is at most one row. Names that are taken get an underscore.

    Raise UnboundedError if copies of equal rows would have to be counted for each value of a time, forever.
    """
    if not isinstance(plan, Changes) and key_of(plan) is None:
        growth = growth_of(plan)
        if growth.grows and not growth.retracts:
            plan = Changes(plan, "istream")  # pyright: ignore[reportArgumentType]
    if isinstance(plan, Changes):
        time = _free("change_time" if "time" in plan.schema.names else "time", plan.schema.names)
        return Result("feed", (), plan, plan.schema.append(pa.field(time, _MOMENT)), (), None, time)
    identity = key_of(plan)
    if identity is None:
        assert not isinstance(plan, Copies)
        plan = Copies(plan, _free("copy", plan.schema.names))  # pyright: ignore[reportArgumentType]
        growth_of(plan)
        identity = tuple(plan.schema.names)
    certain = never_null(plan)
    if identity and all(name in certain and _is_usable(plan.schema.field(name).type) for name in identity):
        return Result("latest", identity, plan, plan.schema, identity, None, None)
    row_key = _free("row_key", plan.schema.names)
    schema = pa.schema([pa.field(row_key, pa.string(), nullable=False), *plan.schema])
    return Result("latest", (row_key,), plan, schema, identity, row_key, None)


def _free(name: str, taken: Collection[str]) -> str:
    lowered = {each.lower() for each in taken}
    while name in lowered:
        name += "_"
    return name


def _is_usable(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal128(kind)
    )
