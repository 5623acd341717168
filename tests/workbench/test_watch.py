"""Tables are found, their commits read once, and their history bounded."""

import shutil

import pytest
from kit.sink import NOW_US, Sink

from upstream.conf.errors import TableError
from upstream.sink.figures.summary import read_summaries
from upstream.workbench.watch import Point, UnknownNameError, Watch, WatchedTable


def written(folder, batches=1, **options):
    sink = Sink(folder, **options)
    for batch in range(batches):
        sink.now_us = NOW_US + batch * 1_000_000
        sink.batch(batch, [sink.rows([(1, 10 + batch, "a"), (2, 10 + batch, "b")], seq=10 * batch)])
    return sink


def test_tables_and_checkpoints_below_a_folder_are_found_also_those_that_come_later(tmp_path):
    watch = Watch([str(tmp_path)], {})
    assert watch.tables() == []
    with pytest.raises(UnknownNameError, match="no table is here yet"):
        watch.table()
    one, two = written(tmp_path / "a"), written(tmp_path / "b" / "c")
    (two.checkpoint / "offsets").mkdir()
    (two.checkpoint / "offsets" / "0").write_text("v1")
    watch.search()
    watch.search()
    assert {table.name: table.location for table in watch.tables()} == {
        "table": str(one.path),
        "c/table": str(two.path),
    }
    assert watch.checkpoints == [str(two.checkpoint)]
    with pytest.raises(UnknownNameError, match="'table', 'c/table'"):
        watch.table("d")


def test_a_location_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(TableError, match="create the folder"):
        Watch([str(tmp_path / "nowhere")], {})


def test_commits_are_read_once_in_their_order_and_the_checkpoint_is_that_of_the_query(tmp_path):
    sink = written(tmp_path, 3)
    table = Watch([str(sink.path)], {}).table()
    assert [summary.batch_id for _, summary in table.refresh()] == [0, 1, 2]
    assert table.refresh() == []
    assert table.checkpoint == str(sink.checkpoint)
    sink.batch(3, [sink.rows([(3, 1, "c")], seq=100)])
    assert [summary.batch_id for _, summary in table.refresh()] == [3]
    assert [summary.batch_id for _, summary in table.between(table.commits[1][0])] == [2, 3]
    assert [point.rows for point in table.points] == [2, 2, 2, 1]


def test_a_commit_that_lands_while_the_log_is_read_is_not_missed(tmp_path, monkeypatch):
    sink = written(tmp_path)
    table = Watch([str(sink.path)], {}).table()
    table.refresh()

    def read_late(*given):
        found = read_summaries(*given)
        monkeypatch.undo()
        sink.batch(1, [sink.rows([(3, 1, "c")], seq=100)])
        return found

    monkeypatch.setattr("upstream.workbench.watch.read_summaries", read_late)
    assert table.refresh() == []
    assert [summary.batch_id for _, summary in table.refresh()] == [1]


def test_what_memory_no_longer_has_comes_from_the_log(tmp_path):
    sink = written(tmp_path, 3)
    table = Watch([str(sink.path)], {}).table()
    table.refresh()
    first = table.commits[0][0]
    table._recent.popleft()
    assert [summary.batch_id for _, summary in table.between(first - 1)] == [0, 1, 2]


def test_another_table_in_its_place_starts_a_new_history(tmp_path):
    sink = written(tmp_path, 3)
    table = Watch([str(sink.path)], {}).table()
    table.refresh()
    shutil.rmtree(sink.path)
    other = Sink(tmp_path, query_id="query-2")
    other.batch(0, [other.rows([(1, 1, "new")])])
    assert [summary.rows for _, summary in table.refresh()] == [1]
    assert len(table.points) == len(table.commits) == 1


