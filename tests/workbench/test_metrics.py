"""Metrics and health of tables, from what is on storage."""

import os

import pytest
from starlette.testclient import TestClient

from upstream.conf.process_identity import Process
from upstream.conf.units import now_us
from upstream.core.feedback.ages import Ages
from upstream.workbench import metrics
from upstream.workbench.metrics import MOST_PARTITIONS, OTHER, MetricsCollector, partition_lags
from upstream.workbench.server import create_app
from upstream.workbench.watch import Watch

from .observed_table import ObservedTable

S = 1_000_000
NOW = 1_700_000_000 * S


def collected(table, since_us=0):
    watch = Watch([str(table.sink.path)], {})
    watch.refresh()
    return watch, MetricsCollector(watch, since_us)


def figures(collector, at_us):
    """The samples of all families: by the name, and the labels but the table."""
    found = {}
    for family in collector.families(at_us):
        for labels, value in family.samples:
            others = tuple(value for name, value in labels.items() if name != "table")
            assert found.setdefault((family.name.removeprefix("upstream_"), *others), value) is value, "no series twice"
    return found


def test_metrics_of_a_query_with_a_queue(tmp_path):
    table = ObservedTable(tmp_path, target="p99 < 1 s")
    table.commit(NOW - 20 * S, ages_s=(0.5, 0.5), pending=0)
    table.report_windows(1000, 30)
    table.commit(
        NOW - 10 * S, {"vehicles/1": 7.0, "vehicles/2": 3.0, "vehicles/3": None}, ages_s=(0.25, 4.0), pending=9,
        oldest_s=6.0, late=3, suspects=2,
    )  # fmt: skip
    table.write_dead_letters(4)
    table.hold_lease(now_us(), Process.of(os.getpid()))
    _, collector = collected(table)
    found = figures(collector, NOW)
    expected = {
        ("up",): 1,
        ("last_commit_timestamp_seconds",): (NOW - 10 * S) / S,
        ("commits",): 2,
        ("updates",): 4,
        ("applied",): 4,
        ("superseded",): 0,
        ("target_missed",): 1,
        ("target_met",): 0,
        ("keys",): 4,
        ("pending_keys",): 9,
        ("oldest_pending_seconds",): 16.0,  # it has waited for ten seconds more
        ("received",): 20,
        ("late",): 3,
        ("suspects",): 2,
        ("dead_letters",): 4,
        ("last_staleness_seconds", "max"): 4.0,
        ("low_watermark_lag_seconds", "vehicles/1"): 17.0,
        ("low_watermark_lag_seconds", "vehicles/2"): 13.0,
        ("low_watermark_behind_seconds", "vehicles/1"): 4.0,
        ("complete_up_to_timestamp_seconds",): (NOW - 17 * S) / S,
        ("input_partitions", "live"): 2,
        ("input_partitions", "ended"): 1,
        ("input_partitions", "without_low_watermark"): 0,
        ("state_written_bytes", "windows 0"): 2000,
        ("state_rows", "windows 0"): 60,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["needed_rows_per_second",] > 0
    assert {name[1] for name in found if name[0] == "batch_seconds"} == {"plan", "run", "finish"}
    assert isinstance(found["staleness_seconds",], Ages)
    assert (found["staleness_seconds",].count, found["staleness_seconds",].max_s) == (4, 4.0)


def test_a_batch_that_hangs_makes_its_table_stale_unhealthy_and_late(tmp_path):
    """Each figure of the last commit is good, and stays so for ever."""
    now = now_us()
    table = ObservedTable(tmp_path)
    table.commit(now - 150 * S)
    table.hold_lease(now, Process.of(os.getpid()))
    watch, collector = collected(table)
    before = figures(collector, now - 149 * S)
    assert (before["target_met",], before["staleness_now_seconds", "p99"]) == (1, 0.5)
    assert before["uncommitted_batch_seconds",] == 0
    table.plan(now - 120 * S, now - 122 * S)
    found = figures(collector, now)
    assert (found["target_met",], found["staleness_now_seconds", "p99"]) == (0, 122.0)
    assert (found["uncommitted_batch_seconds",], found["last_staleness_seconds", "p99"]) == (120.0, 0.5)
    with TestClient(create_app(watch, token="t"), base_url="http://localhost") as client:
        answer = client.get("/healthz", headers={"Authorization": "Bearer t"})
    assert answer.status_code == 503
    [problem] = answer.json()["problems"]["table"]
    assert problem.startswith("the target p99 < 10.0 s is missed: batch 1 has no commit after 2 min 0")


def test_a_batch_that_hangs_is_a_problem_without_a_target_too(tmp_path):
    now = now_us()
    table = ObservedTable(tmp_path, target="")
    table.commit(now - 900 * S)
    table.hold_lease(now, Process.of(os.getpid()))
    table.plan(now - 590 * S, now - 591 * S)
    [found] = collected(table)[1].tables(now)
    assert found.problems() == []
    [later] = collected(table)[1].tables(now + 20 * S)
    assert later.problems() == ["batch 1 has no commit after 10 min 10 s, and its first row has waited for 10 min 11 s"]


def test_a_lease_counts_while_it_holds(tmp_path):
    table, now = ObservedTable(tmp_path), now_us()
    table.commit(now)
    assert figures(collected(table)[1], now)["writer_up",] == 0
    table.hold_lease(now, Process.of(os.getpid()))
    assert figures(collected(table)[1], now)["writer_up",] == 1
    assert figures(collected(table)[1], now + 100 * S)["writer_up",] == 0


def test_sums_begin_with_the_process_and_count_each_commit_once(tmp_path, monkeypatch):
    monkeypatch.setattr("upstream.workbench.watch._COMMITS", 5)
    table = ObservedTable(tmp_path)
    table.commit(NOW - S)
    watch, collector = collected(table, since_us=NOW)
    assert figures(collector, NOW)["commits",] == 0
    for at in range(1, 4):
        table.commit(NOW + at * S)
        watch.table().refresh()
    assert figures(collector, NOW + 4 * S)["commits",] == 3
    assert figures(collector, NOW + 4 * S)["staleness_seconds",].count == 3
    # More than the watch holds come from the log.
    for at in range(4, 24):
        table.commit(NOW + at * S)
    watch.table().refresh()
    assert len(watch.table().commits) == 5
    assert figures(collector, NOW + 300 * S)["commits",] == 23


def test_without_a_beginning_there_are_no_sums(tmp_path):
    table = ObservedTable(tmp_path)
    table.commit(NOW)
    found = figures(collected(table, since_us=None)[1], NOW)
    assert {"commits", "staleness_seconds", "target_missed"}.isdisjoint(name for name, *_ in found)
    assert found["received",] == 10


def test_a_table_that_is_gone_is_down(tmp_path):
    table = ObservedTable(tmp_path)
    table.commit(NOW)
    _, collector = collected(table)
    table.sink.path.rename(tmp_path / "elsewhere")
    assert figures(collector, NOW)["up",] == 0
    [found] = collector.tables(NOW)
    assert found.problems() == ["the table cannot be read: its log lacks the last commit"]


def lags(table, at_us):
    return partition_lags([each for _, each in collected(table)[0].table().commits], at_us)


def test_trend_of_a_lag_and_time_to_catch_up(tmp_path):
    """One partition gains two seconds on the clock with each, the other loses half of one."""
    table = ObservedTable(tmp_path)
    for at in range(6):
        table.commit(NOW + at * S, {"fast": 100.0 - 2 * at, "slow": 5.0 + at / 2})
    one, other = lags(table, NOW + 5 * S)
    assert (one.partition, one.lag, one.slope, one.catch_up) == pytest.approx(("fast", 90.0, -2.0, 45.0))
    assert (other.partition, other.lag, other.slope, other.catch_up) == ("slow", 7.5, pytest.approx(0.5), None)
    assert (one.behind, other.behind) == (82.5, 0.0)
    assert [each.slope for each in lags(table, NOW + 400 * S)] == [None, None], "the trend is of the last minutes"


def test_many_partitions_have_one_label_together(tmp_path):
    table = ObservedTable(tmp_path)
    table.commit(NOW, {OTHER: 900.0} | {f"feed-{number}": 10.0 + number for number in range(MOST_PARTITIONS + 50)})
    found = lags(table, NOW)
    assert len(found) == MOST_PARTITIONS + 1
    assert found[0].partition == f"feed-{MOST_PARTITIONS + 49}"
    assert found[-1] == (OTHER, 900.0, 890.0, None, None)


@pytest.mark.parametrize(
    ("query", "ages_s", "ago_s", "status", "problem"),
    [
        ("", (0.1,), 1, 200, None),
        ("", (30.0,), 1, 503, "the target p99 < 10.0 s is missed"),
        ("", (0.1,), 700, 503, "the last commit was 11 min 40 s ago, more than 10 min 00 s, and no query writes"),
        ("?max_age=1h", (0.1,), 700, 200, None),
        ("?max_age=5s", (0.1,), 30, 503, "the last commit was 30"),
        ("?table=table&max_age=1h", (0.1,), 30, 200, None),
        ("?max_age=soon", (0.1,), 1, 400, None),
        ("?table=nowhere", (0.1,), 1, 404, None),
    ],
)
def test_health(tmp_path, query, ages_s, ago_s, status, problem):
    table = ObservedTable(tmp_path)
    table.commit(now_us() - ago_s * S, ages_s=ages_s)
    watch = Watch([str(table.sink.path)], {})
    watch.refresh()
    with TestClient(create_app(watch, token="t"), base_url="http://localhost") as client:
        answer = client.get(f"/healthz{query}", headers={"Authorization": "Bearer t"})
    assert answer.status_code == status, answer.text
    if problem is not None:
        [found] = answer.json()["problems"]["table"]
        assert found.startswith(problem)


def test_a_waiting_query_and_an_ended_one_are_healthy_and_nothing_at_all_is_not(tmp_path):
    now = now_us()
    one, other = ObservedTable(tmp_path / "one"), ObservedTable(tmp_path / "other")
    one.commit(now - 700 * S)
    one.hold_lease(now, Process.of(os.getpid()))
    other.commit(now - 700 * S, {"vehicles/1": None})
    for table in (one, other):
        [found] = collected(table)[1].tables(now)
        assert found.problems() == []
        assert found.problems(60 * S) != []
    with TestClient(
        create_app(Watch([str(tmp_path / "one" / "query-1")], {}), token="t"), base_url="http://localhost"
    ) as client:
        assert client.get("/healthz", headers={"Authorization": "Bearer t"}).status_code == 503
        assert client.get("/healthz").status_code == 401


def test_with_too_many_tables_for_a_scrape_each_is_read_in_its_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "_READING_S", 0.0)
    tables = [ObservedTable(tmp_path / name) for name in ("a", "b", "c")]
    for at_us in range(NOW, NOW + 3 * S, S):
        for each in tables:
            each.commit(at_us)
    watch = Watch([str(tmp_path)], {})
    watch.refresh()
    collector = MetricsCollector(watch, 0)
    read = []
    for turn in range(1, 4):
        found = {each.name for each in collector.tables(NOW + turn * 60 * S) if each.nearby.writer is not None}
        read.append(len(found))
    assert read == [1, 2, 3]
