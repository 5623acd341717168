"""A Delta table, opened by path or as a lazy Polars frame, whatever its protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...conf.errors import OptionError, TableError
from ...conf.locations import absolute_location
from ...delta_format.scan import scan_table
from ...storage.folder import TableFolder

if TYPE_CHECKING:
    import polars as pl
    from deltalake import DeltaTable


_OWN = "_upstream_"


def scan_columns(table: DeltaTable, columns: Sequence[str] | None) -> pl.LazyFrame:
    """Return some columns of the rows; all but UpStream's own if none are named."""
    found = scan_table(table)
    names = found.collect_schema().names()
    wanted = [name for name in names if not name.startswith(_OWN)] if columns is None else list(columns)
    absent = [name for name in wanted if name not in names]
    if absent:
        raise OptionError(f"the table has no column {', '.join(absent)}", expected="columns among " + ", ".join(names))
    return found.select(wanted)


def open_table(path: str, storage: Mapping[str, str] | None = None) -> DeltaTable:
    """Open the table in a folder; raise a TableError if there is none."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    folder = TableFolder(absolute_location(path), storage or {})
    try:
        return DeltaTable(folder.location, storage_options=dict(folder.storage) or None)
    except TableNotFoundError:
        raise TableError(
            f"there is no table in {path}", expected="the path of a table", hint="see that it is spelled right"
        ) from None
    except (DeltaError, OSError) as error:
        said = folder.masked(error).strip().splitlines()[0]
        raise TableError(f"the table in {path} cannot be opened: {said}", expected="a Delta table") from error
