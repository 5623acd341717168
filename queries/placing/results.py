"""What table the result of a query has, and what identifies its rows."""

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
    """The table of a query.

    Attributes
    ----------
    kind : str
        "latest": a table of the rows that are there, by key. "feed": each change is a row for ever.
    key : tuple of str
        The columns of the table that identify a row, never null; none of a feed.
    plan : Node
        What to evaluate: the query's plan, in which the copies of equal rows are numbered if they can be there.
    schema : pyarrow.Schema
        Of the table.
    identity : tuple of str
        The columns of the plan that identify a row: they are the key, unless there is :attr:`row_key`.
    row_key : str or None
        The first column of the table, if it has one with the text of the identity.
    time : str or None
        The last column of a feed, with the time of each change; null for what holds from the beginning, before any
        row.
    """

    kind: Literal["latest", "feed"]
    key: tuple[str, ...]
    plan: Node
    schema: pa.Schema
    identity: tuple[str, ...]
    row_key: str | None
    time: str | None

    def of(self, changes: pl.DataFrame) -> pl.DataFrame:
        """Return changes of the plan with the columns of the table, followed by their time and weight.

        Parameters
        ----------
        changes : polars.DataFrame
            With the plan's columns, :data:`~..deltas.zsets.TIME` and :data:`~..deltas.zsets.WEIGHT`.
        """
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
    """Return the table that the result of a plan has.

    The columns that identify the rows of a relation are the key: :func:`~..relations.keys.key_of`. Where equal rows can
    be there, their copies are numbered, in a column ``copy``, and all columns are the key. Where a column of the key
    can be null, or has a type that no update key should have (floats, arrays, structs, maps, intervals), and where one
    row at most is there, the key is a column ``row_key`` with their text. Names that are taken get an underscore.

    Parameters
    ----------
    plan : Node
        A stream of changes, whose table is a feed with a column ``time`` more (``change_time`` if that is taken), or a
        relation. A relation of equal rows that come for ever and never leave is a feed too.

    Raises
    ------
    UnboundedError
        The copies of equal rows that come and leave would have to be counted for each value of a time, for ever.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from upstream.queries.relations.nodes import Latest, Range, Stream, Windowed
    >>> schema = pa.schema({"bus": pa.string(), "t": pa.timestamp("us", "UTC")})
    >>> buses = Stream("buses", schema, key=("bus",), event_time="t", updates=True)
    >>> result_of(Windowed(buses, Latest())).key
    ('bus',)
    >>> counted = result_of(Windowed(buses, Range(1_000_000)))
    >>> counted.key, counted.schema.names
    (('bus', 't', 'copy'), ['bus', 't', 'copy'])
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
