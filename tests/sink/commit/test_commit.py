import dataclasses
import itertools
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from kit.races import commit_between

from upstream.conf.errors import CheckpointError, TableError
from upstream.conf.units import now_us
from upstream.delta_format.deletion_vectors import VECTORS
from upstream.sink.commit.commit import maintain_some
from upstream.sink.figures.summary import read_summaries
from upstream.sink.latest_table import LatestTable
from upstream.sink.merge import engines as folding
from upstream.sink.results.known_table import known_table
from upstream.sink.results.result_table import target_of
from upstream.sink.results.result_tables import QueryTable, versions_overdue
from upstream.sink.spec import steps
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.sink.spec.steps import CommitStep
from upstream.sink.table.tombstones import FOLDER

ENGINES = ("rewrite", "vectors")


def test_a_bucket_in_which_nothing_won_is_not_rewritten(sink, engine):
    sink.batch(0, [sink.rows([(key, 10, "a") for key in range(20)])])
    before = sink.live_files()
    summary = sink.batch(1, [sink.rows([(key, 9, "late") for key in range(20)], seq=100)])
    assert sink.live_files() == before
    assert (summary.rows, summary.applied, summary.older, summary.superseded) == (20, 0, 20, 20)
    summary = sink.batch(2, [sink.rows([(0, 11, "new")], seq=200)])
    assert len(before - sink.live_files()) == (1 if engine == "rewrite" else 0)
    assert len(sink.live_files() - before) == 1
    assert summary.keys == 20


@pytest.mark.parametrize("same_bucket", [True, False])
def test_a_commit_between_the_check_and_ours(make_sink, monkeypatch, engine, same_bucket):
    sink, other = make_sink(buckets="64"), make_sink(query_id="query-2", buckets="64")
    expected = dict.fromkeys(range(300), (10, "a"))
    sink.batch(0, [sink.rows([(key, *row) for key, row in expected.items()])])
    own, theirs = 1, 1 if same_bucket else 3
    results = sink.tasks([sink.rows([(own, 11, "mine")], seq=1000)])
    commit_between(monkeypatch, lambda: other.batch(0, [other.rows([(theirs, 12, "theirs")], seq=1000)]))
    expected[theirs] = (12, "theirs")
    if same_bucket:
        with pytest.raises(TableError, match="changed by another writer") as caught:
            sink.commit(results, 1)
        assert "restart the query" in caught.value.hint
        assert sink.batch(1, [sink.rows([(own, 11, "mine")], seq=1000)]).older == 1, "it repeats the batch"
    else:
        assert sink.commit(results, 1) is not None
        expected[own] = (11, "mine")
    assert sink.latest() == expected
    vectors = len(list((sink.path / VECTORS).glob("*")))
    assert vectors == (0 if engine == "rewrite" else 1 if same_bucket else 2), "what the lost attempt wrote is gone"


def test_a_foreign_append_is_not_passed_over(sink, monkeypatch):
    sink.batch(0, [sink.rows([(1, 10, "a")])])
    results = sink.tasks([sink.rows([(1, 11, "mine")], seq=5)])
    commit_between(monkeypatch, lambda: write_deltalake(str(sink.path), sink.table(), mode="append"))
    with pytest.raises(TableError, match="changed by another writer"):
        sink.commit(results, 1)


def test_abort_removes_what_was_staged_but_nothing_committed(sink):
    sink.batch(0, [sink.rows([(1, 10, "a")])])
    files = sink.files()
    sink.writer().abort([*sink.tasks([sink.rows([(1, 11, "b")], seq=5)]), None], 1)
    assert sink.files() == files
    committed = sink.tasks([sink.rows([(1, 11, "b")], seq=5)])
    sink.commit(committed, 1)
    sink.writer().abort(committed, 1)  # a commit that took place although it seemed to fail
    assert sink.commit(committed, 1) is None, "the very same messages: their files are the table's now"
    assert sink.latest() == {1: (11, "b")}


def test_a_task_that_fails_leaves_no_file(sink, monkeypatch):
    # The engine that only marks rows as dead need not read a file to do so, unless it puts it together with others.
    monkeypatch.setattr(folding, "_FREE_ROWS", 1000)
    sink.batch(0, [sink.rows([(key, 10, "a") for key in range(20)])])
    gone = max(sink.live_files())
    (sink.path / gone).unlink()
    before = sink.files()
    with pytest.raises(TableError, match="is gone"):
        sink.tasks([sink.rows([(key, 11, "b") for key in range(0, 20, 3)], seq=100)])
    assert sink.files() == before


