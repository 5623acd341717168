import json
from datetime import timedelta
from unittest.mock import patch

import pytest
from kit.continuous import BUSES, CATALOG, EPOCH, TRADE
from kit.hosting import Versions, frame, gathered, result_table, scanned, windows_first
from kit.local_host import packed_rows, rows_for_first

from upstream.conf.errors import CheckpointError
from upstream.core.feedback.reports import RowSample, StageReport, read_reports, sample_folder
from upstream.core.rows.frames import from_frame
from upstream.hosting import host_plan, stages
from upstream.hosting.host_plan import HostPlans
from upstream.hosting.messages import Command, control_of
from upstream.hosting.reports import part_costs, part_reports, query_costs
from upstream.hosting.scan import ScanStep
from upstream.hosting.stages import FirstStage, SecondShard
from upstream.language import bind
from upstream.operators.relations.plan.common_parts import part_key
from upstream.operators.relations.plan.nodes import WindowOver, walk
from upstream.operators.relations.zsets import BEGINNING, TIME, WEIGHT
from upstream.operators.state.store import DictStore
from upstream.storage.folder import folder_at

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
        6: {"q": (1, COUNT), "c": (6, COUNT)},
    }
)


@pytest.fixture(autouse=True)
def in_one_slot(monkeypatch):
    """What is placed where does not matter here."""
    monkeypatch.setattr(host_plan, "placed", gathered)


class ShardAlone:
    """One shard that has all rows."""

    def __init__(self, slots=(0,)):
        self.store = DictStore()
        self.plans = HostPlans(VERSIONS, slots)
        self.batches = 0

    def run(self, version, tables, more=()):
        command = Command(self.batches, version)
        self.batches += 1
        rows = [(0, None, control) for control in (control_of("tick"), *more)]
        for stream, table in tables.items():
            step = ScanStep(lambda: command, self.plans, stream.name)
            rows += packed_rows(step(iter(table.to_batches())))
        left = FirstStage(command, self.plans).batch(0, self.store, rows)
        return [{**json.loads(row["control"]), "frame": row["frame"], "slot": row["slot"]} for row in left.to_pylist()]


def trades(minutes, bound=None, n=1, arrival=100):
    rows = frame(TRADE, [("a", 1.0, n, EPOCH + timedelta(minutes=minute)) for minute in minutes])
    bounds = {} if bound is None else {"f": START_US + bound * MINUTE_US}
    return scanned(TRADE, rows, range(arrival, arrival + len(minutes)), bounds)


def kinds(found):
    return [each["kind"] for each in found]


def test_rows_wait_for_the_first_bound_and_results_say_when_the_oldest_came():
    shard = ShardAlone()
    assert kinds(shard.run(1, {TRADE: trades([1, 2])})) == ["heard"]
    found = shard.run(1, {TRADE: trades([3], bound=5, arrival=200)})
    assert kinds(found) == ["begun", "rows", "heard"]
    assert found[0]["complete_from"] == BEGINNING
    table = result_table(found[1]["frame"])
    assert table.column("n").to_pylist() == [3]
    system = table.column("_upstream").to_pylist()[0]
    assert system["first_arrival"].timestamp() * 1e6 == 100
    assert system["arrival"].timestamp() * 1e6 == 200
    (domain,) = found[2]["domains"].values()
    assert domain == [START_US + 5 * MINUTE_US, 100, None]


def test_a_stream_without_bounds_does_not_delay_other_queries():
    shard = ShardAlone()
    buses = scanned(BUSES, frame(BUSES, [("x", "r", 1.0, EPOCH)]), [5])
    found = shard.run(2, {TRADE: trades([1]), BUSES: buses})
    assert [(each["kind"], each["query"]) for each in found[:-1]] == [("begun", 3), ("rows", 3)]


def test_rows_that_came_before_an_evaluation_could_wait_for_it_are_missed():
    shard = ShardAlone()
    shard.run(4, {TRADE: trades([1])})
    shard.run(1, {TRADE: trades([2])})
    begun = shard.run(1, {TRADE: trades([3], bound=5)})[0]
    assert (begun["kind"], begun.get("complete_from")) == ("begun", None)
    for later, complete_from in ((5, None), (6, BEGINNING)):  # the first reads a column that waiting rows lack
        other = ShardAlone()
        other.run(1, {TRADE: trades([2])})
        other.run(later, {TRADE: trades([2])})
        found = other.run(later, {TRADE: trades([3], bound=5)})
        assert [each.get("complete_from") for each in found if each["kind"] == "begun"] == [BEGINNING, complete_from]


def test_what_waits_is_forgotten_with_the_query():
    shard = ShardAlone()
    shard.run(1, {TRADE: trades([1])})
    assert any("waiting" in kind for kind, _ in shard.store.values)
    shard.run(4, {})
    assert {kind for kind, _ in shard.store.values} == {"head"}


def test_late_rows_are_counted():
    shard = ShardAlone()
    shard.run(1, {TRADE: trades([1], bound=5)})
    found = shard.run(1, {TRADE: trades([4, 5], bound=7)})
    (late,) = [each for each in found if each["kind"] == "late"]
    assert (late["name"], late["count"], late["queries"]) == ("trade", 1, [1])


def test_queries_whose_rows_cannot_be_divided_fail():
    shard = ShardAlone()
    (routing,) = shard.plans(1).routes["trade"].values()
    found = shard.run(1, {}, [control_of("unroutable", routing=routing.name, reason="1 / 0")])
    assert [(each["kind"], each.get("reason")) for each in found] == [("failed", "1 / 0"), ("heard", None)]


def test_changes_for_the_second_stage_go_where_they_are_together():
    with patch.object(host_plan, "placed", windows_first):
        shard = ShardAlone((70, 80, 90))
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


