"""Options of the `kafka` connector, named as Spark's Kafka source names them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from ....conf.errors import OptionError
from ....conf.options import boolean, one_of, option, parsed, positive_int, text

__all__ = ["EARLIEST", "LATEST", "KafkaOptions", "Offsets"]

Offsets = str | Mapping[str, Mapping[str, int]]
"""``earliest``, ``latest``, or offsets by topic and partition."""

EARLIEST, LATEST = -2, -1
"""As Spark writes them among the offsets of partitions."""

# What decides from where, and what of it, is read: that is recorded with each batch, and nobody else's.
_NOT_PASSED_ON = {
    "auto.offset.reset": "set startingOffsets instead",
    "enable.auto.commit": "offsets are in the query's checkpoint",
    "enable.auto.offset.store": "offsets are in the query's checkpoint",
    "enable.partition.eof": "the source needs it",
    "key.deserializer": "set keyFormat instead",
    "value.deserializer": "set valueFormat instead",
}
_SECRET = re.compile(r"password|secret|token|credential|jaas|\bkey|\.pem$|\.key\b|oauth", re.IGNORECASE)


def _topics(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise ValueError("an empty name")
    return names


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(str(error)) from error
    return value


def _assigned(value: str) -> Mapping[str, tuple[int, ...]]:
    topics = json.loads(value)
    return {str(topic): tuple(sorted(int(part) for part in parts)) for topic, parts in topics.items()}


def _offsets(*words: str) -> Any:
    def parse(value: str) -> Offsets:
        if value.strip().lower() in words:
            return value.strip().lower()
        topics = json.loads(value)
        return {str(topic): {str(int(part)): int(at) for part, at in parts.items()} for topic, parts in topics.items()}

    def checked(value: str) -> Offsets:
        try:
            found = parse(value)
        except (AttributeError, TypeError) as error:
            raise ValueError from error
        if isinstance(found, Mapping):
            least = LATEST if words == ("latest",) else EARLIEST
            if any(at < least for parts in found.values() for at in parts.values()):
                raise ValueError(f"an offset below {least}")
        return found

    return parsed(" or ".join(words) + ', or JSON such as {"topic": {"0": 23, "1": -1}}', checked)


_STARTS, _ENDS = _offsets("earliest", "latest"), _offsets("latest")


@dataclasses.dataclass(frozen=True)
class KafkaOptions:
    """The options of the `kafka` connector; see each option's documentation."""

    PASSED_ON: ClassVar[str] = "kafka."

    servers: str | None = option(
        "kafka.bootstrap.servers",
        text(),
        None,
        "The brokers, host:port separated by commas. All other options that begin with `kafka.` go to the client "
        "(librdkafka's names), without "
        "that prefix; their values are in no message, offset or plan of ours. `kafka.isolation.level` is "
        "read_committed if not given.",
    )
    subscribe: tuple[str, ...] = option(
        "subscribe", parsed("topics, separated by commas", _topics), (), "The topics to read."
    )
    subscribe_pattern: str | None = option(
        "subscribePattern",
        parsed("a regular expression", _pattern),
        None,
        "All topics whose whole name matches, also those that come later.",
    )
    assign: Mapping[str, tuple[int, ...]] | None = option(
        "assign",
        parsed('JSON such as {"topic": [0, 1]}', _assigned),
        None,
        "These partitions, and no others.",
    )
    starting_offsets: Offsets = option(  # noqa: RUF009 as all the others
        "startingOffsets",
        _STARTS,
        "earliest",
        "Where the first run begins: `earliest`, `latest`, or an offset for each partition (-2 earliest, -1 latest; "
        "one that is not named begins "
        "at the earliest). Partitions that come later are read from their beginning. Spark's source begins at the "
        "latest by default; a table of "
        "the newest row per key is complete only from the beginning.",
    )
    ending_offsets: Offsets = option(  # noqa: RUF009
        "endingOffsets",
        _ENDS,
        "latest",
        "Where reading ends, of a batch or of a stream: a feed that has reached its offset has ended. `latest` is what "
        "is there now for a batch, "
        "and no end for a stream.",
    )
    max_offsets: int | None = option(
        "maxOffsetsPerTrigger",
        positive_int(),
        None,
        "The most offsets in a batch, shared among partitions by what waits in each.",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        boolean(),
        True,
        "Whether the query stops when messages that it has not read are gone (past retention, a topic deleted or made "
        "again). Otherwise it goes "
        "on with what is there, says so in the log, and counts what is missing in the offset (`lost`).",
    )
    value_format: str = option(
        "valueFormat",
        one_of("json", "csv", "raw", "avro", "protobuf"),
        "json",
        "How values are written. json: an object; csv: fields in the order of `schema`; raw: Spark's own columns key, "
        "value, topic, partition, "
        "offset, timestamp, timestampType; avro and protobuf: by a schema that is given, Avro also by a registry. A "
        "null value is a tombstone.",
    )
    key_format: str = option(
        "keyFormat",
        one_of("text", "json"),
        "text",
        "How a message's key says which key a tombstone deletes: text is the one column of `key`; json is an object "
        "with all of them.",
    )
    include_headers: bool = option(
        "includeHeaders",
        boolean(),
        False,
        "Add the messages' headers, as Spark does: `headers` if raw, else `_headers`.",
    )
    sep: str = option("sep", text(), ",", "CSV: what separates fields.")
    schema_registry: str | None = option(
        "schemaRegistry",
        text(),
        None,
        "Avro: the address of a schema registry, such as http://host:8081 (user and password before the host, if it "
        "asks for them). Values then begin "
        "with a zero and the number of their schema, as Confluent's do.",
    )
    avro_schema: str | None = option(
        "avroSchema", text(), None, "Avro: the schema as JSON, or the path of a file of it, that every worker can read."
    )
    descriptor_file: str | None = option(
        "descriptorFile",
        text(),
        None,
        "Protobuf: a file of descriptors, as `protoc --include_imports --descriptor_set_out=FILE` writes it.",
    )
    message_name: str | None = option("messageName", text(), None, "Protobuf: the full name of the values' message.")
    passed_on: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """What goes to the client as it is; secrets among it."""

    def check(self) -> None:
        """Refuse options with which nothing can be read.

        Raises
        ------
        OptionError
            Options are wrong; the message names all problems.
        """
        problems: list[str] = []
        if self.servers is None:
            problems.append("connector=kafka without `kafka.bootstrap.servers`")
        chosen = [bool(self.subscribe), self.subscribe_pattern is not None, self.assign is not None].count(True)
        if chosen != 1:
            said = "none" if not chosen else "more than one"
            problems.append(f"{said} of `subscribe`, `subscribePattern` and `assign` given, where one is to be")
        problems += [
            f"kafka.{name} is not passed on ({why})" for name, why in _NOT_PASSED_ON.items() if name in self.passed_on
        ]
        if self.value_format == "avro" and self.avro_schema is None and self.schema_registry is None:
            problems.append("valueFormat=avro without `avroSchema` or `schemaRegistry`")
        if self.value_format == "protobuf" and (self.descriptor_file is None or self.message_name is None):
            problems.append("valueFormat=protobuf without `descriptorFile` and `messageName`")
        if problems:
            raise OptionError("; ".join(problems), hint="give or leave out the options named")

    def masked(self, said: str) -> str:
        """Return a message without the values of secret settings."""
        for name, value in self.passed_on.items():
            if _SECRET.search(name) and value:
                said = said.replace(value, "***")
        return said
