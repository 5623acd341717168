"""Maintenance of many tables."""

import itertools
from pathlib import Path

import pytest
from deltalake import DeltaTable

from upstream.conf.units import now_us
from upstream.sink.commit.commit import maintain_some
from upstream.sink.latest_table import LatestTable
from upstream.sink.results.known_table import known_table
from upstream.sink.results.result_table import target_of
from upstream.sink.results.result_tables import QueryTable, versions_overdue
from upstream.sink.spec.maintenance_rules import MaintenanceRules


@pytest.fixture
def often(monkeypatch):
    """Every few versions, so that a test need not make hundreds."""
    monkeypatch.setattr(MaintenanceRules, "every", 5)
    return 5


def _checkpoints(location: str) -> list[int]:
    return sorted(int(path.name[:20]) for path in Path(location, "_delta_log").glob("*.checkpoint.parquet"))


def test_each_table_has_its_turn_once_in_a_hundred_versions():
    first: list[int] = []
    for number in range(1000):
        location, maintained, turns = f"/tables/{number}", -1, []
        for version in range(300):
            if versions_overdue(location, version, maintained) >= 0:
                maintained = version
                turns.append(version)
        assert len(turns) in (2, 3)
        assert {after - before for before, after in itertools.pairwise(turns)} == {100}
        first.append(turns[0])
    assert max(first.count(version) for version in range(1, 101)) < 30  # 10 on average
    assert min(first) >= 1


def test_what_was_missed_stays_due_and_grows():
    due = [versions_overdue("/tables/x", version, -1) for version in range(250)]
    begins = due.index(0)
    assert due[:begins] == [-1] * begins
    assert due[begins : begins + 100] == list(range(100))
    assert versions_overdue("/tables/x", begins + 60, begins + 7) == -1


def test_logs_get_checkpoints_and_feeds_are_put_together(hosted, often):
    a, feed = hosted.table("a"), hosted.table("feed", key=(), keep="all")
    off = hosted.table("off", options=(("maintenance", "off"),))
    for number in range(4 * often):
        hosted.batch(number, [a, feed, off], {"a": [(1, f"{number}")], "feed": [(number, "x")], "off": [(1, "x")]})
        if number % 7 == 3:
            hosted.restart()
    for table in (a, feed, off):
        assert len(_checkpoints(table.location)) >= 3
        assert LatestTable(table.location).check().healthy
    assert hosted.rows(a) == [(1, f"{4 * often - 1}")]
    assert hosted.rows(feed) == [(number, "x") for number in range(4 * often)]
    assert len(DeltaTable(feed.location).file_uris()) < 4 * often
    for table in (a, off):
        assert any(summary.maintained for _, summary in LatestTable(table.location).history()) == (table is a)


def test_the_budget_ends_it_and_the_most_overdue_comes_first(hosted, often):
    tables = [hosted.table(f"t{number}") for number in range(6)]
    for number in range(2 * often):
        for at, table in enumerate(tables):
            if number >= at:
                hosted.batch(number, [table], {table.name: [(number, "x")]})
    known = [QueryTable(table, "host") for table in tables]
    for table in tables:
        known_table(target_of(table)).maintained = 0
    overdue = {table.name: found for table in known if (found := table.overdue()) >= 0}
    done: list[str] = []
    while rest := [table for table in known if table.name not in done]:
        ticks = itertools.count()
        some = maintain_some(rest, now_us, seconds=lambda ticks=ticks: float(next(ticks)))
        if not some:
            break
        assert len(some) == min(2, len(overdue) - len(done))  # the second began in time
        done += some
    assert sorted(done) == sorted(overdue)
    assert [overdue[name] for name in done] == sorted(overdue.values(), reverse=True)


def test_a_table_that_cannot_be_read_is_left(hosted, often, caplog):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    known = known_table(target_of(a))
    known.log.version = 3 * often
    Path(a.location, "_delta_log", f"{0:020d}.json").write_text("{")
    assert maintain_some([QueryTable(a, "host")], now_us) == ["a"]
    assert "cannot be maintained" in caplog.text
