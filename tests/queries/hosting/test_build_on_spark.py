"""The streaming query of the host: which shards are called in which batches, and with what."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from kit.feeds import csv_feed, write_csv

import upstream as us
from upstream.conf.errors import CheckpointError
from upstream.core.rows.buckets import integers_with_hash
from upstream.operators.runtime.pack import PACKED
from upstream.operators.runtime.shard_processor import ShardProcessor
from upstream.queries.hosting.build import build_host
from upstream.queries.hosting.commands import TICK, CommandOfTask

pytestmark = pytest.mark.spark

SLOTS = integers_with_hash(range(3))


def classes():
    """Made here, so that workers get them by value: they cannot import tests."""

    def sent(slots, control):
        nothing = pa.nulls(len(slots), pa.binary())
        return pa.table([pa.array(slots, pa.int32()), nothing, pa.array([control] * len(slots))], schema=PACKED)

    class Scan:
        """One message to each shard for each stream that has rows."""

        def __init__(self, stream):
            self.stream = stream

        def __call__(self, batches):
            rows = sum(batch.num_rows for batch in batches)
            if rows:
                yield from sent(SLOTS, self.stream).to_batches()

    class Stage(ShardProcessor):
        """Counts its batches, and passes on what it was sent."""

        def __init__(self, state, commands):
            self.state = state
            self.commands = commands

        def batch(self, shard, store, rows):
            batches = int(store.get("batches", 0) or b"0") + 1
            store.put("batches", 0, str(batches).encode())
            heard = sorted({row.control for row in rows})  # a task for rows, another for punctuation
            command = self.commands()
            control = json.dumps([self.state, shard, batches, command.batch, command.version, heard])
            return sent([SLOTS[shard]], control)

    return Scan, Stage


def test_each_shard_hears_of_streams_and_commands_over_restarts(spark, tmp_path):
    place = str(tmp_path / "checkpoint")
    commands = CommandOfTask(place)
    scan, stage = classes()

    def run(queued="two"):
        streams = {}
        for name in ("two", "one"):
            rows = csv_feed(spark, tmp_path / name, maxFilesPerTrigger=1)
            stream = us.UpdateStream(rows, key="key", event_time="ms")
            streams[name] = stream.queue(budget=None, shards=2) if name == queued else stream
        df = build_host(streams, place, SLOTS, scan, stage("upstream_a", commands), stage("upstream_b", commands))
        found = []

        def take(frame, number):
            found.append((number, sorted(json.loads(row.control) for row in frame.collect())))

        writer = df.writeStream.foreachBatch(take).option("checkpointLocation", place)
        writer.trigger(availableNow=True).start().awaitTermination()
        return [
            [(shard, batches, command, version, [json.loads(each) for each in heard])
             for _, shard, batches, command, version, heard in rows]
            for _, rows in found
        ]  # fmt: skip

    for name in ("one", "two"):
        write_csv(tmp_path / name / "1.csv", "key,ms,value", [("a", 1, 1)])
    first = run()[0]
    (_, batches, batch, version, heard) = first[0]
    assert (len(first), batches, batch, version) == (3, 1, 0, 0)
    assert [each[0] for each in heard] == ["upstream_a"]
    assert heard[0][-1] == ["one", "two", TICK]
    write_csv(tmp_path / "two" / "2.csv", "key,ms,value", [("b", 2, 2)])
    later = run()
    assert [row[2:4] for rows in later for row in rows if "two" in row[4][0][-1]][:1] == [(later[0][0][2], 0)]
    assert all(TICK not in row[4][0][-1] for rows in later for row in rows)
    (tmp_path / "checkpoint" / "queries" / "changes").mkdir(parents=True)
    (tmp_path / "checkpoint" / "queries" / "changes" / f"{1:020d}.json").write_text("{}")
    woken = run()[0]
    assert [(row[0], row[3], row[4][0][-1]) for row in woken] == [(shard, 1, [TICK]) for shard in range(3)]
    with pytest.raises(CheckpointError, match=r"queue .* is gone"):
        run(queued="none")
