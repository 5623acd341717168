"""The kernel of table joins: a Delta table's rows at a version, and the one for each row of a stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...conf.errors import FeedChangedError, OptionError, SchemaError, TableError
from ...conf.options import names_argument, text_argument, word_argument
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import Int64s
from ...core.rows.frames import some_at_once
from ...core.rows.system_column import SYSTEM, passing_mask
from ...delta_format.log import check_log
from ...delta_format.scan import check_readable, scan_table
from ...storage.folder import TableFolder
from ..joins.pair_kernel import SortedRows, equal_keys, is_exact, matches, sorted_rows
from ..joins.side import numbers_of, without_key
from ..state.entries import grouped

if TYPE_CHECKING:
    from deltalake import DeltaTable


_NEW_CHECKPOINT = "start with a new checkpoint, which begins with the table as it is then"


class Version(NamedTuple):
    """A version of a table."""

    table: str  # Delta's id, which a table that is removed and created again does not share
    number: int


def latest_version(location: str, storage: Mapping[str, str]) -> Version:
    """Return the table's current version."""
    table = _opened(location, storage)
    return Version(str(table.metadata().id), table.version())


def columns_of_table(location: str, storage: Mapping[str, str]) -> pa.Schema:
    """Return the table's current columns, in the types that Spark gives Arrow."""
    return in_spark_types(pa.schema(_opened(location, storage).schema().to_arrow()))


def pinned_table(location: str, storage: Mapping[str, str]) -> tuple[Version, pa.Schema]:
    """Return the table's current version and its columns, in the types that Spark gives Arrow."""
    from pyspark.errors import PySparkException

    table = _opened(location, storage)
    try:
        columns = in_spark_types(pa.schema(table.schema().to_arrow()))
    except PySparkException as error:
        raise SchemaError(
            f"a column of the table at {location} has a type that Spark does not have: {error}",
            hint="cast it in the table, or leave it out",
        ) from error
    return Version(str(table.metadata().id), table.version()), columns


def in_spark_types(schema: pa.Schema) -> pa.Schema:
    """Return the same columns in the types that Spark gives Arrow."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    plain = [pa.field(field.name, pa.string()) if _is_text(field.type) else field for field in schema]
    return to_arrow_schema(from_arrow_schema(pa.schema(plain)), timezone="UTC")


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def rows_at(
    location: str, storage: Mapping[str, str], columns: pa.Schema, version: Version, or_else: str = _NEW_CHECKPOINT
) -> pa.Table:
    """Return columns of a table's version; raise FeedChangedError, with `or_else` in its hint, if that is gone."""
    with _telling_what_is_gone(location, storage, version, or_else):
        table = _opened(location, storage, version=version.number)
        if str(table.metadata().id) != version.table:
            raise FeedChangedError(
                f"the table at {location} is not the one that this query reads: it was removed and created again",
                expected=f"version {version.number} of the table with the id {version.table}",
                hint=f"put that table back; or {or_else}",
            )
        absent = [name for name in columns.names if name not in {field.name for field in table.schema().fields}]
        if absent:
            raise TableError(
                f"version {version.number} of the table at {location} has no column {', '.join(absent)}",
                expected="the columns that the query was written with",
                hint="put the column back, or leave it out of columns=…",
            )
        return scan_table(table).select(columns.names).collect().to_arrow().cast(columns)


def _opened(location: str, storage: Mapping[str, str], version: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    folder = TableFolder(location, storage)
    check_log(folder)
    try:
        table = DeltaTable(folder.location, version, storage_options=dict(folder.storage) or None)
    except TableNotFoundError:
        raise TableError(
            f"there is no Delta table at {location}",
            expected="the folder or address of a Delta table",
            hint="correct the path, or make the table before the query starts",
        ) from None
    except (DeltaError, OSError) as error:
        if version is not None:
            raise
        said = folder.masked(error).strip().splitlines()[0]
        raise TableError(f"the table at {location} cannot be opened: {said}", expected="a Delta table") from error
    check_readable(table)
    return table


@contextmanager
def _telling_what_is_gone(
    location: str, storage: Mapping[str, str], version: Version, or_else: str
) -> Generator[None, None, None]:
    """Raise FeedChangedError with the remedy if a version, or one of its files, is gone."""
    import polars as pl
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, pl.exceptions.PolarsError) as error:
        said = TableFolder(location, storage).masked(error).strip().splitlines()[0]
        raise FeedChangedError(
            f"version {version.number} of the table at {location} cannot be read: {said}",
            expected="the version that this query reads: a batch that runs again reads the same rows",
            hint="if VACUUM removed its files, restore them, and keep versions longer than the query may be stopped; "
            f"or {or_else}",
        ) from error


