"""Spark's two readers: thin adapters around planner, shaper and coalescer; checks before there is a session."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..conf.errors import OptionError
from ..conf.locations import absolute_location
from ..conf.units import now_us
from ..core.feedback.checkpoint_layout import dead_letters_folder, has_begun
from ..core.feedback.lanes import LANE, LaneReader
from ..core.feedback.offsets import OffsetBook
from ..core.pushdown.source_steps import parse_steps
from ..core.rows.key import Key
from ..storage.folder import TableFolder
from .connectors.contract import Limit
from .options import reads_changes
from .planner import BatchPlanner, Offset, Task
from .recorded_source import SourceRecord
from .registry import make_connector, parse_source_options, with_position
from .schema import (
    feed_key,
    feed_schema,
    keep_schema,
    leaving_schema,
    recorded_schema,
    schema_name,
    shape_of,
    with_columns,
    with_feed,
)
from .task import Reading

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def source_schema(given: Mapping[str, str], *, anew: bool = False) -> StructType | str:
    """Return the source's schema: from the user, else from the checkpoint's record, else inferred from the data.

    With `anew`, the record of a query that has not begun does not count: its options and its data may be others now.
    """
    from ..core.rows.system_column import with_system_ddl

    steps, given = parse_steps(given)
    if steps is not None:
        return _struct(steps.schema)
    common, own = parse_source_options(given)
    if common.schema is not None and common.select is None:
        return with_system_ddl(with_position(common.schema) if reads_changes(given) else common.schema)
    name = schema_name(given)
    again = anew and common.checkpoint is not None and not has_begun(common.checkpoint)
    recorded = None if again else recorded_schema(common.checkpoint, name)
    if recorded is not None:
        return recorded
    connector = make_connector(common, own)
    inferred, raw = connector.schema(), None
    common = dataclasses.replace(common, key=common.key or Key(connector.key()))
    schema = leaving_schema(inferred, common)
    if common.select is not None:
        from .selection import SelectingConnector

        assert isinstance(connector, SelectingConnector)
        raw = connector.raw
    if raw is not None or connector.key():
        schema = with_feed(schema, raw, connector.key(), connector.event_time())
    keep_schema(common.checkpoint, name, schema)
    return schema


def _struct(json_text: str) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(json_text))


class _TaskPartition(InputPartition):
    def __init__(self, task: Task) -> None:
        super().__init__(task.number)
        self.task = task


def _reading(given: Mapping[str, str], schema: StructType) -> Reading:
    options, own = parse_source_options(given)
    if not options.key:
        options = dataclasses.replace(options, key=feed_key(schema))
        options.check()
    shape = shape_of(schema, options)
    options = with_columns(options, shape)
    connector = make_connector(options, own, feed_schema(schema))
    connector.fix_schema(shape.rows)
    place = options.dead_letters
    if place is None and options.checkpoint_location is not None:
        place = dead_letters_folder(options.checkpoint_location)
    # Tasks may run in another folder.
    letters = None if place is None else TableFolder(absolute_location(place), options.storage)
    return Reading(options, shape, connector, letters)


_UNLIMITED = (1 << 63) - 1


class UpstreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream.format("upstream")``. `schema` includes the system column.

    Guarantee: a batch is a pure function of its journaled end offset. So the source is replayable, and with a
    transactional sink the whole query delivers exactly once.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._steps, given = parse_steps(given)
        read = schema if self._steps is None else _struct(self._steps.rows)
        self._reading = _reading(given, read)
        self._record = SourceRecord(given, self._reading, feed_schema(read))
        options = self._reading.options
        if options.idle == "ets" and options.checkpoint_location is None:
            raise OptionError(
                "idle=ets without `checkpointLocation`: operators report below the query's checkpoint what they hold",
                hint="write the stream with write(…, checkpoint=…), or give the source the query's checkpointLocation",
            )
        stream = "" if self._steps is None else self._steps.stream
        self._lanes = LaneReader(options.checkpoint, stream) if stream and options.checkpoint is not None else None
        self._planner: BatchPlanner | None = None
        self._book = OffsetBook(options.checkpoint)
        self._last: Offset = BatchPlanner.initial()

    def initialOffset(self) -> dict[str, Any]:
        return BatchPlanner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the first limit set: Spark's interface holds one, `latestOffset` adds the others."""
        limit = self._limit()
        if limit.rows is not None:
            return ReadMaxRows(limit.rows)
        if limit.bytes is not None:
            return ReadMaxBytes(limit.bytes)
        if limit.files is not None:
            return ReadMaxFiles(limit.files)
        # Spark asks for all there is with `once=True`, and then no row may stay owed.
        return ReadAllAvailable() if self._lanes is None else ReadMaxRows(_UNLIMITED)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        own = Limit() if isinstance(limit, ReadAllAvailable) else self._limit()
        if isinstance(limit, ReadMaxRows) and limit.max_rows < _UNLIMITED:
            own = Limit(min(limit.max_rows, own.rows or limit.max_rows), own.bytes, own.files)
        before = self._book.whole(start)
        self._last = self._plan().plan(before, own, all_at_once=isinstance(limit, ReadAllAvailable))
        return start if self._last is before else self._book.kept(start, self._last)

    def prepareForTriggerAvailableNow(self) -> None:
        self._plan().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        backlog = self._plan().backlog(self._last)
        return None if backlog is None else {"backlog": backlog}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        # Of the start only its number counts.
        start = {**start, "version": BatchPlanner.initial()["version"]}
        return [_TaskPartition(task) for task in self._plan().tasks(start, self._book.whole(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task as Arrow batches, processed by the steps that were moved to the source."""
        task = cast("_TaskPartition", partition).task
        rows = self._reading.read(task)
        LANE.set(task.lane)
        try:
            yield from rows if self._steps is None else self._steps.step()(rows)
        finally:
            LANE.set("both")

    def commit(self, end: dict[str, Any]) -> None:
        self._plan().commit(end)
        self._book.forget(end)

    def _plan(self) -> BatchPlanner:
        # Made on first use: the copies of this reader that go to tasks need none.
        if self._planner is None:
            reading = self._reading
            if reading.options.checkpoint is not None:
                self._record.keep(reading.options.checkpoint)
            self._planner = BatchPlanner(
                reading.connector, reading.options, reading.shape, clock=now_us, lanes=self._lanes
            )
        return self._planner

    def _limit(self) -> Limit:
        return self._reading.connector.limit(self._reading.options.limit())

    def __getstate__(self) -> dict[str, Any]:
        return {"_reading": self._reading, "_steps": self._steps, "_planner": None, "_lanes": None, "_last": {}}


class UpstreamBatchReader(DataSourceReader):
    """``spark.read.format("upstream")``: the rows that a stream would have delivered up to now, without punctuation."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._reading = _reading({**given, "punctuation": "false"}, schema)

    def partitions(self) -> list[InputPartition]:
        reading = self._reading
        planner = BatchPlanner(reading.connector, reading.options, reading.shape, clock=now_us)
        planner.freeze()
        end = planner.plan(BatchPlanner.initial(), Limit())
        tasks: list[InputPartition] = [
            _TaskPartition(dataclasses.replace(task, batch=self._name(task)))
            for task in planner.tasks(BatchPlanner.initial(), end)
        ]
        return tasks or [_TaskPartition(Task("empty", 0, [], {}, 0))]

    def _name(self, task: Task) -> str:
        """Return a name by what the task reads, so that reading the same twice quarantines malformed rows once."""
        content = self._reading.options, [(part.feed, dict(part.place)) for _, part in task.ranges]
        return f"{hashlib.sha256(repr(content).encode()).hexdigest()[:24]}-1"

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.read(cast("_TaskPartition", partition).task)


def check_source(given: Mapping[str, str]) -> StructType | None:
    """Check the feed as a query would, with its errors, and record the inferred schema in the checkpoint.

    Return the schema; None if only Spark has its types.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    from ..expressions.bind import arrow_schema

    own: Any = parse_source_options(given)[1]
    if hasattr(own, "check_answers"):  # a connector over a network
        own.check_answers()
    schema = source_schema(given, anew=True)
    if isinstance(schema, str):
        try:
            schema = from_arrow_schema(arrow_schema(schema))
        except OptionError:
            return None  # a type that only Spark has, or a wrong one
    UpstreamStreamReader(given, schema)
    return schema
