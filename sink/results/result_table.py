"""The table of a continuous query's result: what it is, and what writes it in a process."""

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
    """The table of a query's result.

    Attributes
    ----------
    query_id : int
        The query's *incarnation*: a number that grows whenever the query begins anew. The first batch of another one
        replaces all rows of the table, and its columns where they differ.
    name : str
        The query's name.
    location : str
        The table's folder or address.
    schema : pyarrow.Schema
        Its columns, without the sink's own.
    key : tuple of str
        The update key; may be empty where all rows are kept.
    keep : {"latest", "all"}
        Whether a later row of a key replaces the former, and tombstones take it away; or rows are only added.
    buckets : int
        Into how many parts the key divides the table.
    options : tuple of (str, str)
        More options of the sink, such as ``("storage.region", "eu-west-1")`` or ``("durability", "power")``.
    overwrite : bool
        Whether the first batch may replace the rows of a table that a query of another checkpoint has made.
    """

    query_id: int
    name: str
    location: str
    schema: pa.Schema = dataclasses.field(hash=False)  # to hash it takes longer than all else together
    key: tuple[str, ...] = ()
    keep: Literal["latest", "all"] = "latest"
    buckets: int = 1
    options: tuple[tuple[str, str], ...] = dataclasses.field(default=(), repr=False)  # with secrets of a store
    overwrite: bool = False


@dataclasses.dataclass(frozen=True)
class TableWriter:
    """What writes a table.

    Attributes
    ----------
    target, layout : SinkTarget, Layout
        Where it is, and how it is laid out.
    files : DataFiles
        Its data files.
    merger : BucketMerger
        Merges rows with those that it has.
    outputs : Outputs
        Of its late and conflicting rows: none.
    """

    target: SinkTarget
    layout: Layout
    files: DataFiles
    merger: BucketMerger
    outputs: Outputs


@functools.lru_cache(_TABLES)
def target_of(table: ResultTable) -> SinkTarget:
    """Return where a table is, with its options.

    Raises
    ------
    OptionError
        One is unknown or mistyped.
    """
    given = {"retentionVersions": str(_VERSIONS), **dict(table.options), "path": table.location, "keep": table.keep}
    given |= {"key": key_option(table.key)} if table.key else {}
    return parse_sink_options({**given, "buckets": str(table.buckets)}, started=False)


def target_at(location: str, options: Sequence[tuple[str, str]]) -> SinkTarget:
    """Return where a table is of which nothing else is known."""
    return parse_sink_options({**dict(options), "path": location, "keep": "all"}, started=False)


@functools.lru_cache(_TABLES)
def layout_of(table: ResultTable) -> Layout:
    """Return a table's layout, as for a new table.

    Raises
    ------
    SchemaError
        A column has a name or a type that a table cannot hold, or the key has.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    return Layout.of(target_of(table).options, from_arrow_schema(table.schema))


def table_writer(table: ResultTable, ids: Ids | None) -> TableWriter:
    """Return what writes a table whose columns have these numbers; None if they have none."""
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
