"""Kafka under kill -9 of the query: the table, the account of rows and what is complete are those of a run that nobody
killed.
"""

import json
import random
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kit.jobs import Job, last_commit
from kit.queries import run_to_end
from kit.tables import read_by_key

from upstream.sink.figures.summary import read_summaries
from upstream.sink.spec.steps import CommitStep

from . import jobs

KEYS = 200


class Sending(threading.Thread):
    """Sends rows and tombstones to three partitions, the third silent after its first row, until told to stop."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": address, "log_level": 0})
        self._topic = topic
        self._told = threading.Event()
        self.rows: list[tuple[int, int, int, str | None]] = []

    def run(self) -> None:
        chance = random.Random(5)
        self._send(2, KEYS, 0, "only")
        number = 0
        while not self._told.wait(0.05):
            for _ in range(40):
                key = chance.randrange(KEYS)
                # Each key has its partition, and no time twice: what must be in the table is then one thing.
                number += 1
                ms = 10_000 + number * 10 - chance.choice([0, 0, 3000]) // 10 * 10 + key % 10
                self._send(key % 2, key, ms, None if chance.random() < 0.1 else f"v{number}")
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _send(self, partition: int, key: int, ms: int, value: str | None) -> None:
        text = None if value is None else json.dumps({"k": key, "ms": ms, "v": value})
        # A tombstone's time is the message's.
        self._producer.produce(self._topic, text, key=str(key), partition=partition, timestamp=ms)
        self.rows.append((partition, key, ms, value))

    def stop(self) -> None:
        self._told.set()
        self.join()


@pytest.mark.fault
def test_two_kills(spark, broker, tmp_path):
    topic = broker.create("killed", 3)
    table, checkpoint, log = (tmp_path / name for name in ("table", "checkpoint", "job.log"))
    job = Job(Path(jobs.__file__), log, ("kafka", broker.address, topic, table, checkpoint))
    sending = Sending(broker.address, topic)
    sending.start()
    for step in (CommitStep.COMMITTED, CommitStep.HANDED_OVER):
        job.kill_at(step, batch=last_commit(checkpoint) + 2)
    sending.stop()
    run_to_end(jobs.kafka(spark, broker.address, topic, str(table), str(checkpoint), most=1_000_000))

    newest: dict[int, tuple[int, str | None]] = {}
    for _, key, ms, value in sending.rows:
        # Of one time the later arrival.
        if key not in newest or ms >= newest[key][0]:
            newest[key] = (ms, value)
    assert read_by_key(table, "k", "ms", "v") == {key: row for key, row in newest.items() if row[1] is not None}
    commits = [summary for _, summary in read_summaries(str(table))]
    ids = [summary.batch_id for summary in commits]
    assert ids == sorted(set(ids)), "a batch was committed twice, or out of order"
    assert sum(summary.updates for summary in commits) == len(sending.rows)
    # What the sources have counted by the end is what the table has taken in.
    assert commits[-1].sources is not None
    assert commits[-1].sources.received == len(sending.rows)
    largest = [
        max(ms for part, _, ms, value in sending.rows if part == number and value is not None) for number in (0, 1)
    ]
    assert {feed: bound for feed, bound in commits[-1].low_watermarks.items() if not feed.endswith("/2")} == {
        f"{topic}/{number}": largest[number] - 5000 for number in (0, 1)
    }
    bounds = [summary.low_watermarks.get(f"{topic}/0") for summary in commits]
    promised = [bound for bound in bounds if isinstance(bound, int)]
    assert promised == sorted(promised), "a promise was taken back"
