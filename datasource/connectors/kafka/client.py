"""The Kafka client: its settings, the driver's queries, and one consumer per process and configuration."""

from __future__ import annotations

import functools
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ....conf.errors import FeedChangedError, OptionError, UpstreamError
from .options import KafkaOptions, check_client

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition


_AT_ONCE = 1000
# A message of each partition shows where its log was entered; no more than the least is fetched.
_LOOKING = {
    "fetch.message.max.bytes": 1024,
    "queued.min.messages": 1,
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 100,
    "enable.partition.eof": True,
    # The client resumes at the end of a truncated log only if this is not `error`.
    "auto.offset.reset": "latest",
}


class End(NamedTuple):
    """The end of a log."""

    offset: int  # after the last message that may be read
    epoch: int | None = None  # of the leader; None if it counts none


def agreed_offsets(
    make: Any, settings: Mapping[str, Any], read: Mapping[tuple[str, int], tuple[int, int]], timeout_s: float
) -> dict[tuple[str, int], int]:
    """Return the offset up to which each log is what was read: the offset read to, or an earlier one if truncated.

    A leader that lacks the tail of its predecessor's log writes other rows to the same offsets, under a larger epoch.
    Epochs never decrease along a log. The client queries the end of an epoch (OffsetForLeaderEpoch) only for an offset
    with an epoch, so a consumer begins to read there.

    `read` has the next offset, and the leader's epoch as of that read. Raise KafkaException without answers in time.
    """
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    gone = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
    found: dict[tuple[str, int], int] = {}
    consumer = make({"group.id": "upstream", **settings, **_LOOKING, "enable.auto.commit": False})
    end = time.monotonic() + timeout_s
    said: Any = KafkaError(KafkaError._TIMED_OUT)
    try:
        consumer.assign([TopicPartition(*place, at, leader_epoch=epoch) for place, (at, epoch) in read.items()])
        while len(found) < len(read):
            for message in consumer.consume(_AT_ONCE, 0.1):
                error, place = message.error(), (message.topic(), message.partition())
                if place not in read:
                    said = error or said
                elif error is None or error.code() == KafkaError._PARTITION_EOF:
                    found.setdefault(place, min(message.offset(), read[place][0]))
                elif error.code() in gone:
                    found.setdefault(place, read[place][0])  # whoever looks for partitions misses it, too
                else:
                    said = error
            if len(found) < len(read) and time.monotonic() > end:
                raise KafkaException(said)
    finally:
        consumer.close()
    return found


T = TypeVar("T")

PATIENCE_S = 120.0
"""The time that a broker may be away, as Spark's kafkaConsumer.pollTimeoutMs."""

_ASK_S = 30.0
# Of a broker that has never answered: its address or a setting may be wrong, and the user waits for the message.
_ASK_FIRST_S = 10.0
_PATIENCE_FIRST_S = 5.0
_REFUSED_S = 0.2  # A port that refuses does so at once.
# A range is read in large steps. The client's own numbers are for a trickle: once it has fetched ahead enough, it waits
# a second.
_READING = {
    "fetch.message.max.bytes": 4 << 20,
    "queued.max.messages.kbytes": 64 << 10,
    "queued.min.messages": 500_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 100,
}
# Idle consumers of this process, by settings. A consumer serves one task at a time, and no process but the one that
# made it.
_idle: dict[tuple[int, frozenset[tuple[str, Any]]], list[Any]] = {}
_lock = threading.Lock()


def feed_name(topic: str, partition: int) -> str:
    """Return the feed of a partition."""
    return f"{topic}/{partition}"


def feed_place(feed: str) -> tuple[str, int]:
    """Return the topic and the partition of a feed; a topic's name has no slash."""
    topic, _, partition = feed.rpartition("/")
    return topic, int(partition)


def settings_of(options: KafkaOptions) -> dict[str, Any]:
    """Return the client's settings; the user's own come last."""
    return {
        "bootstrap.servers": options.servers,
        "isolation.level": "read_committed",
        "reconnect.backoff.max.ms": 1000,
        "log_level": 2,
        **options.passed_on,
    }


def unreachable(options: KafkaOptions, said: object) -> UpstreamError:
    """Return the error for a broker that does not answer, or refuses."""
    return UpstreamError(
        f"the Kafka cluster at {options.servers} does not answer a request: {options.masked(str(said))}",
        hint="check that the driver and the workers can reach it, and the options kafka.*; then restart",
    )


