"""A table written by the sink's own classes, without Spark: what tasks and the commit do, batch by batch."""

import dataclasses
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.delta_format.latest_table import BUCKET
from upstream.delta_format.log import LogReplay
from upstream.sink.commit.sink_table import SinkCommit
from upstream.sink.figures.summary import CommitSummary
from upstream.sink.merge.bucket import merger_of
from upstream.sink.merge.engines import Engine
from upstream.sink.merge.outputs import Outputs
from upstream.sink.merge.task import TableWriter, TaskResult
from upstream.sink.spark_writer import LatestStreamWriter, stream_writer
from upstream.sink.spec.layout import Layout
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table.files import DataFiles
from upstream.sink.table.log_entry import put_entry, removed_action
from upstream.sink.table.tombstones import tombstone_files
from upstream.storage.folder import TableFolder

from .tables import read_table

COLUMNS = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("v", pa.string())])
NOW_US = 1_700_000_000_000_000


@dataclasses.dataclass
class Sink:
    """Writes batches into one table; the clock stands still unless a test moves it."""

    folder: Path
    columns: pa.Schema = COLUMNS
    options: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"key": "k", "eventTime": "t", "buckets": "4"}
    )
    query_id: str = "query-1"
    system: bool = True
    # Several queries write one table in turn here.
    lease: str = "0 s"
    now_us: int = NOW_US

    def __post_init__(self) -> None:
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": self.query_id}))

    @property
    def path(self) -> Path:
        return self.folder / "table"

    @property
    def checkpoint(self) -> Path:
        return self.folder / self.query_id

    @property
    def given(self) -> dict[str, str]:
        return {"path": str(self.path), "checkpointLocation": str(self.checkpoint), "lease": self.lease, **self.options}

    @property
    def schema(self) -> StructType:
        return from_arrow_schema(self.columns.append(pa.field(SYSTEM, SYSTEM_TYPE)) if self.system else self.columns)

    def writer(self) -> LatestStreamWriter:
        return stream_writer(self.given, self.schema, overwrite=False)

    def rows(
        self, rows: Sequence[tuple[Any, ...]], *, seq: int | Sequence[int] = 0, feed: str = "feed", **more: Any
    ) -> pa.RecordBatch:
        """Rows as Spark hands them to a task; `seq` is the first one's, or each one's."""
        numbers = np.arange(seq, seq + len(rows)) if isinstance(seq, int) else np.array(seq, dtype=np.int64)
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.columns)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.columns, strict=True)]
        names = list(self.columns.names)
        if self.system:
            arrival = np.asarray(more.pop("arrival_us", np.full(len(rows), NOW_US - 2_000_000)), dtype=np.int64)
            arrays.append(system_array(source=feed, seq=numbers, arrival_us=arrival, **more))
            names.append(SYSTEM)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def punctuation(self, bound: Any, feed: str = "feed", key: Any = None) -> pa.RecordBatch:
        layout = self._layout()
        names = [name for name, _ in layout.fields]
        row = [bound if name == layout.progress_time else key if name in layout.key else None for name in names]
        return self.rows([tuple(row)], feed=feed, punctuation=True)

    def tasks(self, *tasks: Sequence[pa.RecordBatch]) -> list[TaskResult]:
        """What the tasks of a batch hand to its commit."""
        writer = self.writer()
        results = [writer.write(iter(task)) for task in tasks]
        return [result for result in results if isinstance(result, TaskResult)]

    def commit(self, results: Sequence[TaskResult], batch_id: int) -> CommitSummary | None:
        target = parse_sink_options(self.given)
        layout = self._layout()
        files = DataFiles(target, layout.file_schema())
        engine = Engine(target, layout, files)
        merger = merger_of(layout, files, tombstone_files(target, layout, files.schema), None, engine)
        writer = TableWriter(target, layout, files, merger, Outputs(target, layout, layout.arrow_schema()))
        return SinkCommit(writer, lambda: self.now_us).commit(results, batch_id)

    def batch(self, batch_id: int, *tasks: Sequence[pa.RecordBatch]) -> CommitSummary | None:
        return self.commit(self.tasks(*tasks), batch_id)

    def write(self, batch_id: int, *tasks: Sequence[pa.RecordBatch]) -> None:
        """A batch as Spark has it written, to its last step."""
        writer = self.writer()
        writer.commit([writer.write(iter(task)) for task in tasks], batch_id)

    def table(self) -> pa.Table:
        return read_table(self.path)

    def log(self) -> LogReplay:
        """The table's log, followed to its last version."""
        log = LogReplay(TableFolder(str(self.path)))
        log.follow(self.version())
        return log

    def latest(self) -> dict[Any, tuple[Any, ...]]:
        """The table's rows by key (its first column), without the sink's own columns."""
        names = [name for name, _ in self._layout().fields]
        return {row[0]: row[1:] for row in zip(*(self.table().column(name).to_pylist() for name in names), strict=True)}

    def files(self) -> set[str]:
        """Data files that lie in the table's folder."""
        return {
            str(found.relative_to(self.path))
            for found in self.path.rglob("*.parquet")
            if "_delta_log" not in found.parts
        }

    def live_files(self, version: int | None = None) -> set[str]:
        """Data files that a version of the table names."""
        return set(pa.table(DeltaTable(str(self.path), version).get_add_actions()).column("path").to_pylist())

    def written_by_others(self, rows: pa.Table | None = None, **form: Any) -> None:
        """Somebody else puts the table's files together into one for each bucket, in a form of Parquet that is not
        ours; or some rows for those that there are.
        """
        log = self.log()
        actions = [removed_action(add, 0, changed=False) for add in log.files.values()]
        for bucket in sorted({add["partitionValues"][BUCKET] for add in log.files.values()}):
            paths = [path for path, add in log.files.items() if add["partitionValues"][BUCKET] == bucket]
            held = rows or pa.concat_tables([pq.ParquetFile(self.path / path).read() for path in paths])
            path = f"{BUCKET}={bucket}/part-{uuid.uuid4()}.parquet"
            pq.write_table(held, self.path / path, **form)
            size = (self.path / path).stat().st_size
            add = {"path": path, "partitionValues": {BUCKET: bucket}, "size": size, "modificationTime": 0}
            actions.append({"add": {**add, "dataChange": False, "stats": json.dumps({"numRecords": held.num_rows})}})
        assert put_entry(TableFolder(str(self.path)), self.version() + 1, {"operation": "OPTIMIZE"}, actions)

    def version(self) -> int:
        return DeltaTable(str(self.path)).version()

    def _layout(self) -> Layout:
        return Layout.of(parse_sink_options(self.given).options, self.schema)
