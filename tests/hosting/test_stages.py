import json
from datetime import timedelta

import pytest
from kit.continuous import EPOCH, TRADE
from kit.hosting import Versions, frame, scanned
from pyspark.sql import Row

from upstream.conf.errors import CheckpointError
from upstream.core.feedback.reports import StageReport, read_reports
from upstream.hosting.host_plan import HostPlans
from upstream.hosting.messages import TICK, Command
from upstream.hosting.scan import ScanStep
from upstream.hosting.stages import FirstStage, SecondShard
from upstream.operators.state.store import DictStore

MINUTE_US = 60_000_000
START_US = int(EPOCH.timestamp() * 1_000_000)

VERSIONS = Versions({1: {"q": (1, "SELECT sym, COUNT(*) AS n FROM trade [RANGE 10 MINUTES] GROUP BY sym")}})


def plan(shards):
    return HostPlans(VERSIONS, range(shards))(1)


def shard(store):
    return SecondShard(0, plan(2), store, Command(0, 1))


def test_what_a_stage_saves_is_there_in_the_next_batch():
    store = DictStore()
    before = shard(store)
    before.known.follow(plan(2))
    before.known.fail([1], "a reason")
    before.run([])
    again = shard(store)
    assert again.known.failed == {1: "a reason"}


@pytest.mark.parametrize(
    ("key", "value", "message"), [("plan", {"shards": "3"}, "shards '3', now '2'"), ("layout", 0, "layout 0, now 1")]
)
def test_the_state_of_other_shards_or_of_another_version_is_refused(key, value, message):
    store = DictStore()
    shard(store).run([])
    head = json.loads(store.get("head", 0) or b"{}")
    store.put("head", 0, json.dumps({**head, key: value}).encode())
    with pytest.raises(CheckpointError, match=message):
        shard(store)


def test_a_shard_reports_what_it_holds_when_that_changes(tmp_path):
    place, store = str(tmp_path / "stage"), DictStore()
    stage = FirstStage(lambda: Command(0, 1), HostPlans(VERSIONS, (0,)), None, place)

    def batch(minutes, bound):
        rows = frame(TRADE, [("a", 1.0, 1, EPOCH + timedelta(minutes=minute)) for minute in minutes])
        bounds = {} if bound is None else {"f": START_US + bound * MINUTE_US}
        table = scanned(TRADE, rows, [70] * rows.height, bounds)
        scan = ScanStep(lambda: Command(0, 1), HostPlans(VERSIONS, (0,)), "trade")
        sent = [Row(**row) for part in scan(iter(table.to_batches())) for row in part.to_pylist()]
        stage.batch(0, store, iter([Row(slot=0, frame=None, control=TICK), *sent]))
        return read_reports(place, StageReport)

    assert batch([9, 5], None) == [StageReport(0, START_US + 5 * MINUTE_US + 1, 70)]
    assert batch([3], None) == [StageReport(0, START_US + 3 * MINUTE_US + 1, 70)]
    assert batch([], 3) == [StageReport(0, START_US + 3 * MINUTE_US + 1, 70)]
    assert batch([], 4) == [StageReport(0, START_US + 5 * MINUTE_US + 1, 70)]
    (tmp_path / "stage" / "shard-0.json").unlink()
    assert batch([], 5) == [], "nothing has changed"
    assert batch([], 10) == [StageReport(0, START_US + 13 * MINUTE_US + 1, 70)]
    assert batch([], 20) == [StageReport(0)]