class Cluster:
    """The driver's queries to the cluster."""

    def __init__(self, options: KafkaOptions) -> None:
        check_client()
        from confluent_kafka.admin import AdminClient

        self._options = options
        settings = settings_of(options)
        self._committed = settings.pop("isolation.level") == "read_committed"
        settings.pop("group.id", None)
        self._complaint: object = None  # why a connection fails; a request only times out
        settings["error_cb"] = lambda error: setattr(self, "_complaint", error)
        self._make = functools.partial(_made, AdminClient, settings, options)
        self._admin = self._make()
        self._answered = False

    @property
    def _ask_s(self) -> float:
        return _ASK_S if self._answered else _ASK_FIRST_S

    def topics(self) -> dict[str, tuple[str, list[int]]]:
        """Return the existing wanted topics, each with id and partitions; raise UpstreamError without an answer."""
        return self._patiently(self._topics)

    def _topics(self) -> dict[str, tuple[str, list[int]]]:
        from confluent_kafka import TopicCollection

        options = self._options
        names: Iterable[str] = options.assign or options.subscribe
        if options.subscribe_pattern is not None:
            known = self._admin.list_topics(timeout=self._ask_s).topics
            names = [name for name in known if re.fullmatch(options.subscribe_pattern, name)]
        asked = (
            self._admin.describe_topics(TopicCollection(sorted(names)), request_timeout=self._ask_s) if names else {}
        )
        found: dict[str, tuple[str, list[int]]] = {}
        for name, described in _those_there(asked):
            parts = sorted(part.id for part in described.partitions)
            wanted = parts if options.assign is None else [part for part in parts if part in options.assign[name]]
            found[name] = (str(described.topic_id), wanted)
        return found

    def ends(self, feeds: Iterable[str]) -> dict[str, End]:
        """Return the offset after the last message that may be read; feeds that are gone are missing."""
        return self._offsets(feeds, latest=True)

    def begins(self, feeds: Iterable[str]) -> dict[str, int]:
        """Return the offset of the first message that is there; feeds that are gone are missing."""
        return {feed: begin.offset for feed, begin in self._offsets(feeds, latest=False).items()}

    def agreed(self, read: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """Return :func:`~.epochs.agreed_offsets` by feed."""
        from confluent_kafka import Consumer

        if not read:
            return {}
        places = {feed_place(feed): known for feed, known in read.items()}
        make = functools.partial(_made, Consumer, options=self._options)
        found = self._patiently(lambda: agreed_offsets(make, settings_of(self._options), places, self._ask_s))
        return {feed_name(*place): offset for place, offset in found.items()}

    def _offsets(self, feeds: Iterable[str], *, latest: bool) -> dict[str, End]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # pyright: ignore[reportPrivateImportUsage]

        spec = OffsetSpec.latest() if latest else OffsetSpec.earliest()
        asked = {TopicPartition(*feed_place(feed)): spec for feed in feeds}
        if not asked:
            return {}
        # What an open transaction has written is not there yet.
        level = IsolationLevel.READ_COMMITTED if self._committed else IsolationLevel.READ_UNCOMMITTED

        def ask() -> dict[str, End]:
            answers = self._admin.list_offsets(asked, isolation_level=level, request_timeout=self._ask_s)
            return {
                feed_name(place.topic, place.partition): End(info.offset, _epoch(info.leader_epoch))
                for place, info in _those_there(answers)
            }

        return self._patiently(ask)

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Retry while the broker is away, for as long as Spark's own source would if it has answered before."""
        from confluent_kafka import KafkaException

        end = time.monotonic() + (PATIENCE_S if self._answered else _PATIENCE_FIRST_S)
        while True:
            try:
                if not self._answered:
                    self._options.check_answers()
                found = ask()
            except KafkaException as error:
                self._admin.poll(0)
                said = error.args[0]
                if is_refusal(said) or time.monotonic() >= end:
                    raise unreachable(self._options, self._complaint or said) from None
            except UpstreamError:
                if time.monotonic() >= end:
                    raise
                time.sleep(_REFUSED_S)
            else:
                self._answered = True
                return found
            time.sleep(0.2)
            # What this client believes of leaders may be of before the broker was away, and it does not always ask
            # again.
            self._admin = self._make()


def is_refusal(error: Any) -> bool:
    """Return whether a retry is pointless. Any other error may pass: brokers that start or stop answer with many."""
    from confluent_kafka import KafkaError

    return error.fatal() or error.code() in (
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._INVALID_ARG,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.TOPIC_EXCEPTION,
    )


def _epoch(said: int | None) -> int | None:
    """Return the epoch of a leader; None from brokers before 2.1, which count none."""
    return None if said is None or said < 0 else said


def _those_there(answers: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    from confluent_kafka import KafkaError, KafkaException

    gone = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
    for name, answer in answers.items():
        try:
            yield name, answer.result()
        except KafkaException as error:
            if error.args[0].code() not in gone:
                raise


@contextmanager
def borrowed_consumer(options: KafkaOptions, start: TopicPartition, *, fresh: bool = False) -> Generator[Consumer]:
    """Lend a consumer at an offset, and keep it, as it is expensive. With `fresh`, make one, and close idle ones."""
    from confluent_kafka import Consumer

    settings = {
        **_READING,
        **settings_of(options),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    settings.setdefault("group.id", "upstream")
    kind = (os.getpid(), frozenset(settings.items()))
    with _lock:
        waiting = _idle.get(kind, [])
        stale = [waiting.pop() for _ in list(waiting)] if fresh else []
        consumer = waiting.pop() if waiting else None
    for each in stale:
        each.close()
    if consumer is None:
        consumer = _made(Consumer, settings, options)
    try:
        consumer.assign([start])
        yield consumer
        consumer.unassign()
    except BaseException:
        consumer.close()  # whatever state it is in
        raise
    with _lock:
        _idle.setdefault(kind, []).append(consumer)


def lost(topic: str, partition: int, what: str) -> FeedChangedError:
    """Return the error for messages that are gone before they were read."""
    return FeedChangedError(
        f"partition {partition} of topic {topic!r} {what}",
        expected="every message from the recorded offset on",
        hint="set failOnDataLoss=false to continue with the present messages and count the others, or start with a new "
        "checkpoint. A longer retention of the topic avoids this",
    )


def _made(make: Any, settings: Mapping[str, Any], options: KafkaOptions) -> Any:
    from confluent_kafka import KafkaException

    try:
        return make(dict(settings))
    except KafkaException as error:
        raise OptionError(
            f"the Kafka client refuses an option kafka.*: {options.masked(str(error.args[0].str()))}",
            expected="librdkafka's names and values, such as kafka.sasl.username and kafka.sasl.password",
            hint="correct the option; names of the Java client alone, such as sasl.jaas.config, are not known to it",
        ) from None
