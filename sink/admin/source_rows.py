"""The newest row of each key of a table's input, by bucket, in bounded memory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...conf.errors import OptionError, SchemaError, TableError
from ...conf.locations import absolute_location
from ...core.rows.columns import columns_at, null_rows
from ...core.rows.system_column import SYSTEM, SYSTEM_TYPE
from ...delta_format.latest_table import SEQ
from ..merge.spill import Gathering
from ..spec.history import Keep

if TYPE_CHECKING:
    from types import TracebackType

    from ..merge.pending import Pending
    from ..table.contents import Contents

__all__ = ["SourceRows"]


class SourceRows:
    """The newest row of each key of a source, with the deciding columns alone.

    The source is Parquet, a file or a folder, or a Delta table; None has no rows.
    """

    def __init__(self, contents: Contents, source: str | None) -> None:
        layout = contents.layout
        if source is not None and not layout.key:
            raise OptionError(
                f"the table at {contents.target.location} has no key",
                expected="without a source: rows are looked for by their keys",
                hint="leave the source out",
            )
        self._place = contents.target.location
        self._source = source
        self._storage = dict(contents.target.storage)
        fields = tuple(field for field in layout.fields if field[0] in layout.deciding)
        self._layout = dataclasses.replace(layout, fields=fields, keep=Keep())
        self._gathering = Gathering(self._layout, self._layout.arrow_schema())

    def __enter__(self) -> SourceRows:  # noqa: PYI034 it is not to be inherited from
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gathering.close()

    def by_bucket(self) -> Iterator[tuple[int, Pending]]:
        """Yield the newest rows by bucket, in the order of the buckets."""
        if self._source is None:
            return
        for batch in self._batches(absolute_location(self._source)):
            self._gathering.add(batch)
        yield from self._gathering.by_bucket()

    def _batches(self, place: str) -> Iterator[pa.RecordBatch]:
        wanted = [name for name in self._layout.deciding if name != SEQ]
        try:
            reader = self._open(place, wanted)
        except (OSError, pa.ArrowException) as error:
            raise TableError(
                f"the source {place} cannot be read: {str(error).partition(chr(10))[0]}",
                expected="a folder or a file of Parquet, or a Delta table",
                hint="check the path",
            ) from error
        schema = self._layout.arrow_schema()
        for batch in reader:
            names = [*wanted, *([SYSTEM] if SYSTEM in batch.schema.names else [])]
            kinds = [SYSTEM_TYPE if name == SYSTEM else schema.field(name).type for name in names]
            columns = [batch.column(name).cast(kind) for name, kind in zip(names, kinds, strict=True)]
            # A row without a key or a time is in no table, and punctuation is no row.
            rows = pa.RecordBatch.from_arrays(columns, names=names).drop_null()
            nulls = [null_rows(column) for column in columns_at(pa.Table.from_batches([rows]), self._layout.key)]
            yield rows.filter(pa.array(~np.logical_or.reduce(nulls)))

    def _open(self, place: str, wanted: list[str]) -> Any:
        """Open the source as batches with at least these columns, and the system column if it has one."""
        from deltalake import DeltaTable, QueryBuilder

        storage = self._storage or None
        if not os.path.isfile(place) and DeltaTable.is_deltatable(place, storage):
            table = DeltaTable(place, storage_options=storage)
            names = [field.name for field in table.schema().fields]
            columns = ", ".join('"' + name.replace('"', '""') + '"' for name in self._chosen(names, wanted, place))
            # Its query engine, unlike its Arrow dataset, passes over rows that deletion vectors delete.
            found: Any = QueryBuilder().register("source", table).execute(f"SELECT {columns} FROM source")  # noqa: S608 names, quoted
            return pa.RecordBatchReader.from_stream(found)
        import pyarrow.dataset as pds

        if "://" not in place and not os.path.exists(place):
            raise FileNotFoundError("there is nothing")
        form = pds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
        dataset = pds.dataset(place, format=form)
        return dataset.to_batches(columns=self._chosen(dataset.schema.names, wanted, place))

    def _chosen(self, names: list[str], wanted: list[str], place: str) -> list[str]:
        absent = [name for name in wanted if name not in names]
        if absent:
            raise SchemaError(
                f"the source {place} has no column {', '.join(absent)}",
                expected=f"the key and the time of the table at {self._place}: {', '.join(wanted)}",
                hint="name input that has them under these names",
            )
        return [*wanted, *([SYSTEM] if SYSTEM in names else [])]
