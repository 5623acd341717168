"""Options of the `kafka` connector, named as Spark's Kafka source names them."""

from __future__ import annotations

import dataclasses
import json
import queue
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ....conf.errors import OptionError, UpstreamError, needs_extra
from ....conf.options import boolean, one_of, option, parsed, positive_int, text
from ....conf.secrets import masked, secrets_of

Offsets = str | Mapping[str, Mapping[str, int]]
"""``earliest``, ``latest``, or offsets by topic and partition."""

EARLIEST, LATEST = -2, -1
"""As Spark writes them among the offsets of partitions."""

# Settings that decide where reading begins, and which messages it returns: each batch records both.
_NOT_PASSED_ON = {
    "auto.offset.reset": "set startingOffsets instead",
    "enable.auto.commit": "offsets are in the query's checkpoint",
    "enable.auto.offset.store": "offsets are in the query's checkpoint",
    "enable.partition.eof": "the source needs it",
    "key.deserializer": "set keyFormat instead",
    "value.deserializer": "set valueFormat instead",
}
_CONNECTS_S, _ANSWERS_S = 2.0, 3.0
# A request for the versions of requests, with the number 1: every broker answers it, before it authenticates a client.
_ANY_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


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


def check_client() -> None:
    """Raise EnvironmentMissingError without confluent-kafka."""
    with needs_extra("kafka", "connector=kafka"):
        import confluent_kafka  # noqa: F401  # pyright: ignore[reportUnusedImport]


def _refusal(server: str, protocol: str) -> str | None:
    """Return why a server is not a Kafka broker; None if it is one, or its address is in a form of the client's own."""
    own, _, address = server.strip().rpartition("://")
    try:
        place = urlsplit(f"//{address}")
        with socket.create_connection((place.hostname or "", place.port or 9092), _CONNECTS_S) as peer:
            peer.settimeout(_ANSWERS_S)
            try:
                return _refusal_in_tls(peer) if (own or protocol).upper().endswith("SSL") else _refusal_in_plain(peer)
            except ConnectionError:
                return "it hangs up; check that kafka.security.protocol is the one that it demands"
            except TimeoutError:
                return f"it accepts connections, but does not answer a Kafka request within {_ANSWERS_S:.0f} s"
    except ValueError:
        return None
    except OSError as error:
        return error.strerror or str(error)


def _refusal_in_plain(peer: socket.socket) -> str | None:
    peer.sendall(_ANY_VERSIONS)
    answer = peer.recv(8)
    if answer.startswith(b"\0"):  # the length, of less than 16 MB
        return None
    if answer.startswith((b"HTTP", b"<")):
        return "it speaks HTTP, not Kafka's protocol"
    if answer.startswith(b"\x15\x03"):
        return "it demands TLS; set kafka.security.protocol to SSL or SASL_SSL"
    if not answer:
        raise ConnectionError
    return f"it answers a Kafka request with {answer!r}"


def _refusal_in_tls(peer: socket.socket) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the client verifies it
    try:
        context.wrap_socket(peer).close()
    except ssl.SSLEOFError as error:
        raise ConnectionError from error
    except ssl.SSLError as error:
        return "it does not speak TLS" if error.reason in _NO_TLS else None
    return None


