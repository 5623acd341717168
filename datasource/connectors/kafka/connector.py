"""The `kafka` connector: cluster, positions, consuming in tasks and decoding together."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import methodcaller
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from ....conf.errors import OptionError, SchemaError
from ...options import SourceOptions
from ...selection import referenced_columns
from ..contract import Advance, Chunk, Connector, Limit, MalformedRows, Position, Range
from ..files.formats.debezium import KEY, ChangeEventFormat, key_names
from .client import PATIENCE_S, Cluster, borrowed_consumer, feed_name, is_refusal, lost, unreachable
from .options import KafkaOptions
from .positions import Positions, check_topics
from .records import AvroValues, ChangeAvroValues, ProtobufValues
from .rows import METADATA, LineValues, MessageRows, ValueFormat, check_key_type, csv_values, json_values, metadata_name

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition


_log = logging.getLogger("upstream.kafka")

# A chunk of rows: large enough that parsing and coalescing cost little a call, small enough to bound memory.
_CHUNK_ROWS = 100_000
_CHUNK_BYTES = 32 << 20
_AT_ONCE = 20_000
# A log that ends before what was recorded: after a restart the broker may need a moment to see its own end.
_SHORT_PATIENCE_S = 10.0
# A consumer that was idle while brokers restarted may wait for a former leader. A new one queries the leader again.
_SILENT_S = 15.0
_ERROR = methodcaller("error")


def messages(options: KafkaOptions, place: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Yield a range's messages by offset, which may have gaps (compaction, aborts, transaction markers).

    Raise FeedChangedError if messages are gone (`failOnDataLoss`), and UpstreamError without an answer.
    """
    reading = _Reading(options, place)
    fresh = False
    while not reading.done:
        try:
            with borrowed_consumer(options, reading.next(), fresh=fresh) as consumer:
                yield from reading.chunks(consumer)
        except _SilentConsumerError:
            fresh = True  # those that wait for work have known the same brokers


class _SilentConsumerError(Exception):
    """Neither messages nor the end of the log for a long time."""


class _Reading:
    """The state of reading one range."""

    def __init__(self, options: KafkaOptions, place: Mapping[str, Any]) -> None:
        self._options = options
        self._consumer: Any = None
        self._topic = place["topic"]
        self._partition = int(place["partition"])
        self._at = int(place["from"])
        self._to = int(place["to"])
        self._epoch: int | None = place.get("epoch")  # brokers before 2.1 count none
        self._moved_s = self._assigned_s = time.monotonic()
        self._said: object = "it says nothing"
        self._short: str | None = None  # why the range may never be read to its end

    @property
    def done(self) -> bool:
        return self._at >= self._to

    def next(self) -> TopicPartition:
        from confluent_kafka import TopicPartition

        return TopicPartition(self._topic, self._partition, self._at)

    def chunks(self, consumer: Any) -> Iterator[list[Any]]:
        """Yield the rest of the range by a consumer that begins there; raise _SilentConsumerError once it is silent."""
        self._consumer = consumer
        self._assigned_s = time.monotonic()
        gathered: list[Any] = []
        size = 0
        while self._at < self._to:
            try:
                got = self._consume()
            except _SilentConsumerError:
                if gathered:
                    yield gathered
                raise
            gathered += got
            size += sum(map(len, got))
            if len(gathered) >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
                yield gathered
                gathered, size = [], 0
                self._moved_s = time.monotonic()  # what was done meanwhile is not the broker's
        if gathered:
            yield gathered

    def _consume(self) -> list[Any]:
        # It waits until it has so many, or the time is over: no longer for what a gap in the offsets leaves out.
        with _collector_off():
            got = self._consumer.consume(min(_AT_ONCE, self._to - self._at), 0.05)
        if not got:
            self._wait()
            return []
        errors: list[Any] = []
        if any(map(_ERROR, got)):
            errors = [message for message in got if message.error() is not None]
            got = [message for message in got if message.error() is None]
        if got:
            self._moved_s, self._short = time.monotonic(), None
            reached = got[-1].offset() + 1
            if reached > self._to:
                to = self._to
                got = [message for message in got if message.offset() < to]
            self._at = reached
            got = self._of_this_log(got)
        for message in errors:
            self._judge(message)
        return got

    def _of_this_log(self, got: list[Any]) -> list[Any]:
        """Return the messages without those of a later leader, which a range of its own covers from the truncation on.

        The tail that was there when the range was recorded is lost. Epochs never decrease along a log.
        """
        last = got[-1].leader_epoch() if got and self._epoch is not None else None
        if self._epoch is None or last is None or last <= self._epoch:
            return got
        kept = [message for message in got if message.leader_epoch() <= self._epoch]
        end = got[len(kept)].offset()
        self._data_loss(f"was cut off at offset {end} at the latest, and reached {self._to} when it was last looked at")
        self._at = self._to
        return kept

    def _judge(self, message: Any) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            # What is left of the range are marks of transactions, or nothing.
            self._at = max(self._at, message.offset())
            self._short = f"ends at offset {message.offset()}, and reached {self._to} when it was last looked at"
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._out_of_range()
        elif code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC):
            self._short = f"is not there any more, and was read to offset {self._at}"
        elif is_refusal(error):
            raise unreachable(self._options, error)
        else:
            self._said = error
        self._wait()

    def _out_of_range(self) -> None:
        first, end = self._consumer.get_watermark_offsets(self.next(), timeout=30)
        self._data_loss(
            f"holds offsets {first} to {end} and no longer offset {self._at}, from which on it is to be read"
        )
        self._at = max(min(first, self._to), self._at if end >= self._at else self._to)
        self._consumer.assign([self.next()])

    def _data_loss(self, what: str) -> None:
        error = lost(self._topic, self._partition, what)
        if self._options.fail_on_data_loss:
            raise error
        _log.warning("failOnDataLoss=false: %s", error.problem)

    def _wait(self) -> None:
        """Raise, or skip to the range's end, once no message has come for too long; a broker may be starting."""
        waited_s = time.monotonic() - self._moved_s
        if self._at >= self._to:
            return
        if self._short is not None and waited_s > _SHORT_PATIENCE_S:
            self._data_loss(self._short)
            self._at = self._to
        elif waited_s > PATIENCE_S:
            feed = feed_name(self._topic, self._partition)
            raise unreachable(self._options, f"nothing of {feed} for {PATIENCE_S:.0f} s ({self._said})")
        elif time.monotonic() - max(self._assigned_s, self._moved_s) > _SILENT_S:
            raise _SilentConsumerError