@pytest.mark.parametrize(("placed", "slots", "told"), [(gathered, (3, 4), [3]), (windows_first, (5, 6), [5, 6])])
def test_shards_of_the_second_stage_that_only_pass_results_hear_of_each_version_once(placed, slots, told):
    with patch.object(host_plan, "placed", placed):
        shard = ShardAlone(slots)
        found = [shard.run(version, {TRADE: trades([1], bound=5)}) for version in (1, 1, 2, 2)]
    heard = [[each["slot"] for each in one if each["kind"] == "heard"] for one in found]
    assert heard == [[*slots], told] * 2


MINUTE_US = 60_000_000
START_US = int(EPOCH.timestamp() * 1_000_000)


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
    ("key", "value", "message"), [("plan", {"shards": "3"}, "shards '3', now '2'"), ("layout", 0, "layout 0, now 2")]
)
def test_the_state_of_other_shards_or_of_another_version_is_refused(key, value, message):
    store = DictStore()
    shard(store).run([])
    head = json.loads(store.get("head", 0) or b"{}")
    store.put("head", 0, json.dumps({**head, key: value}).encode())
    with pytest.raises(CheckpointError, match=message):
        shard(store)


def in_stage(folder, store, tables, command):
    """Run a batch of a shard that reports below a folder."""
    plans = HostPlans(VERSIONS, (0,))
    rows = rows_for_first(command, plans, {stream.name: [table] for stream, table in tables.items()})
    return FirstStage(command, plans, None, str(folder)).batch(0, store, rows)


def test_a_shard_reports_what_it_holds_when_that_changes(tmp_path):
    place, store = tmp_path / "upstream-stages" / "0", DictStore()

    def batch(minutes, bound):
        rows = frame(TRADE, [("a", 1.0, 1, EPOCH + timedelta(minutes=minute)) for minute in minutes])
        bounds = {} if bound is None else {"f": START_US + bound * MINUTE_US}
        in_stage(tmp_path, store, {TRADE: scanned(TRADE, rows, [70] * rows.height, bounds)}, Command(0, 1))
        return read_reports(str(place), StageReport)

    assert batch([9, 5], None) == [StageReport(0, START_US + 5 * MINUTE_US + 1, 70)]
    assert batch([3], None) == [StageReport(0, START_US + 3 * MINUTE_US + 1, 70)]
    assert batch([], 3) == [StageReport(0, START_US + 3 * MINUTE_US + 1, 70)]
    assert batch([], 4) == [StageReport(0, START_US + 5 * MINUTE_US + 1, 70)]
    (place / "shard-0.json").unlink()
    assert batch([], 5) == [], "nothing has changed"
    assert batch([], 10) == [StageReport(0, START_US + 13 * MINUTE_US + 1, 70)]
    assert batch([], 20) == [StageReport(0)]


WINDOW = next(part_key(each) for each in walk(bind(COUNT, CATALOG).plan) if isinstance(each, WindowOver))


def test_a_shard_reports_the_cost_of_its_parts_and_their_state(tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "_COSTS_TO_WORK", 0)
    store, buses = DictStore(), scanned(BUSES, frame(BUSES, [("x", "r", 1.0, EPOCH)]), [5])
    in_stage(tmp_path, store, {TRADE: trades([1, 2], bound=5), BUSES: buses}, Command(3, 2))
    reports = part_reports(folder_at(str(tmp_path)))
    ((first,), second) = reports
    assert (first.batch, first.spent_s > 0, second) == (3, True, [])
    window = part_costs(reports)[WINDOW]
    assert (window.queries, window.rows, window.bytes > 0, window.spent_s > 0) == ([1, 2], 2, True, True)
    in_stage(tmp_path, store, {TRADE: trades([6], bound=9)}, Command(4, 2))
    reports = part_reports(folder_at(str(tmp_path)))
    assert sorted(batch for batch, _ in reports[0][0].evaluations.values()) == [3, 4], "no bus came"
    costs = query_costs(reports)
    assert costs.keys() == {1, 2, 3}
    in_stage(tmp_path, store, {TRADE: trades([], bound=10)}, Command(5, 1))
    assert query_costs(part_reports(folder_at(str(tmp_path)))).keys() == {1}, "the others are gone"


def test_a_part_gives_the_rows_of_the_first_batch_that_has_some_after_a_request(tmp_path):
    store, asked = DictStore(), ((WINDOW, 2),)

    def sampled():
        return read_reports(sample_folder(folder_at(str(tmp_path)), f"part/{WINDOW}"), RowSample)

    in_stage(tmp_path, store, {TRADE: trades([], bound=1)}, Command(0, 1, samples=asked))
    assert sampled() == []
    before, many = dict(store.values), [2 + number / 8 for number in range(28)]
    in_stage(tmp_path, store, {TRADE: trades(many, bound=6)}, Command(1, 1, samples=asked))
    (found,) = sampled()
    assert (found.version, found.batch, len(found.rows)) == (2, 1, 20)
    assert found.columns == ["sym", "t", "time of the change", "weight"], "what the query reads"
    assert {row[-1] for row in found.rows} == {"1"}
    store.values = before
    in_stage(tmp_path, store, {TRADE: trades(many, bound=6)}, Command(1, 1, samples=asked))
    assert sampled() == [found], "a repeated batch has the same"
    in_stage(tmp_path, store, {TRADE: trades([7], bound=8)}, Command(2, 1, samples=asked))
    assert sampled() == [found], "one batch, not each"
    in_stage(tmp_path, store, {TRADE: trades([9], bound=10)}, Command(3, 1, samples=((WINDOW, 5),)))
    assert [each.version for each in sampled()] == [5]
