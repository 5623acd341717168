"""Whether a log is still the one that was read: leaders count epochs, and a row is the same only if its offset and its
epoch are.

A leader that lacks the tail of its predecessor's log writes other rows to the same offsets, under a greater epoch.
Along a log epochs never fall. So the log is the one that was read up to its first row of a later epoch than the leader
had when it was read.
"""

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
    # Where a log was cut, the client goes on at the cut, and only if this does not say `error`.
    "auto.offset.reset": "latest",
}


class End(NamedTuple):
    """Where a log ends.

    Attributes
    ----------
    offset : int
        The one after the last message that may be read.
    epoch : int or None
        Of the leader that says so; None if it counts none.
    """

    offset: int
    epoch: int | None = None


def agreed_offsets(
    make: Any, settings: Mapping[str, Any], read: Mapping[tuple[str, int], tuple[int, int]], timeout_s: float
) -> dict[tuple[str, int], int]:
    """Return up to where logs are still what was read of them: the offset read to, or an earlier one after a cut.

    The client gets the end of an epoch from the leader (OffsetForLeaderEpoch) when it is assigned an offset with an
    epoch. It has no call for that alone, but begins to read there.

    Parameters
    ----------
    make : callable
        Makes a consumer of settings.
    settings : mapping
        How to reach the broker.
    read : mapping
        By topic and partition: the next offset, and the epoch of the leader when it was read to there.
    timeout_s : float
        How long to wait.

    Raises
    ------
    confluent_kafka.KafkaException
        Partitions do not answer in time.
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
