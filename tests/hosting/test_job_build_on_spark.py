"""The streaming query of the host over restarts; what its shards are sent is in test_running_on_spark.py."""

import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import run_to_end

import upstream as us
from upstream.conf.errors import CheckpointError
from upstream.core.rows.buckets import integers_with_hash
from upstream.hosting.job import build_host
from upstream.operators.runtime.pack import PACKED
from upstream.operators.runtime.shard_processor import ShardProcessor

SLOTS = integers_with_hash(range(2))


def stages():
    """Made here, so that workers get them by value: they cannot import tests."""

    class Stage(ShardProcessor):
        def __init__(self, state):
            self.state = state

        def batch(self, shard, store, rows):
            return PACKED.empty_table()

    return Stage("upstream_a"), Stage("upstream_b")


def test_a_stream_keeps_its_operators_for_the_life_of_the_checkpoint(spark, tmp_path):
    place = str(tmp_path / "checkpoint")

    def host(*queued):
        streams = {}
        for name in ("two", "one"):
            stream = us.UpdateStream(csv_feed(spark, tmp_path / name), key="key", event_time="ms")
            streams[name] = (stream.queue(budget=None, shards=2) if name in queued else stream).plan
        return build_host(streams, place, SLOTS, lambda _: lambda _batches: iter(()), *stages())

    for name in ("one", "two"):
        write_csv(tmp_path / name / "1.csv", "key,ms,value", [("a", 1, 1)])
    for _ in range(2):
        run_to_end(host("two").writeStream.format("noop").option("checkpointLocation", place))
    with pytest.raises(CheckpointError, match="queue"):
        host()
