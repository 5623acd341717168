"""A broker's log in memory, and a client with the part of confluent-kafka's interface that the connector uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
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
        fields = {"key": key, "value": value, "timestamp": (1, at_ms), "leader_epoch": self.epoch}
        self.messages.append(Message(topic, partition, self.end, **fields))
        return self.end - 1

    def agreed(self, at: int, epoch: int) -> int:
        """Where messages of later leaders begin, or what is asked for if that is before them."""
        later = [message.offset() for message in self.messages if message.leader_epoch() > epoch]
        return min([at, self.end, *later])

    def cut(self, end: int) -> list[Message]:
        """A new leader that lacks the tail: messages from an offset on are gone, and others may come there."""
        self.epoch += 1
        gone = self.messages[max(end - self.begin, 0) :]
        del self.messages[max(end - self.begin, 0) :]
        return gone


class Message:
    """As the client gives it: a method for each field."""

    def __init__(self, topic: str, partition: int, offset: int, **more: Any) -> None:
        nothing = dict.fromkeys(("key", "value", "headers", "error", "timestamp", "leader_epoch"))
        self._fields = {**nothing, "topic": topic, "partition": partition, "offset": offset, **more}

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__["_fields"][name]
        return lambda: value

    def __len__(self) -> int:
        return len(self._fields["value"] or b"")


class Broker:
    """Topics by name: an id, and the log of each partition."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[str, dict[int, Log]]] = {}

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


class AdminClient:
    """What the driver asks."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._broker = BROKERS[settings["bootstrap.servers"]]

    def list_topics(self, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(topics=dict.fromkeys(self._broker.topics))

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, _Answer]:
        answers: dict[str, _Answer] = {}
        for name in topics.topic_names:
            found = self._broker.topics.get(name)
            if found is None:
                answers[name] = _Answer(error=KafkaError.UNKNOWN_TOPIC_OR_PART)
            else:
                partitions = [SimpleNamespace(id=number) for number in sorted(found[1])]
                answers[name] = _Answer(SimpleNamespace(partitions=partitions, topic_id=found[0]))
        return answers

    def list_offsets(self, asked: Mapping[TopicPartition, Any], **_: Any) -> dict[TopicPartition, _Answer]:
        answers: dict[TopicPartition, _Answer] = {}
        for place, spec in asked.items():
            log = self._broker.log(place.topic, place.partition)
            if log is None:
                answers[place] = _Answer(error=KafkaError.UNKNOWN_TOPIC_OR_PART)
                continue
            latest = type(spec).__name__ == "LatestSpec"
            answers[place] = _Answer(SimpleNamespace(offset=log.end if latest else log.begin, leader_epoch=log.epoch))
        return answers


class Consumer:
    """Reads partitions."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._broker = BROKERS[settings["bootstrap.servers"]]
        self._follows = settings["auto.offset.reset"] == "latest"
        self._at: dict[tuple[str, int], int] = {}
        self._ended: set[tuple[str, int]] = set()

    def assign(self, places: Iterable[TopicPartition]) -> None:
        self._at, self._ended = {}, set()
        for place in places:
            log = self._broker.log(place.topic, place.partition)
            at, epoch = place.offset, place.leader_epoch
            if log is not None and epoch is not None:
                assert self._follows, "the client would give an error here, and nothing here makes it"
                at = log.agreed(at, epoch)
            self._at[place.topic, place.partition] = at

    def unassign(self) -> None:
        self._at = {}

    close = unassign

    def get_watermark_offsets(self, place: TopicPartition, **_: Any) -> tuple[int, int]:
        log = self._broker.log(place.topic, place.partition)
        return (0, 0) if log is None else (log.begin, log.end)

    def consume(self, count: int, timeout: float) -> list[Message]:
        from .machine import MACHINE

        MACHINE.monotonic_s += 0.001
        found = [message for place in self._at for message in self._of(place, count)]
        if not found or found[0].error() is not None:
            MACHINE.monotonic_s += 5.0
        return found

    def _of(self, place: tuple[str, int], count: int) -> list[Message]:
        log, at = self._broker.log(*place), self._at[place]
        if log is None:
            return [self._said(place, KafkaError.UNKNOWN_TOPIC_OR_PART)]
        if not log.begin <= at <= log.end:
            return [self._said(place, KafkaError._AUTO_OFFSET_RESET)]
        got = log.messages[at - log.begin : at - log.begin + count]
        self._at[place] += len(got)
        if got:
            return list(got)
        if place in self._ended:
            return []
        self._ended.add(place)
        return [self._said(place, KafkaError._PARTITION_EOF)]

    def _said(self, place: tuple[str, int], code: int) -> Message:
        return Message(*place, self._at[place], error=KafkaError(code))