def test_old_points_grow_coarser_and_no_count_is_lost(tmp_path):
    sink = written(tmp_path, 30)
    table = WatchedTable("t", str(sink.path), {}, points=16, commits=20)
    for batch in range(30, 90):
        table.refresh()
        sink.now_us += 1_000_000
        sink.batch(batch, [sink.rows([(1, 10 + batch, "a"), (2, 10 + batch, "b")], seq=10 * batch)])
    table.refresh()
    points = table.points
    assert len(points) <= 16
    assert points[-1].commits == 1 < points[0].commits <= 16  # of 90: no point takes all that is old
    assert sum(point.rows for point in points) == 180
    assert sum(point.ages.count for point in points) == 180
    assert [point.at_us for point in points] == sorted(point.at_us for point in points)


def test_levels_of_points_together_are_the_last_and_worst(tmp_path):
    sink = written(tmp_path, 2)
    first, last = (Point.of(version, summary) for version, summary in Watch([str(sink.path)], {}).table().refresh())
    together = first.then(last)
    assert (together.version, together.commits, together.keys) == (last.version, 2, 2)
    assert together.ages.max_s == max(first.ages.max_s, last.ages.max_s)


def test_many_tables_are_read_in_turns_and_hold_little_until_a_page_shows_them(tmp_path):
    sink = written(tmp_path / "0", 12)
    for number in range(1, 40):
        shutil.copytree(tmp_path / "0", tmp_path / f"{number:02}")
    watch = Watch([str(tmp_path)], {})
    while any(table.version < 0 for table in watch.tables()):
        watch.refresh()
    last = watch.tables()[-1]
    assert [len(watch.tables()[0].commits), len(last.commits)] == [12, 4]
    assert len(last.points) <= 8
    for table in watch.tables():
        (copy := Sink(tmp_path / table.location.split("/")[-2])).batch(12, [copy.rows([(9, 99, "x")], seq=99)])
    turns = [watch.refresh([last.name]) for _ in range(3)]
    assert last.name in turns[0]
    assert [len(turn) for turn in turns] == [17, 16, 7]
    assert len({name for turn in turns for name in turn}) == 40
    assert [len(watch.shown(last.name).commits), len(watch.tables()[0].commits)] == [13, 4]
    assert sum(point.rows for point in last.points) == 25
    assert sink.path.exists()


def test_dead_letters_are_no_table_of_their_own_beside_their_table(tmp_path):
    sink = written(tmp_path)
    names = lambda: [table.name for table in Watch([str(tmp_path)], {}).tables()]  # noqa: E731
    shutil.copytree(sink.path, tmp_path / "other_dead_letters")
    assert names() == ["other_dead_letters", "table"]
    watch = Watch([str(tmp_path)], {})
    shutil.copytree(sink.path, tmp_path / "other")
    (sink.checkpoint / "offsets").mkdir()
    (sink.checkpoint / "offsets" / "0").write_text("v1")
    shutil.copytree(sink.path, sink.checkpoint / "dead_letters")
    assert names() == ["other", "table"]
    watch.search()
    assert [table.name for table in watch.tables()] == ["table", "other"]


def test_the_checkpoint_of_a_hosted_query_is_beside_the_folder_of_its_tables(tmp_path):
    sink = written(tmp_path / "lake", query_id="host/q")
    (tmp_path / "lake_checkpoint").mkdir()
    (tmp_path / "lake_checkpoint" / "metadata").write_text('{"id": "host"}')
    table = Watch([str(sink.path)], {}).table()
    table.refresh()
    assert table.checkpoint == str(tmp_path / "lake_checkpoint")


def test_a_table_that_cannot_be_read_holds_up_no_other_and_is_logged_once(tmp_path, caplog):
    sinks = [written(tmp_path / str(number)) for number in range(2)]
    watch = Watch([str(tmp_path)], {})
    wanted = [table.name for table in watch.tables()]
    entry = min((sinks[0].path / "_delta_log").glob("*1.json"))
    whole = entry.read_bytes()
    entry.write_bytes(b'{"commitInfo": ')
    assert set(watch.refresh(wanted)) == set(watch.refresh(wanted) | {wanted[1]: []}) == {wanted[1]}
    assert caplog.text.count("cannot be read now") == 1
    entry.write_bytes(whole)
    assert set(watch.refresh(wanted)) == {wanted[0]}
