"""The table's side of a query: the sink's writer and commit as Spark drives them, and two writes per `foreachBatch`."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import types
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql.pandas.types import from_arrow_schema

from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.frames import split_punctuation
from upstream.core.rows.system_column import deleted_mask
from upstream.delta_format.deletion_vectors import DeletionVector
from upstream.sink import write_batch as batch
from upstream.sink.commit import batch_name
from upstream.sink.commit.batch_identity import offsets_digest
from upstream.sink.frames import ROWS_OPTION, FrameStep
from upstream.sink.maintenance.compact import compact_table
from upstream.sink.spark_writer import check_sink, stream_writer
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table.tombstones import FOLDER as TOMBSTONES
from upstream.sink.write_batch import batch_writer, write_batch

from .machine import MACHINE, Context

Batches = list[pa.RecordBatch]


class NoTable:
    """Nobody takes the rows but the checks."""

    path: Path | None = None
    left_behind: frozenset[str] = frozenset()

    def batch(self, *_: Any) -> None: ...

    start = prepare = forgive = batch


class Table:
    """A Delta table, written through frames or by tasks that have rows of any bucket."""

    def __init__(self, folder: Path, options: dict[str, str], columns: pa.Schema, *, framed: bool) -> None:
        self.path = folder / "table"
        self.left_behind: frozenset[str] = frozenset()
        self._given = {
            "path": str(self.path),
            "checkpointLocation": str(folder / "checkpoint"),
            "indexLocation": str(folder / "index"),
            "lease": "0 s",
            **options,
        }
        self._rows = from_arrow_schema(columns)
        self._framed = framed
        self._framing: FrameStep | None = None
        self._reader: DeltaTable | None = None
        self._schema = self._rows

    def start(self) -> None:
        """What `write_latest` does."""
        layout = check_sink(self._given, self._rows)
        if self._framed:
            self._framing, self._schema = FrameStep.of(layout, self._rows, parted=True)

    def _writer(self) -> Any:
        own = {ROWS_OPTION: self._rows.json()} if self._framed else {}
        return stream_writer({**self._given, **own}, self._schema, overwrite=False)

    def prepare(self) -> Any:
        return pickle.dumps(self._writer())

    def batch(self, prepared: Any, tasks: list[Batches], number: int, chance: random.Random, twins: float) -> None:
        """Write and commit; of a task's twins one's result counts."""
        messages: list[Any] = []
        for task in _parted(self._framing, tasks, chance):
            made = [pickle.loads(prepared).write(iter(task))]
            if chance.random() < twins:  # the files of the one that does not count stay
                made.append(pickle.loads(prepared).write(iter(task)))
                self.forgive()
            messages.append(pickle.loads(pickle.dumps(chance.choice(made))))
        chance.shuffle(messages)
        MACHINE.reached("TASKS_WROTE")
        self._writer().commit(messages, number)

    def forgive(self) -> None:
        """A process died, or two did one's work: what lies in the folder now may stay without a name."""
        self.left_behind |= files_in(self.path)

    def rewrite(self, how: str) -> None:
        """Somebody else puts files together."""
        if not (self.path / "_delta_log").exists():
            return
        table = DeltaTable(str(self.path))
        if how == "ours":
            compact_table(parse_sink_options(self._given), table)
        elif "deletionVectors" not in str(table.protocol().reader_features):
            table.optimize.compact() if how == "optimize" else table.optimize.z_order(["t"])

    def rows(self) -> list[dict[str, Any]]:
        """What any reader sees."""
        if not (self.path / "_delta_log").exists():
            return []
        if self._reader is None:
            self._reader = DeltaTable(str(self.path))
        else:
            self._reader.update_incremental()
        return pa.RecordBatchReader.from_stream(self._reader.scan()).read_all().to_pylist()


