"""What `upstream plan` foretells is what a query does, within a quarter."""

import itertools
import statistics
import time

import pyarrow as pa
import pytest

import upstream
from upstream.cli.plan import Question, predict

# By hand, on a quiet machine: what else the machine does makes batches uneven, and uneven batches make answers staler.
pytestmark = [pytest.mark.spark, pytest.mark.long]

FEED = {"seed": "5", "rowsPerSecond": "4000", "keys": "2000", "skew": "0.5", "arrivals": "poisson"}
BUDGET = 400
WARM_S, LOOK_S = 10, 30


def test_staleness_is_as_planned(outside, spark, tmp_path):
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"

    def slow(batch):  # waits, so that what a row costs does not depend on who else uses the machine
        time.sleep(0.002 * batch.num_rows)
        return pa.table({"score": pa.nulls(batch.num_rows, pa.float64())})

    feed = (
        spark.readStream.format("upstream")
        .schema(upstream.with_system_ddl("key BIGINT, time TIMESTAMP, value DOUBLE"))
        .options(connector="synthetic", key="key", time="time", coalesce="true", **FEED)
        .load()
    )
    stream = (
        upstream.UpdateStream(feed, key="key", event_time="time")
        .queue(checkpoint_location=checkpoint, policy="in-place", budget=BUDGET, shards=4)
        .map(slow, "score DOUBLE", batch_rows=100)
    )
    query = upstream.write_latest(stream, table, checkpointLocation=str(checkpoint)).start()
    began_s = None
    while began_s is None or time.time() - began_s < WARM_S + LOOK_S + 1:
        time.sleep(0.2)
        assert query.exception() is None
        if began_s is None and upstream.LatestTable(table).history():
            began_s = time.time()
    query.stop()

    # What a batch takes is measured, what comes of it is foretold.
    origin = outside.began_us(checkpoint)
    warm_s = began_s + WARM_S - origin / 1e6
    commits = [summary for _, summary in upstream.LatestTable(table).history() if summary.delivered]
    looked_at = [each for each in commits if warm_s <= (each.committed_at_us - origin) / 1e6 < warm_s + LOOK_S]
    assert all(each.delivered <= BUDGET for each in looked_at)
    times = [each.committed_at_us / 1e6 for each in looked_at]
    batch_s = statistics.mean(later - earlier for earlier, later in itertools.pairwise(times))
    question = Question(
        rate=float(FEED["rowsPerSecond"]),
        keys=int(FEED["keys"]),
        skew=float(FEED["skew"]),
        cost_us=batch_s / 2 / BUDGET * 1e6,
        fixed_us=round(batch_s / 2 * 1e6),
        budget=BUDGET,
        policies=("in-place",),
        seeds=1,
    )
    (foretold,) = predict(question).predictions
    seen = outside.seen(table, checkpoint, FEED, warm_s, warm_s + LOOK_S)
    assert foretold.mean == pytest.approx(seen.mean, rel=0.25)
