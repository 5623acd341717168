"""What the queue's options do in a running query: weights, access intervals by key, and a budget that is found."""

import itertools
import json
import time

import pyarrow as pa
import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from kit.tables import read_by_key
from kit.waiting import wait_for

import upstream
from upstream.conf.errors import SchemaError
from upstream.operators.queue.budget import BatchCost, auto_budget

pytestmark = pytest.mark.spark

HEAVY = 10
ROWS = 12_000


def write(folder, number, keys, value):
    rows = [(f"k{key:05}", 1_000_000 + number, value) for key in range(keys)]
    write_csv(folder / f"part-{number}.csv", "key,ms,value", rows)


def test_heavier_keys_are_served_first(spark, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    light = [(f"k{key:05}", 1_000_000, 2) for key in range(HEAVY, 100)]
    heavy = [(f"k{key:05}", 1_000_000, 1) for key in range(HEAVY)]
    write_csv(tmp_path / "feed" / "part-0.csv", "key,ms,value", light + heavy)
    stream = upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms").queue(
        checkpoint_location=checkpoint, policy="in-place", budget=HEAVY, shards=1, weight="IF(value = 1, 1000, 1)"
    )
    write_to_end(stream, tmp_path / "table", checkpoint)
    assert len(read_by_key(tmp_path / "table", "key", "value")) == 100
    # In the first batch all have just come, and no age is there to be weighed; in the second the light ones, though
    # first in the file, wait for the heavy ones.
    log = upstream.LatestTable(tmp_path / "table").history()
    first, second, *_ = (version for version, summary in log if summary.delivered)
    before, after = (set(keys_of(tmp_path / "table", version)) for version in (first, second))
    assert after - before == {f"k{key:05}" for key in range(HEAVY)}


def test_a_key_rests_as_long_as_its_expression_says(spark, tmp_path):
    write(tmp_path / "feed", 0, 40, 1)
    checkpoint = tmp_path / "checkpoint"

    def once():
        stream = upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms").queue(
            checkpoint_location=checkpoint,
            policy="in-place",
            budget=None,
            shards=4,
            access_interval="IF(key < 'k00010', 3600, NULL)",
        )
        write_to_end(stream, tmp_path / "table", checkpoint)

    once()
    assert set(read_by_key(tmp_path / "table", "key", "value").values()) == {1}
    write(tmp_path / "feed", 1, 40, 2)
    once()
    table = read_by_key(tmp_path / "table", "key", "value")
    assert {key for key, value in table.items() if value == 1} == {f"k{key:05}" for key in range(10)}


def test_the_budget_is_found_from_what_rows_cost(spark, tmp_path):
    write(tmp_path / "feed", 0, ROWS, 1)
    checkpoint = tmp_path / "checkpoint"

    def slow(batch):
        time.sleep(0.001 * batch.num_rows)
        return pa.table({"twice": pa.compute.multiply(batch.column("value"), 2)})

    stream = (
        upstream.UpdateStream(csv_feed(spark, tmp_path / "feed"), key="key", event_time="ms")
        .queue(checkpoint_location=checkpoint, policy="in-place", budget="auto", batch_duration="1 second", shards=4)
        .map(slow, "twice BIGINT", batch_rows=50)
    )
    query = upstream.write_latest(stream, str(tmp_path / "table"), checkpointLocation=str(checkpoint)).start()
    wait_for(lambda: len(keys_of(tmp_path / "table")) == ROWS, query.exception)
    query.stop()
    journaled = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    lines = [line for path in journaled for line in path.read_text().splitlines()]
    ticks = [json.loads(line) for line in lines if '"tick"' in line]
    # Each is what the costs that were known by then ask for, however busy the machine is that they were measured on.
    known = [(before["budget"], tick) for before, tick in itertools.pairwise(ticks) if tick["cost"]["batches"]]
    assert [tick["budget"] for _, tick in known] == [
        auto_budget(BatchCost(**tick["cost"]), last, pending=1, duration_s=1.0) for last, tick in known
    ]
    assert len({tick["budget"] for _, tick in known}) > 1


def keys_of(path, version=None):
    """The table's keys; none while there is no table."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(str(path), version=version).to_pyarrow_table(columns=["key"]).column("key").to_pylist()
    except TableNotFoundError:
        return []


def test_a_schema_without_the_system_column_names_the_cure(spark, tmp_path):
    write(tmp_path / "feed", 0, 2, 1)
    bare = (
        spark.readStream.format("upstream").schema("key STRING, ms BIGINT, value BIGINT").load(str(tmp_path / "feed"))
    )
    with pytest.raises(SchemaError, match="with_system_ddl"):
        upstream.UpdateStream(bare, key="key", event_time="ms")
    whole = spark.readStream.format("upstream").option("schema", "key STRING, ms BIGINT, value BIGINT")
    assert upstream.UpdateStream(whole.load(str(tmp_path / "feed")), key="key", event_time="ms").key == ("key",)
