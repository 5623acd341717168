"""Epochs of partition leaders: a row is the same only if both its offset and its epoch are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["End", "agreed_offsets"]

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
    Epochs never decrease along a log. The client queries the end of an epoch (OffsetForLeaderEpoch) only when it is
    assigned an offset with an epoch, so a consumer begins to read there.

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
