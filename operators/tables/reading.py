"""A Delta table's latest version, its columns, and its rows at a version."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ...conf.errors import FeedChangedError, SchemaError, TableError
from ...delta_format.scan import check_readable, scan_table
from ...storage.folder import TableFolder

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
    """Return the given columns of a table at a version, or raise FeedChangedError if that version is gone.

    `or_else` is the alternative that the error's hint offers.
    """
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
            hint="if VACUUM removed its files, restore them, and keep versions longer than the query may stand still; "
            f"or {or_else}",
        ) from error