@contextmanager
def _collector_off() -> Generator[None]:
    """Turn the garbage collector off while a list of messages is made: its scans take half of a read's time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
    joins_ranges: bool = True

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
        sample = self._sampled()
        fields = list(self._values.infer([value for _, value in sample]))
        if options.value_format in ("debezium", "debezium-avro"):
            names_of = self._values.key_names if isinstance(self._values, ChangeAvroValues) else key_names
            names = next((names for key, _ in sample if (names := names_of(key))), ())
            fields += [pa.field(KEY, pa.struct([(name, pa.string()) for name in names]))] if names else []
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

    def _sampled(self) -> list[tuple[bytes | None, bytes]]:
        """Return keys and values of some messages that have a value; none if the columns need none."""
        given = self._options.avro_schema is not None
        if self._options.value_format in ("csv", "protobuf") or (self._options.value_format == "avro" and given):
            return []
        cluster = Cluster(self._options)
        topics = cluster.topics()
        check_topics(self._options, topics)
        feeds = [feed_name(topic, part) for topic, (_, parts) in topics.items() for part in parts]
        begins, ends = cluster.begins(feeds), cluster.ends(feeds)
        found: list[tuple[bytes | None, bytes]] = []
        for feed, begin in begins.items():
            topic, _, partition = feed.rpartition("/")
            place = {
                "topic": topic,
                "partition": partition,
                "from": begin,
                "to": min(ends[feed].offset, begin + _SAMPLE),
            }
            for some in messages(self._options, place):
                found += [(message.key(), value) for message in some if (value := message.value()) is not None]
        if not found:
            raise SchemaError(
                f"the topic {', '.join(topics)} has no message yet whose columns could be inferred",
                hint='name the columns with the option `schema`, such as "plate STRING, speed DOUBLE, at TIMESTAMP"',
            )
        return found


def _values_of(options: KafkaOptions) -> ValueFormat | None:
    if options.value_format == "json":
        return json_values()
    if options.value_format == "debezium":
        return LineValues(ChangeEventFormat(), bracketed=True)
    if options.value_format == "debezium-avro":
        return ChangeAvroValues(options)
    if options.value_format == "csv":
        return csv_values("\t" if options.sep == "\\t" else options.sep)
    if options.value_format == "avro":
        return AvroValues(options)
    return ProtobufValues(options) if options.value_format == "protobuf" else None


def _inferred_type(name: str) -> pa.DataType:
    """Return the type of a column of the message; a key is mostly text."""
    return pa.string() if name == "_key" else METADATA[name[1:]]