def test_a_list_of_deletions_that_no_commit_names_is_removed(sink, monkeypatch):
    sink.batch(0, [sink.rows([(key, 10, "a") for key in range(8)])])

    def files():
        lists = {str(found.relative_to(sink.path)) for found in (sink.path / FOLDER).glob("*.json")}
        return sink.files() | lists

    sink.batch(1, [sink.rows([(7, 11, None)], seq=50, deleted=[True])])
    before = files()

    def failing(step):
        if step is CommitStep.LISTED:
            raise RuntimeError("right after the list")

    monkeypatch.setattr(steps, "reached", failing)
    with pytest.raises(RuntimeError, match="right after"):
        sink.batch(2, [sink.rows([(key, 11, None) for key in range(4)], seq=100, deleted=[True] * 4)])
    assert files() == before
    assert any(each.endswith(".json") for each in before), "the list that counts stays"


@pytest.mark.parametrize("newer", [False, True])
def test_a_key_is_older_once_in_whatever_tasks_its_rows_come(sink, newer):
    sink.batch(0, [sink.rows([(key, 10, "a") for key in range(6)])])
    tasks = [sink.rows([(key, 8 - task, "late") for key in range(6)], seq=100 * (1 + task)) for task in range(3)]
    more = [[sink.rows([(0, 11, "new"), (1, 11, None)], seq=500, deleted=[False, True])]] if newer else []
    summary = sink.batch(1, *([each] for each in tasks), *more)
    assert (summary.applied, summary.older) == ((2, 4) if newer else (0, 6))


def test_low_watermarks_carry_over_and_never_go_back(make_sink):
    sink = make_sink()
    sink.batch(0, [sink.punctuation(9, "a"), sink.punctuation(4, "a")], [sink.punctuation(5, "b")])
    summary = sink.batch(1, [sink.rows([(1, 10, "x")], feed="b"), sink.punctuation(7, "a"), sink.punctuation(6, "b")])
    assert summary.low_watermarks == {"a": 9, "b": 6}
    assert summary.low_watermark == 6
    # Group-wise punctuation says nothing of the whole feed; a null bound says that the feed has ended.
    summary = sink.batch(2, [sink.punctuation(99, "b", key=1), sink.punctuation(None, "b")])
    assert summary.low_watermarks == {"a": 9, "b": None}
    assert summary.low_watermark == 9
    # Another query's promises are its own.
    other = make_sink(query_id="query-2")
    assert other.batch(0, [other.rows([(1, 11, "y")])]).low_watermarks == {}
    assert sink.batch(3, [sink.rows([(1, 12, "z")])]).low_watermarks == {"a": 9, "b": None}
    assert [(summary.query_id, summary.batch_id) for _, summary in read_summaries(str(sink.path))] == [
        ("query-1", 0), ("query-1", 1), ("query-1", 2), ("query-2", 0), ("query-1", 3),
    ]  # fmt: skip


def test_the_account_of_a_commit(sink):
    first_us = [1_699_999_990_000_000, 1_699_999_999_000_000, 1_699_999_998_000_000]
    rows = sink.rows([(1, 10, "a"), (1, 11, "b"), (2, 1, "c")], first_arrival_us=first_us, covered=[5, 1, 2])
    summary = sink.batch(0, [rows])
    assert (summary.rows, summary.updates, summary.applied, summary.superseded, summary.keys) == (3, 8, 2, 6, 2)
    assert dataclasses.asdict(summary.staleness) == {"mean": 6.0, "p50": 2.0, "p99": 10.0, "max": 10.0}
    ((version, read),) = read_summaries(str(sink.path))
    assert (version, read) == (1, summary)
    assert read_summaries(str(sink.path), 1) == []


def test_a_checkpoint_that_cannot_be_read(sink):
    (sink.checkpoint / "metadata").unlink()
    with pytest.raises(CheckpointError, match="metadata"):
        sink.batch(0, [sink.rows([(1, 10, "a")])])
    assert not sink.files()


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
    a, feed = hosted.table("a"), hosted.table("feed", key=(), history="all")
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
        assert any(summary.maintained for _, summary in LatestTable(table.location).commits()) == (table is a)


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