TableHow = Literal["inner", "left", "semi", "anti"]
"""The treatment of rows without a partner, as in SQL."""

_OWN = "_upstream_"


@dataclasses.dataclass(frozen=True)
class TableJoinPlan:
    """A join of each row of a stream with the table's row that has its key."""

    location: str
    storage: tuple[tuple[str, str], ...] = dataclasses.field(repr=False)  # options of the table's store, never shown
    on: tuple[str, ...]  # of the stream
    table_on: tuple[str, ...]  # of the table
    how: TableHow
    columns: tuple[tuple[str, str], ...]  # added columns, as pairs of their names in results and in the table
    before: pa.Schema  # of the stream
    table: pa.Schema  # of the columns that are read

    @property
    def one(self) -> bool:
        """True if a key may be in only one row of the table."""
        return self.how in ("inner", "left")

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the results, the system column last."""
        kept = [field for field in self.before if field.name != SYSTEM]
        new = [self.table.field(source).with_name(name).with_nullable(True) for name, source in self.columns]
        return pa.schema([*kept, *new, self.before.field(SYSTEM)])

    @property
    def text(self) -> str:
        """The step, in a few words."""
        pairs = zip(self.on, self.table_on, strict=True)
        on = ", ".join(one if one == two else f"{one} = {two}" for one, two in pairs)
        return f"join with the table {self.location}, on {on}, how {self.how}"


def planned(
    before: pa.Schema,
    table: pa.Schema,
    location: str,
    on: Mapping[str, str],
    how: TableHow,
    columns: Sequence[str] | None,
    suffix: str,
    storage: Mapping[str, str],
) -> TableJoinPlan:
    """Return the plan of a join, checked against the columns of the stream and the table, in Spark's types.

    `on` maps the stream's names to the table's. `columns` are the table's, None for all but those of `on`. A column
    whose name the stream has gets the `suffix`.
    """
    word_argument("how", how, TableHow)
    text_argument("suffix", suffix or "")
    if names_argument("columns", columns) is not None:
        columns = [columns] if isinstance(columns, str) else columns
    for schema, names, side in ((before, on, "stream"), (table, on.values(), "table")):
        absent = [name for name in names if name not in schema.names]
        if absent:
            raise SchemaError(
                f"join_table on {', '.join(absent)}, which the {side} lacks",
                expected="columns among " + ", ".join(name for name in schema.names if name != SYSTEM),
                hint='name the columns of both: on={"stream_name": "table_name"}',
            )
    for one, two in on.items():
        kinds = before.field(one).type, table.field(two).type
        if kinds[0] != kinds[1] or pa.types.is_floating(kinds[0]) or pa.types.is_nested(kinds[0]):
            raise SchemaError(
                f"join_table by {one} of type {kinds[0]} and {two} of type {kinds[1]}",
                expected="columns of one type, and no fractions, arrays or structs",
                hint="cast the stream's column where rows are read: read(…, select='CAST(a AS BIGINT) AS a, …')",
            )
    if how in ("semi", "anti"):
        if columns is not None:
            raise OptionError(
                f"columns={list(columns)!r} with how={how!r}",
                expected="no columns: rows of the stream pass as they are",
                hint="leave columns out, or join with how='inner' or how='left'",
            )
        columns = ()
    elif columns is None:
        columns = [name for name in table.names if name not in on.values() and not name.startswith(_OWN)]
    absent = [name for name in columns if name not in table.names]
    if absent:
        raise SchemaError(
            f"columns={list(columns)!r}: the table at {location} has no {', '.join(absent)}",
            expected="columns among " + ", ".join(table.names),
            hint="correct columns",
        )
    named = [(name + suffix if name in before.names else name, name) for name in columns]
    taken = [*before.names, *(name for name, _ in named)]
    clash = sorted({name for name in taken if taken.count(name) > 1})
    if clash:
        raise SchemaError(
            f"two columns would be called {', '.join(clash)}",
            expected="a name for each",
            hint="give another suffix, or fewer columns",
        )
    read = pa.schema([table.field(name) for name in dict.fromkeys([*on.values(), *columns])])
    where = tuple(sorted(storage.items()))
    return TableJoinPlan(location, where, tuple(on), tuple(on.values()), how, tuple(named), before, read)


def indexed(table: pa.Table, plan: TableJoinPlan) -> SortedRows:
    """Return the rows with a whole key, sorted by it. Inner and left joins refuse a key that is in several rows."""
    names = plan.table_on
    table = table.filter(pa.array(~without_key(table, names)))
    if plan.one and table.num_rows:
        codes, first, size = grouped(columns_at(table, names))
        if size < table.num_rows:
            again = np.ones(table.num_rows, dtype=np.bool_)
            again[first] = False
            row = table.select(list(names)).slice(int(first[codes[np.flatnonzero(again)[0]]]), 1).to_pylist()[0]
            key = ", ".join(f"{name} {value!r}" for name, value in row.items())
            raise TableError(
                f"the table at {plan.location} has {table.num_rows - size} rows more than keys: {key} is in several",
                expected="one row for each key, so that a row of the stream has one result",
                hint="join on columns that name one row, clean the table up, or use how='semi' or how='anti'",
            )
    numbers = numbers_of(table, names)
    return sorted_rows(numbers, np.zeros(len(numbers), dtype=np.int64), table.combine_chunks())


def joined(batches: Iterator[pa.RecordBatch], table: SortedRows, plan: TableJoinPlan) -> Iterator[pa.RecordBatch]:
    """Yield a task's joined rows; punctuation and tombstones keep their places, with nulls for the table's columns."""
    for rows in some_at_once(batches):
        passing = passing_mask(rows).to_numpy()
        found = _found(rows, ~passing & ~without_key(rows, plan.on), table, plan)
        stays = np.ones(rows.num_rows, dtype=np.bool_)
        if plan.how != "left":
            stays = passing | ((found < 0) if plan.how == "anti" else (found >= 0))
        at = pa.array(found[stays], mask=found[stays] < 0)
        columns = {name: table.table.column(source).take(at) for name, source in plan.columns}
        kept = rows if stays.all() else rows.filter(pa.array(stays))
        columns |= {name: kept.column(name) for name in plan.before.names}
        result = pa.table({name: columns[name] for name in plan.schema.names}).cast(plan.schema)
        yield from result.combine_chunks().to_batches(max_chunksize=10_000)


def _found(rows: pa.Table, asks: npt.NDArray[np.bool_], table: SortedRows, plan: TableJoinPlan) -> Int64s:
    """Return the position in the table of each row's partner; -1 for none."""
    found = np.full(rows.num_rows, -1, dtype=np.int64)
    probes = rows.filter(pa.array(asks))
    place = np.flatnonzero(asks)
    none = np.zeros(len(place), dtype=np.int64)
    exact = is_exact([plan.before.field(name).type for name in plan.on])
    for at, there in matches(numbers_of(probes, plan.on), none, none, table):
        if exact:
            found[place[at]] = there
        else:
            same = equal_keys(probes, plan.on, at, table.table, plan.table_on, there).to_numpy(zero_copy_only=False)
            found[place[at[same]]] = there[same]
    return found


@lru_cache(maxsize=4)  # a worker runs many tasks of a batch, and batches share a version
def index_at(plan: TableJoinPlan, version: Version) -> SortedRows:
    """Return the rows of a plan's table at a version, sorted for lookup by key."""
    return indexed(rows_at(plan.location, dict(plan.storage), plan.table, version), plan)
