import json
from datetime import timedelta
from unittest.mock import patch

import pytest
from kit.continuous import BUSES, EPOCH, TRADE
from kit.hosting import Versions, frame, gathered, result_table, scanned, windows_first
from pyspark.sql import Row

from upstream.core.rows.frames import from_frame
from upstream.hosting import host_plan
from upstream.hosting.host_plan import HostPlans
from upstream.hosting.messages import Command, control_of
from upstream.hosting.scan import ScanStep
from upstream.hosting.stages import FirstStage
from upstream.operators.relations.zsets import BEGINNING, TIME, WEIGHT
from upstream.operators.state.store import DictStore

MINUTE_US = 60_000_000
START_US = int(EPOCH.timestamp() * 1_000_000)
COUNT = "SELECT sym, COUNT(*) AS n FROM trade [RANGE 10 MINUTES] GROUP BY sym"
NEWEST = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"
RATIO = "SELECT sym, SUM(1 / n) AS r FROM trade [RANGE 10 MINUTES] GROUP BY sym"
VERSIONS = Versions(
    {
        1: {"q": (1, COUNT)},
        2: {"q": (1, COUNT), "r": (2, RATIO), "n": (3, NEWEST)},
        3: {"n": (3, NEWEST)},
        4: {},
        5: {"q": (1, COUNT), "r": (2, RATIO)},
    }
)


@pytest.fixture(autouse=True)
def in_one_slot(monkeypatch):
    """What is placed where does not matter here."""
    monkeypatch.setattr(host_plan, "placed", gathered)


class Shard:
    """One shard that has all rows."""

    def __init__(self, slots=(0,)):
        self.store = DictStore()
        self.plans = HostPlans(VERSIONS, slots)
        self.batches = 0

    def run(self, version, tables, more=()):
        command = Command(self.batches, version)
        self.batches += 1
        rows = [Row(slot=0, frame=None, control=control) for control in (control_of("tick"), *more)]
        for stream, table in tables.items():
            step = ScanStep(lambda: command, self.plans, stream.name)
            rows += [Row(**row) for batch in step(iter(table.to_batches())) for row in batch.to_pylist()]
        left = FirstStage(lambda: command, self.plans).batch(0, self.store, iter(rows))
        return [{**json.loads(row["control"]), "frame": row["frame"], "slot": row["slot"]} for row in left.to_pylist()]


def trades(minutes, bound=None, n=1, arrival=100):
    rows = frame(TRADE, [("a", 1.0, n, EPOCH + timedelta(minutes=minute)) for minute in minutes])
    bounds = {} if bound is None else {"f": START_US + bound * MINUTE_US}
    return scanned(TRADE, rows, range(arrival, arrival + len(minutes)), bounds)


def kinds(found):
    return [each["kind"] for each in found]


def test_rows_wait_for_the_first_bound_and_results_say_when_the_oldest_came():
    shard = Shard()
    assert kinds(shard.run(1, {TRADE: trades([1, 2])})) == ["heard"]
    found = shard.run(1, {TRADE: trades([3], bound=5, arrival=200)})
    assert kinds(found) == ["begun", "rows", "heard"]
    assert found[0]["whole_from"] == BEGINNING
    table = result_table(found[1]["frame"])
    assert table.column("n").to_pylist() == [3]
    system = table.column("_upstream").to_pylist()[0]
    assert system["first_arrival"].timestamp() * 1e6 == 100
    assert system["arrival"].timestamp() * 1e6 == 200
    (domain,) = found[2]["domains"].values()
    assert domain == [START_US + 5 * MINUTE_US, 100, None]


def test_a_stream_without_bounds_does_not_delay_other_queries():
    shard = Shard()
    buses = scanned(BUSES, frame(BUSES, [("x", "r", 1.0, EPOCH)]), [5])
    found = shard.run(2, {TRADE: trades([1]), BUSES: buses})
    assert [(each["kind"], each["query"]) for each in found[:-1]] == [("begun", 3), ("rows", 3)]


def test_rows_that_came_before_an_evaluation_could_wait_for_it_are_missed():
    shard = Shard()
    shard.run(4, {TRADE: trades([1])})
    shard.run(1, {TRADE: trades([2])})
    begun = shard.run(1, {TRADE: trades([3], bound=5)})[0]
    assert (begun["kind"], begun.get("whole_from")) == ("begun", None)
    other = Shard()
    other.run(1, {TRADE: trades([2])})
    other.run(5, {TRADE: trades([2])})
    found = other.run(5, {TRADE: trades([3], bound=5)})
    assert [each["whole_from"] for each in found if each["kind"] == "begun"] == [BEGINNING, BEGINNING]


def test_what_waits_is_forgotten_with_the_query():
    shard = Shard()
    shard.run(1, {TRADE: trades([1])})
    assert any("waiting" in kind for kind, _ in shard.store.values)
    shard.run(4, {})
    assert {kind for kind, _ in shard.store.values} == {"head"}


def test_late_rows_are_counted():
    shard = Shard()
    shard.run(1, {TRADE: trades([1], bound=5)})
    found = shard.run(1, {TRADE: trades([4, 5], bound=7)})
    (late,) = [each for each in found if each["kind"] == "late"]
    assert (late["name"], late["count"], late["queries"]) == ("trade", 1, [1])


def test_queries_whose_rows_cannot_be_divided_fail():
    shard = Shard()
    (routing,) = shard.plans(1).routes["trade"].values()
    found = shard.run(1, {}, [control_of("unroutable", routing=routing.name, reason="1 / 0")])
    assert [(each["kind"], each.get("reason")) for each in found] == [("failed", "1 / 0"), ("heard", None)]


def test_changes_for_the_second_stage_go_where_they_are_together():
    with patch.object(host_plan, "placed", windows_first):
        shard = Shard((70, 80, 90))
        found = shard.run(1, {TRADE: trades([1, 2], bound=5)})
    (sent,) = [each for each in found if each["kind"] == "changes"]
    (query,) = shard.plans(1).queries.values()
    assert sent["slot"] == shard.plans.slots[query.shard or 0]
    assert sent["job"] == f"{query.fragments[0].name}@1"
    changes = from_frame(sent["frame"])
    assert changes.num_rows > 0
    assert {TIME, WEIGHT} < set(changes.column_names)
    heard = [each for each in found if each["kind"] == "heard"]
    assert [each["whole"] for each in heard] == [{sent["job"]: BEGINNING}] * 3
