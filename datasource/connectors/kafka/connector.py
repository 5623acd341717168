"""The `kafka` connector: cluster, positions, consuming and decoding together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from ....conf.errors import OptionError, SchemaError
from ...options import SourceOptions
from ...selection import referenced_columns
from ..contract import Advance, Chunk, Connector, Limit, MalformedRows, Position, Range
from .client import Cluster, feed_name
from .options import KafkaOptions
from .positions import Positions
from .records import AvroValues, ProtobufValues
from .rows import METADATA, MessageRows, ValueFormat, check_key_type, csv_values, json_values, metadata_name
from .task import messages

# Messages of each partition by which columns are inferred.
_SAMPLE = 1000


class KafkaConnector(Connector):
    """Topics whose partitions are feeds (``topic/3``).

    Guarantee: each message is in exactly one range of offsets. A range reads the same rows each time, except for those
    that the broker has removed meanwhile (retention, compaction). A message that is gone before it was read raises
    :class:`~upstream.conf.errors.FeedChangedError`; with `failOnDataLoss=false` it is logged and counted.
    """

    name: ClassVar[str] = "kafka"
    smallest_task: int = 50_000
    tasks_report: bool = True

    def __init__(self, options: KafkaOptions, common: SourceOptions) -> None:
        options.check()
        if common.max_bytes_per_trigger is not None:
            raise OptionError(
                "maxBytesPerTrigger for connector=kafka, whose broker counts messages, not bytes",
                hint="set maxOffsetsPerTrigger or maxRowsPerTrigger",
            )
        self._options = options
        self._common = common
        self._values = _values_of(options)
        self._schema: pa.Schema | None = None
        self._positions: Positions | None = None

    def schema(self) -> pa.Schema:
        """Return the given or inferred schema, with the message's columns that key, time, `select` or headers need."""
        if self._schema is None:
            self._schema = self._inferred()
        return self._schema

    def fix_schema(self, schema: pa.Schema) -> None:
        own = {field.name: metadata_name(field.name, self._options) for field in schema}
        for field in schema:
            if own[field.name] == "key":
                check_key_type(field.name, field.type)
        if self._values is not None:
            self._values.check(pa.schema([field for field in schema if own[field.name] is None]))
        else:
            unknown = [name for name, known in own.items() if known is None and name != "value"]
            if unknown:
                raise SchemaError(
                    f"valueFormat=raw has no column {', '.join(map(repr, unknown))}",
                    expected="some of value, " + ", ".join(METADATA),
                )
        self._schema = schema

    def feeds(self, position: Position | None) -> Sequence[str]:
        return [] if position is None else sorted(position["at"])

    def freeze(self, now_us: int) -> None:
        del now_us
        self._planned().freeze()

    def advance(self, position: Position | None, now_us: int, limit: Limit) -> Advance:
        """Return the step from a position: one range for each partition, so that one task reads all of it."""
        return self._planned().advance(position, now_us, limit)

    def read(self, part: Range, columns: Sequence[str] | None, malformed: MalformedRows) -> Iterator[Chunk]:
        schema = self.schema()
        wanted = schema.names if columns is None else list(columns)
        rows = MessageRows(self._options, self._common, self._values, schema, wanted)
        for some in messages(self._options, part.place):
            yield from rows.chunks(some, part, malformed)

    def limit(self, common: Limit) -> Limit:
        given = [most for most in (common.rows, self._options.max_offsets) if most is not None]
        return Limit(min(given) if given else None, common.bytes, common.files)

    def backlog(self, position: Position | None, now_us: int) -> dict[str, Any] | None:
        """Return how many messages wait, and how many were lost (`failOnDataLoss=false`)."""
        del now_us
        rows = self._planned().backlog(position)
        if rows is None or position is None:
            return None
        return {"rows": rows, **({"lost": position["lost"]} if position["lost"] else {})}

    def __getstate__(self) -> dict[str, Any]:
        # Tasks only read.
        return {**self.__dict__, "_positions": None}

    def _planned(self) -> Positions:
        if self._positions is None:
            self._positions = Positions(Cluster(self._options), self._options)
        return self._positions

    def _inferred(self) -> pa.Schema:
        options = self._options
        own = [] if options.value_format == "raw" else self._needed()
        if self._values is None:
            names = [name for name in METADATA if name != "headers" or options.include_headers]
            return pa.schema([("key", METADATA["key"]), ("value", pa.binary()), *((n, METADATA[n]) for n in names[1:])])
        fields = list(self._values.infer(self._sampled()))
        taken = {field.name for field in fields}
        added = [pa.field(name, _inferred_type(name)) for name in own if name not in taken]
        return pa.schema([*fields, *added])

    def _needed(self) -> list[str]:
        common, options = self._common, self._options
        named = [*common.key, *([common.time] if common.time else [])]
        if common.select is not None:
            named += referenced_columns(common.select)
        if options.include_headers:
            named.append("_headers")
        return [name for name in dict.fromkeys(named) if metadata_name(name, options) is not None]

    def _sampled(self) -> list[bytes]:
        if self._options.value_format in ("csv", "protobuf") or (
            self._options.value_format == "avro" and self._options.avro_schema is not None
        ):
            return []
        cluster = Cluster(self._options)
        feeds = [feed_name(topic, part) for topic, (_, parts) in cluster.topics().items() for part in parts]
        begins, ends = cluster.begins(feeds), cluster.ends(feeds)
        found: list[bytes] = []
        for feed, begin in begins.items():
            topic, _, partition = feed.rpartition("/")
            place = {
                "topic": topic,
                "partition": partition,
                "from": begin,
                "to": min(ends[feed].offset, begin + _SAMPLE),
            }
            for some in messages(self._options, place):
                found += [value for message in some if (value := message.value()) is not None]
        if not found:
            raise SchemaError(
                "there is no message yet whose columns could be inferred",
                hint='name the columns with the option `schema`, such as "plate STRING, speed DOUBLE, at TIMESTAMP"',
            )
        return found


def _values_of(options: KafkaOptions) -> ValueFormat | None:
    if options.value_format == "json":
        return json_values()
    if options.value_format == "csv":
        return csv_values("\t" if options.sep == "\\t" else options.sep)
    if options.value_format == "avro":
        return AvroValues(options)
    return ProtobufValues(options) if options.value_format == "protobuf" else None


def _inferred_type(name: str) -> pa.DataType:
    """Return the type of a column of the message; a key is mostly text."""
    return pa.string() if name == "_key" else METADATA[name[1:]]
