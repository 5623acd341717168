"""The table of a continuous query's result: its description, and its writer in a process."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

import pyarrow as pa

from ...delta_format.column_mapping import Ids
from ..merge.bucket import BucketMerger
from ..merge.engine import Engine
from ..merge.history_merge import merger_of
from ..merge.outputs import Outputs
from ..spec.layout import Layout
from ..spec.options import SinkTarget, parse_sink_options
from ..spec.placement import key_option
from ..table.files import DataFiles
from ..table.tombstones import tombstone_files
from .kept_files import KeptFiles

__all__ = ["ResultTable", "TableWriter", "layout_of", "table_writer", "target_at", "target_of"]

# Tables that a process keeps at hand.
_TABLES = 4096
# A table has a version for each batch, and there may be a thousand tables.
_VERSIONS = 1_000


@dataclasses.dataclass(frozen=True)
class ResultTable:
    """The table of a query's result."""

    query_id: int  # the query's *incarnation*: grows whenever it restarts; a new one replaces rows and columns
    name: str  # the query's
    location: str
    # without the sink's own columns
    schema: pa.Schema = dataclasses.field(hash=False)  # to hash it takes longer than all else together
    key: tuple[str, ...] = ()  # may be empty if all rows are kept
    # replace a key's row by a later one, and delete by tombstones; or only add rows
    keep: Literal["latest", "all"] = "latest"
    buckets: int = 1
    # more options of the sink, such as ``("durability", "power")``
    options: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)  # with secrets of a store
    overwrite: bool = False  # let the first batch replace the rows of a table of another checkpoint's query


@dataclasses.dataclass(frozen=True)
class TableWriter:
    """A table's location, layout, files and merger in one process; there are no late or conflicting rows."""

    target: SinkTarget
    layout: Layout
    files: DataFiles
    merger: BucketMerger
    outputs: Outputs


@functools.lru_cache(_TABLES)
def target_of(table: ResultTable) -> SinkTarget:
    """Return a table's target, with its options."""
    given = {"retentionVersions": str(_VERSIONS), **dict(table.options), "path": table.location, "keep": table.keep}
    given |= {"key": key_option(table.key)} if table.key else {}
    return parse_sink_options({**given, "buckets": str(table.buckets)}, started=False)


def target_at(location: str, options: Sequence[tuple[str, str]]) -> SinkTarget:
    """Return the target of a table of which nothing but its location is known."""
    return parse_sink_options({**dict(options), "path": location, "keep": "all"}, started=False)


@functools.lru_cache(_TABLES)
def layout_of(table: ResultTable) -> Layout:
    """Return a table's layout, as for a new table; raise a SchemaError if no table can hold its columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return Layout.of(target_of(table).options, from_arrow_schema(table.schema))


def table_writer(table: ResultTable, ids: Ids | None) -> TableWriter:
    """Return the writer of a table with these column mapping ids; None without column mapping."""
    return _writer(table, None if ids is None else tuple(sorted(ids.items())))


@functools.lru_cache(_TABLES)
def _writer(table: ResultTable, ids: tuple[tuple[tuple[str, ...], int], ...] | None) -> TableWriter:
    target = target_of(table)
    layout = dataclasses.replace(layout_of(table), ids=None if ids is None else dict(ids))
    files = KeptFiles(target, layout.file_schema())
    merger = merger_of(
        layout, files, tombstone_files(target, layout, files.schema), None, Engine(target, layout, files)
    )
    return TableWriter(target, layout, files, merger, Outputs(target, layout, layout.arrow_schema()))