@dataclasses.dataclass(frozen=True)
class KafkaOptions:
    """The options of the `kafka` connector; see each option's documentation."""

    PASSED_ON: ClassVar[Mapping[str, str]] = {"kafka.": "passed_on", "schemaregistry.": "registry_settings"}

    servers: str | None = option(
        "kafka.bootstrap.servers",
        text(),
        None,
        "Set the brokers, as host:port separated by commas. All other options that begin with `kafka.` go to "
        "the client without that prefix, under librdkafka's names. Their values appear in no message, offset, "
        "or plan of UpStream. `kafka.isolation.level` is read_committed unless you set it.",
    )
    subscribe: tuple[str, ...] = option(
        "subscribe", parsed("topics, separated by commas", _topics), (), "Set the topics to read."
    )
    subscribe_pattern: str | None = option(
        "subscribePattern",
        parsed("a regular expression", _pattern),
        None,
        "Read all topics whose whole name matches, including topics that are created later.",
    )
    assign: Mapping[str, tuple[int, ...]] | None = option(
        "assign",
        parsed('JSON such as {"topic": [0, 1]}', _assigned),
        None,
        "Read these partitions, and no others.",
    )
    starting_offsets: Offsets = option(  # noqa: RUF009 as all the others
        "startingOffsets",
        _STARTS,
        "earliest",
        "Choose where the first run begins: `earliest`, `latest`, or an offset for each partition. In JSON, -2 "
        "means earliest and -1 latest; partitions that it does not name, or that are created later, begin at the "
        "earliest offset. Spark's own source begins at the latest.",
    )
    ending_offsets: Offsets = option(  # noqa: RUF009
        "endingOffsets",
        _ENDS,
        "latest",
        "Choose where reading ends, in a batch or a stream. A feed ends when it reaches its offset. `latest` "
        "means the present end for a batch, and no end for a stream.",
    )
    max_offsets: int | None = option(
        "maxOffsetsPerTrigger",
        positive_int(),
        None,
        "Set the maximum number of offsets in a batch. The partitions share it in proportion to their backlogs.",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        boolean(),
        True,
        "Stop the query if messages are gone before it has read them: past their retention, or in a topic "
        "that was deleted or recreated. If false, the query continues with the present messages, logs a "
        "warning, and counts the missing ones in the offset (`lost`).",
    )
    value_format: str = option(
        "valueFormat",
        one_of("json", "csv", "raw", "avro", "protobuf", "debezium", "debezium-avro"),
        "json",
        "Set the format of values. `json`: an object. `csv`: fields in the order of `schema`. `raw`: Spark's "
        "own columns key, value, topic, partition, offset, timestamp, timestampType. `avro` and `protobuf`: "
        "by a given schema; Avro also by a registry. A null value is a tombstone. `debezium` and "
        "`debezium-avro`: change events in JSON or Avro, with the defaults of `key` and `eventTime` as for files.",
    )
    key_format: str = option(
        "keyFormat",
        one_of("text", "json"),
        "text",
        "Set how a message's key names the key that a tombstone deletes. `text`: the value of the single "
        "column of `key`. `json`: an object with all columns of `key`.",
    )
    include_headers: bool = option(
        "includeHeaders",
        boolean(),
        False,
        "Add the headers of messages, as Spark does: `headers` with `raw`, otherwise `_headers`.",
    )
    sep: str = option("sep", text(), ",", "For CSV: set the separator of fields.")
    schema_registry: str | None = option(
        "schemaRegistry",
        text(),
        None,
        "For Avro: set the address of a schema registry, such as http://host:8081. Values then begin with a zero "
        "byte and the number of their schema, in Confluent's format. Options that begin with `schemaRegistry.` go "
        "to confluent-kafka's registry client without that prefix: `basic.auth.user.info`, "
        "`bearer.auth.credentials.source` for OAuth, `ssl.ca.location`. Their values appear in no message, "
        "offset, or plan.",
    )
    avro_schema: str | None = option(
        "avroSchema",
        text(),
        None,
        "For Avro: set the schema as JSON, or the path of a file with it that every worker can read.",
    )
    descriptor_file: str | None = option(
        "descriptorFile",
        text(),
        None,
        "For Protobuf: set the file of descriptors, the output of `protoc --include_imports "
        "--descriptor_set_out=FILE`.",
    )
    message_name: str | None = option(
        "messageName", text(), None, "For Protobuf: set the full name of the message in the values."
    )
    passed_on: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """Settings passed to the client unchanged, secrets included."""
    registry_settings: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The same for the client of the schema registry."""

    @property
    def in_avro(self) -> bool:
        return self.value_format in ("avro", "debezium-avro")

    def check(self) -> None:
        """Raise one OptionError for all options with which nothing can be read."""
        problems: list[str] = []
        if self.servers is None:
            problems.append("connector=kafka without `kafka.bootstrap.servers`")
        chosen = [bool(self.subscribe), self.subscribe_pattern is not None, self.assign is not None].count(True)
        if chosen != 1:
            said = "none" if not chosen else "more than one"
            problems.append(f"{said} of `subscribe`, `subscribePattern` and `assign` given: give one")
        problems += [
            f"kafka.{name} is not passed on ({why})" for name, why in _NOT_PASSED_ON.items() if name in self.passed_on
        ]
        if self.in_avro and self.avro_schema is None and self.schema_registry is None:
            problems.append(f"valueFormat={self.value_format} without `avroSchema` or `schemaRegistry`")
        if self.registry_settings and self.schema_registry is None:
            problems.append("settings of the schema registry without `schemaRegistry`, its address")
        if self.schema_registry is not None and "@" in urlsplit(self.schema_registry).netloc:
            problems.append("a password in `schemaRegistry`: give `schemaRegistry.basic.auth.user.info=USER:PASSWORD`")
        if self.value_format == "protobuf" and (self.descriptor_file is None or self.message_name is None):
            problems.append("valueFormat=protobuf without `descriptorFile` and `messageName`")
        if problems:
            raise OptionError("; ".join(problems), hint="give or leave out the options named")

    def check_answers(self) -> None:
        """Raise an error within seconds if the client is not installed, or no broker answers."""
        check_client()
        servers = (self.servers or "").split(",")
        protocol = self.passed_on.get("security.protocol", "plaintext")
        answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        for server in servers:  # at the same time; the lookup of a name has no timeout of its own
            threading.Thread(target=lambda at: answers.put(_refusal(at, protocol)), args=(server,), daemon=True).start()
        end, failed = time.monotonic() + _CONNECTS_S + _ANSWERS_S, "timed out"
        with suppress(queue.Empty):
            for _ in servers:
                answer = answers.get(timeout=max(end - time.monotonic(), 0.0))
                if answer is None:
                    return
                failed = answer
        raise UpstreamError(
            f"no Kafka broker answers at {self.servers}: {failed}",
            hint="start the broker, or correct the address or the options kafka.*",
        )

    def masked(self, said: str) -> str:
        """Return a message without the values of secret settings."""
        return masked(said, secrets_of({**self.passed_on, **self.registry_settings}))
