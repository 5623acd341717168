"""The table of a query's result, and the columns that identify its rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ..core.rows.text import value_texts
from ..operators.relations.plan.bounds import growth_of
from ..operators.relations.plan.nodes import Changes, Copies, Relation
from ..operators.relations.plan.properties import key_of, never_null
from ..operators.relations.windows import check_years
from ..operators.relations.zsets import BEGINNING, TIME, WEIGHT, columns_of, int64s, to_table
from ..sink.results.result_table import ResultTable

NULL = "\\N"
"""The text of null. No value has it: a backslash in a value is doubled."""


def row_keys(rows: pa.Table, columns: Sequence[str]) -> pa.Array:
    r"""Return a text for each row, equal exactly for equal values of the columns; without columns, the empty text.

    Commas separate values; a backslash escapes commas and backslashes in them; null is ``\N``. A comma follows each
    element of an array and separates the fields of a struct; binary values are hexadecimal.
    """
    if not columns:
        return pa.array([""] * rows.num_rows, pa.string())
    return _joined([_texts(rows.column(name).combine_chunks()) for name in columns])


def _joined(values: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*(_escaped(each) for each in values), ",")


def _escaped(texts: pa.Array) -> pa.Array:
    doubled = pc.replace_substring(texts, "\\", "\\\\")
    return pc.fill_null(pc.replace_substring(doubled, ",", "\\,"), NULL)


def _texts(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_struct(kind):
        fields = values.flatten()
        made = _joined([_texts(each) for each in fields]) if fields else pa.array([""] * len(values), pa.string())
        return pc.if_else(values.is_valid(), made, None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list_texts(values)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        series = pl.from_arrow(values.cast(pa.large_binary()))
        assert isinstance(series, pl.Series)
        return series.bin.encode("hex").to_arrow().cast(pa.string())
    if pa.types.is_duration(kind):
        return values.cast(pa.int64()).cast(pa.string())
    if pa.types.is_floating(kind):
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), values)
    return value_texts(values).cast(pa.string())


def _list_texts(values: pa.Array) -> pa.Array:
    elements = pc.binary_join_element_wise(_escaped(_texts(pc.list_flatten(values))), "", ",")
    sizes = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    made = pc.binary_join(pa.LargeListArray.from_arrays(offsets, elements), "")
    return pc.if_else(values.is_valid(), made, None)


_MOMENT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Result:
    """The table of a query."""

    kind: Literal["latest", "feed"]  # "latest": the current rows by key; "feed": one row for each change, forever.
    key: tuple[str, ...]  # Columns of the table, never null; empty for a feed.
    plan: Relation | Changes  # The query's plan; copies of rows are numbered if they can be equal.
    schema: pa.Schema
    identity: tuple[str, ...]  # The plan's identifying columns: the key, unless there is a `row_key`.
    row_key: str | None  # The table's first column, if it holds the identity as text.
    time: str | None  # A feed's last column, each change's time; null for rows from the beginning.

    def table(
        self,
        incarnation: int,
        name: str,
        location: str,
        buckets: int,
        options: tuple[tuple[str, str], ...] = (),
        *,
        overwrite: bool = False,
    ) -> ResultTable:
        keep = "all" if self.kind == "feed" else "latest"
        return ResultTable(incarnation, name, location, self.schema, self.key, keep, buckets, options, overwrite)

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


def result_of(plan: Relation | Changes) -> Result:
    """Return the table for the result of a plan. Streams of changes, and equal rows that never leave, become feeds.

    The key is :func:`~..relations.keys.key_of`. Where rows can be equal, their copies are numbered in a column
    ``copy``, and all columns are the key. The key is a column ``row_key`` with the values as text if one can be null, a
    type is unsuitable, or there is at most one row. Names that are taken get an underscore.

    Raise UnboundedError if copies of equal rows would have to be counted for each value of a time, forever.
    """
    if not isinstance(plan, Changes) and key_of(plan) is None:
        growth = growth_of(plan)
        if growth.grows and not growth.retracts:
            plan = Changes(plan, "istream")
    if isinstance(plan, Changes):
        time = _free("change_time" if "time" in plan.schema.names else "time", plan.schema.names)
        return Result("feed", (), plan, plan.schema.append(pa.field(time, _MOMENT)), (), None, time)
    identity = key_of(plan)
    if identity is None:
        assert not isinstance(plan, Copies)
        plan = Copies(plan, _free("copy", plan.schema.names))
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
