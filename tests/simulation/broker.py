"""A broker's log in memory, and a client of it with the interface of confluent-kafka as far as the connector uses it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition


@dataclasses.dataclass
class Log:
    """One partition."""

    begin: int = 0
    messages: list[Message] = dataclasses.field(default_factory=list)
    epoch: int = 0

    @property
    def end(self) -> int:
        return self.begin + len(self.messages)

    def append(self, topic: str, partition: int, key: bytes | None, value: bytes | None, at_ms: int) -> int:
        """Write one message; its offset."""
        self.messages.append(Message(topic, partition, self.end, key, value, at_ms, self.epoch))
        return self.end - 1

    def cut(self, end: int) -> list[Message]:
        """A new leader that lacks the tail: messages from an offset on are gone, and others may come there."""
        self.epoch += 1
        gone = self.messages[max(end - self.begin, 0) :]
        del self.messages[max(end - self.begin, 0) :]
        return gone


class Message:
    """As the client gives it."""

    __slots__ = ("_at_ms", "_epoch", "_error", "_key", "_offset", "_partition", "_topic", "_value")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        at_ms: int,
        epoch: int,
        error: Any = None,
    ) -> None:
        self._topic, self._partition, self._offset = topic, partition, offset
        self._key, self._value, self._at_ms, self._epoch, self._error = key, value, at_ms, epoch, error

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at_ms

    def headers(self) -> None:
        return None

    def leader_epoch(self) -> int:
        return self._epoch

    def error(self) -> Any:
        return self._error

    def __len__(self) -> int:
        return len(self._value or b"")


class Broker:
    """Topics by name: an id, and the log of each partition."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[str, dict[int, Log]]] = {}

    def create(self, topic: str, ident: str) -> None:
        self.topics[topic] = (ident, {})

    def log(self, topic: str, partition: int) -> Log | None:
        _, logs = self.topics.get(topic, ("", {}))
        return logs.get(partition)


BROKERS: dict[str, Broker] = {}
"""By what `bootstrap.servers` says."""


class _Answer:
    """What a future of the admin client gives."""

    def __init__(self, value: Any = None, error: int | None = None) -> None:
        self._value, self._error = value, error

    def result(self) -> Any:
        if self._error is not None:
            raise KafkaException(KafkaError(self._error))
        return self._value


@dataclasses.dataclass(frozen=True)
class _Named:
    """A few attributes by their names."""

    id: int = 0
    offset: int = 0
    leader_epoch: int = 0
    partitions: Sequence[Any] = ()
    topic_id: str = ""
    topics: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class AdminClient:
    """What the driver asks."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._broker = BROKERS[settings["bootstrap.servers"]]

    def list_topics(self, **_: Any) -> _Named:
        return _Named(topics=dict.fromkeys(self._broker.topics))

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, _Answer]:
        answers: dict[str, _Answer] = {}
        for name in topics.topic_names:
            found = self._broker.topics.get(name)
            answers[name] = (
                _Answer(error=KafkaError.UNKNOWN_TOPIC_OR_PART)
                if found is None
                else _Answer(_Named(partitions=[_Named(id=number) for number in sorted(found[1])], topic_id=found[0]))
            )
        return answers

    def list_offsets(self, asked: Mapping[TopicPartition, Any], **_: Any) -> dict[TopicPartition, _Answer]:
        answers: dict[TopicPartition, _Answer] = {}
        for place, spec in asked.items():
            log = self._broker.log(place.topic, place.partition)
            if log is None:
                answers[place] = _Answer(error=KafkaError.UNKNOWN_TOPIC_OR_PART)
                continue
            latest = type(spec).__name__ == "LatestSpec"
            answers[place] = _Answer(_Named(offset=log.end if latest else log.begin, leader_epoch=log.epoch))
        return answers


class Consumer:
    """Reads one partition."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._broker = BROKERS[settings["bootstrap.servers"]]
        self._place: TopicPartition | None = None
        self._at = 0
        self._told_end = False

    def assign(self, places: Iterable[TopicPartition]) -> None:
        (self._place,) = places
        self._at, self._told_end = self._place.offset, False

    def unassign(self) -> None:
        self._place = None

    def close(self) -> None:
        self._place = None

    def get_watermark_offsets(self, place: TopicPartition, **_: Any) -> tuple[int, int]:
        log = self._broker.log(place.topic, place.partition)
        return (0, 0) if log is None else (log.begin, log.end)

    def consume(self, count: int, timeout: float) -> list[Message]:
        from .machine import MACHINE

        assert self._place is not None
        topic, partition = self._place.topic, self._place.partition
        log = self._broker.log(topic, partition)
        MACHINE.monotonic_s += 0.001
        if log is None:
            return [self._said(KafkaError.UNKNOWN_TOPIC_OR_PART)]
        if not log.begin <= self._at <= log.end:
            return [self._said(KafkaError._AUTO_OFFSET_RESET)]
        got = log.messages[self._at - log.begin : self._at - log.begin + count]
        self._at += len(got)
        if got:
            return list(got)
        MACHINE.monotonic_s += 5.0
        if self._told_end:
            return []
        self._told_end = True
        return [self._said(KafkaError._PARTITION_EOF)]

    def _said(self, code: int) -> Message:
        assert self._place is not None
        return Message(self._place.topic, self._place.partition, self._at, None, None, 0, 0, KafkaError(code))