class Frame:
    """As much of a batch DataFrame as `write_batch` looks at."""

    isStreaming = False  # noqa: N815 Spark's name

    def __init__(self, tables: list[pa.Table], sink: TwoWrites) -> None:
        self._tables = tables
        self._sink = sink
        self.schema = from_arrow_schema(tables[0].schema)
        self.columns = tables[0].schema.names
        self._given: dict[str, str] = {}
        self.write = self
        self.sparkSession = types.SimpleNamespace(_sc=types.SimpleNamespace(getLocalProperty=Context.getLocalProperty))

    def bucketed(self, key: tuple[str, ...], buckets: int) -> Frame:
        """Rows as `to_buckets` brings them to two tasks."""
        (table,) = self._tables
        number = bucket_of([table.column(name) for name in key], buckets) % 2
        return Frame([table.filter(pa.array(number == each)) for each in (0, 1)], self._sink)

    def format(self, name: str) -> Frame:
        assert name == "upstream"
        return self

    def mode(self, name: str) -> Frame:
        assert name == "append"
        return self

    def options(self, **given: str) -> Frame:
        self._given |= given
        return self

    def save(self) -> None:
        """What Spark does with the writer of a batch."""
        writer = pickle.dumps(batch_writer(self._given, self.schema, overwrite=False))
        messages: list[Any] = []
        for table in self._tables:
            done = [pickle.loads(writer).write(iter(table.to_batches())) for _ in range(1 + self._sink.twice())]
            messages.append(pickle.loads(pickle.dumps(done[-1])))
            if len(done) > 1:
                self._sink.forgive()
        MACHINE.reached("TASKS_WROTE")
        pickle.loads(writer).commit(messages)


class TwoWrites(Table):
    """A `foreachBatch` that writes the rows of a batch to one table by two calls: what is there, then what is gone."""

    def start(self) -> None:
        """A new run of the query: what Spark would say of it, it says here."""
        offsets = Path(self._given["checkpointLocation"]) / "offsets"
        run = types.SimpleNamespace(runId=lambda: id(run))
        batch.register_data_source = lambda _: None
        batch.to_buckets = lambda df, key, buckets, *_: df.bucketed(key, buckets)
        batch_name._active_query = lambda *_: run
        batch_name._offsets_digest = lambda *given: offsets_digest((offsets / str(given[-1])).read_bytes())

    def prepare(self) -> Any:
        return None

    def twice(self) -> bool:
        return self._chance.random() < self._twins

    def batch(self, prepared: Any, tasks: list[Batches], number: int, chance: random.Random, twins: float) -> None:
        self._chance, self._twins = chance, twins
        tables = [pa.Table.from_batches(task) for task in tasks if task]
        if not tables:
            return
        rows, _ = split_punctuation(pa.concat_tables(tables))
        gone = deleted_mask(rows)
        options = {name: self._given[name] for name in ("engine", "indexLocation")}
        for some in (rows.filter(pc.invert(gone)), rows.filter(gone)):
            frame: Any = Frame([some.combine_chunks()], self)
            write_batch(frame, str(self.path), key="k", event_time="t", buckets=int(self._given["buckets"]), **options)


def _parted(framing: FrameStep | None, tasks: list[Batches], chance: random.Random) -> list[Batches]:
    """What the tasks of the sink get: Spark's shuffle by bucket, whose rows come in any order."""
    if framing is None:
        return tasks or [[]]
    parts: dict[int, Batches] = defaultdict(list)
    for task in tasks:
        for frames in framing(iter(task)):
            for at, bucket in enumerate(frames.column(0).to_pylist()):
                parts[bucket % 2].append(frames.slice(at, 1))
    for part in parts.values():
        chance.shuffle(part)
    return [parts[number] for number in sorted(parts)] or [[]]


def files_in(path: Path | None) -> frozenset[str]:
    """Data files, and lists and vectors of deleted rows, that lie in a table's folder."""
    if path is None:
        return frozenset()
    return frozenset(
        str(found.relative_to(path))
        for found in path.rglob("*")
        if found.is_file() and "_delta_log" not in found.parts and not found.name.endswith(".crc")
    )


class Names:
    """What the entries of a table's log have named, read as far as they are new."""

    def __init__(self) -> None:
        self._version = -1
        self.ever: set[str] = set()

    def read(self, path: Path) -> set[str]:
        """All names so far."""
        while (entry := path / "_delta_log" / f"{self._version + 1:020d}.json").exists():
            self._version += 1
            actions = [json.loads(line) for line in entry.read_text().splitlines()]
            self.ever |= set(_strings(actions))
            for each in actions:
                vector = (each.get("add") or each.get("remove") or {}).get("deletionVector")
                if vector is not None:
                    self.ever.add(str(DeletionVector.from_json(vector).path))
            for number in (each["txn"]["version"] for each in actions if "txn" in each):
                lists = path / TOMBSTONES / f"{number}.json"
                if lists.exists():
                    self.ever |= {str(lists.relative_to(path)), *json.loads(lists.read_text()).values()}
        return self.ever


def _strings(value: Any) -> Any:
    """Every text in a JSON value, and in texts that are JSON."""
    if isinstance(value, dict | list):
        for each in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _strings(each)
    elif isinstance(value, str):
        yield value
        if value[:1] in "[{":
            with contextlib.suppress(ValueError):
                yield from _strings(json.loads(value))
