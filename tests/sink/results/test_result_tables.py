"""Batches of many tables: how a batch finds each, and its part once, wherever a process dies."""

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.deaths import ProcessDied
from kit.result_tables import COLUMNS, Hosted

from upstream.conf.errors import FeedChangedError, SchemaError, TableError
from upstream.core.rows.key import Key
from upstream.datasource.connectors.latest_table.table import TableLog
from upstream.sink.commit.commit import BatchCommit
from upstream.sink.latest_table import LatestTable
from upstream.sink.results.result_tables import delete_table, refuse_foreign
from upstream.sink.spec import steps
from upstream.sink.table.log_entry import put_entry
from upstream.storage.folder import TableFolder


def test_a_batch_without_rows_for_a_table_does_not_look_at_it(hosted):
    a, b = hosted.table("a"), hosted.table("b")
    assert hosted.batch(0, [a, b], {"a": [(1, "x")]})["b"].keys == 0, "an empty result is a table"
    assert hosted.batch(0, [a, b], {"a": [(1, "x")]}) == {}
    results = hosted.results([a, b], {"a": [(1, "y")]})
    shutil.rmtree(b.location)
    assert hosted.tables.commit([a, b], results, 1, None).keys() == {"a"}
    assert not Path(b.location).exists()


def test_several_refusals_are_one_error(hosted):
    tables = [hosted.table(name) for name in ("a", "b", "c")]
    for table in tables[:2]:
        write_deltalake(table.location, pa.table({"k": [1]}))
    with pytest.raises(TableError, match="2 tables could not be committed: a, b; that of a: there is a table"):
        hosted.batch(0, tables)
    assert hosted.rows(tables[2]) == []


def test_many_threads_commit_the_same(tmp_path):
    hosted = Hosted(tmp_path, threads=8)
    tables = [hosted.table(f"t{number}") for number in range(24)]
    for batch in range(3):
        hosted.batch(batch, tables, {table.name: [(batch, table.name)] for table in tables})
    for table in tables:
        assert hosted.rows(table) == [(batch, table.name) for batch in range(3)]
        assert hosted.commits(table) == 3


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_batches_repeats_restarts_and_beginnings(tmp_path_factory, data):
    hosted = Hosted(tmp_path_factory.mktemp("any"))
    names = ("a", "b", "c")
    model: dict[str, dict[int, str]] = {name: {} for name in names}
    incarnation = dict.fromkeys(names, 1)
    for number in range(data.draw(st.integers(1, 6))):
        tables, rows, deleted = [], {}, {}
        for name in names:
            if data.draw(st.integers(0, 4)) == 0:
                incarnation[name] += 1
                model[name] = {}
            tables.append(hosted.table(name, incarnation[name], buckets=2))
            keys = data.draw(st.sets(st.integers(0, 5)))
            gone = data.draw(st.sets(st.integers(0, 5))) - keys
            rows[name], deleted[name] = [(key, f"{number}") for key in sorted(keys)], sorted(gone)
            model[name] = {key: value for key, value in model[name].items() if key not in gone}
            model[name] |= dict(rows[name])
        for _ in range(data.draw(st.integers(1, 2))):
            if data.draw(st.booleans()):
                hosted.restart()
            hosted.batch(number, tables, rows, deleted)
            assert {table.name: dict(hosted.rows(table)) for table in tables} == model


def test_a_key_that_the_query_has_added_is_none_of_the_users_columns(hosted):
    whole = pa.schema([("row_key", pa.string()), ("n", pa.int64())])
    table = hosted.table("a", schema=whole, key=Key(("row_key",)), row_key="row_key")
    hosted.batch(0, [table], {"a": [("", 2)]})
    assert LatestTable(table.location).to_polars().to_dicts() == [{"n": 2}]
    assert LatestTable(table.location).to_arrow().column_names == ["n"]
    own = hosted.table("a", 2, schema=pa.schema([("k", pa.int64()), ("row_key", pa.string())]))
    hosted.batch(1, [own], {"a": [(1, "x")]})
    assert LatestTable(table.location).to_polars().to_dicts() == [{"k": 1, "row_key": "x"}]


OTHERS = pa.schema([("name", pa.string()), ("share", pa.float64())])


def test_another_incarnation_replaces_all_rows_once(hosted):
    a = hosted.table("a", buckets=4)
    hosted.batch(0, [a], {"a": [(key, "old") for key in range(30)]})
    again = hosted.table("a", 2, buckets=4)
    made = hosted.batch(1, [again], {"a": [(1, "new"), (40, "new")]}, {"a": [2]})
    assert hosted.rows(again) == [(1, "new"), (40, "new")]
    assert (made["a"].keys, made["a"].deleted, hosted.commits(a)) == (2, 29, 2)
    hosted.restart()
    assert hosted.batch(1, [again], {"a": [(1, "new"), (40, "new")]}) == {}
    assert hosted.commits(a) == 2
    # Twice, and to nothing.
    for number, query_id in ((3, 3), (4, 4)):
        assert hosted.batch(number, [hosted.table("a", query_id, buckets=4)]).keys() == {"a"}
        assert hosted.rows(again) == []
    assert LatestTable(a.location).check().healthy
    # A query that restarts while it is held begins its table when it is held no longer.
    held = hosted.table("a", 5, buckets=4)
    assert hosted.tables.commit([held], {}, 5, None, held={"a"}) == {}
    assert hosted.batch(6, [held]).keys() == {"a"}
    with pytest.raises(TableError, match=r"change 5, .* change 3"):
        hosted.batch(7, [hosted.table("a", 3, buckets=4)], {})


def test_another_text_of_the_query_may_have_other_columns_and_another_kind(hosted):
    forms: list[tuple[dict[str, Any], list[tuple[Any, ...]]]] = [
        ({}, [(1, "x")]),
        ({"schema": OTHERS, "key": Key(("name",)), "buckets": 5}, [("n", 0.5), ("m", 1.5)]),
        ({"key": (), "history": "all"}, [(1, "x"), (1, "x")]),
        ({"schema": pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))])}, []),
        ({"schema": pa.schema([("k", pa.int64()), ("count(*) of it", pa.int64())])}, [(1, 9)]),
        ({}, []),
    ]
    for number, (form, rows) in enumerate(forms):
        table = hosted.table("a", number, **form)
        hosted.batch(2 * number, [table], {"a": rows})
        assert hosted.rows(table) == sorted(rows)
        more = [row for row in rows[:1] for _ in range(2)] if form.get("history") else rows[:1]
        hosted.batch(2 * number + 1, [table], {"a": more})
        assert hosted.rows(table) == sorted([*rows, *more] if form.get("history") else rows)
        report = LatestTable(table.location).check()
        assert report.healthy, report.findings
        found = DeltaTable(table.location).scan()  # noqa: F841 DuckDB finds it by its name
        assert duckdb.sql("SELECT count(*) FROM found").fetchall() == [(len(hosted.rows(table)),)]
        if number < 4:  # Polars does not read tables with names that plain Delta does not admit
            assert pl.scan_delta(table.location).collect().height == len(hosted.rows(table))
    location = hosted.table("a").location
    assert DeltaTable(location).metadata().id == DeltaTable(location, 0).metadata().id


def test_a_query_of_the_same_name_after_one_was_dropped(hosted):
    a, b = hosted.table("a"), hosted.table("b")
    hosted.batch(0, [a, b], {"a": [(1, "x")], "b": [(1, "x")]})
    hosted.batch(1, [b], {"b": [(2, "x")]})  # a is dropped, and its table stays
    hosted.batch(2, [hosted.table("a", 7), b], {"a": [(5, "y")]})
    assert hosted.rows(a) == [(5, "y")]
    hosted.batch(3, [b])
    shutil.rmtree(a.location)  # dropped with its table
    hosted.batch(4, [hosted.table("a", 9), b])
    assert hosted.rows(a) == []
    assert hosted.commits(a) == 1


def test_a_table_of_somebody_else_is_refused_and_the_others_are_committed(hosted):
    mine, theirs = hosted.table("mine"), hosted.table("theirs")
    write_deltalake(theirs.location, pa.table({"k": [1], "v": ["precious"]}))
    seen = hosted.tables.look([mine, theirs])
    assert seen.tables.keys() == {"mine"}
    assert "the query 'theirs' of this job has not made it" in str(seen.refused["theirs"])
    with pytest.raises(TableError, match=r"there is a table at .*theirs already"):
        hosted.batch(0, [mine, theirs], {"mine": [(1, "x")]})
    assert hosted.rows(mine) == [(1, "x")]
    assert DeltaTable(theirs.location).version() == 0
    assert hosted.batch(0, [mine], {"mine": [(1, "x")]}) == {}  # the query has failed, the batch is repeated


def constrain(location: str) -> None:
    DeltaTable(location).alter.add_constraint({"small": "k < 5"})


def upgrade(location: str) -> None:
    features = {"readerFeatures": [], "writerFeatures": ["rowTracking"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    assert put_entry(TableFolder(location), 1, {"operation": "UPGRADE PROTOCOL"}, [{"protocol": protocol}])


@pytest.mark.parametrize(("change", "says"), [(constrain, "small CHECK (k < 5)"), (upgrade, "rowTracking")])
def test_what_is_not_followed_here_is_refused_before_the_table_is_replaced(hosted, change, says):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    change(a.location)
    for table in (a, hosted.table("a", 2), hosted.table("a", 2, schema=OTHERS, key=Key(("name",)))):
        assert says in str(hosted.tables.look([table]).refused["a"])
    assert hosted.rows(a) == [(1, "x")]


def test_who_follows_a_table_is_told_that_its_columns_are_others(hosted):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    log = TableLog(TableFolder(a.location))
    table_id = str(DeltaTable(a.location).metadata().id)
    made = log.applied(0, table_id)
    assert made is not None
    assert sum(made.rows.values()) == 1
    hosted.batch(1, [hosted.table("a", 2, schema=OTHERS, key=Key(("name",)))], {"a": [("n", 1.0)]})
    with pytest.raises(FeedChangedError, match=r"version 1 .* has replaced its rows by others with other columns"):
        log.applied(1, table_id)


@pytest.mark.parametrize("columns", [COLUMNS, pa.schema([("k", pa.int64()), ("w", pa.float64())])])
def test_a_job_takes_over_and_the_other_one_notices(hosted, tmp_path, columns):
    old, new = hosted, Hosted(tmp_path, host="new")
    old.batch(0, [old.table("a", 5)], {"a": [(1, "x"), (2, "y")]})
    with pytest.raises(TableError, match="another checkpoint") as refused:
        new.batch(0, [new.table("a", 3, schema=columns)], {"a": [(2, 2)]})
    assert "overwrite=True" in refused.value.hint
    assert "another folder" in refused.value.hint
    mine = new.table("a", 3, schema=columns, overwrite=True)
    row = (2, "z" if columns is COLUMNS else 0.5)
    new.batch(0, [mine], {"a": [row]})
    assert new.rows(mine) == [row]
    new.batch(1, [mine], {"a": [(3, row[1])]})
    assert new.rows(mine) == [row, (3, row[1])]
    old.restart()
    with pytest.raises(TableError, match="this job has not made it, but a query of another checkpoint"):
        old.batch(1, [old.table("a", 5)], {"a": [(7, "w")]})
    with pytest.raises(TableError, match="is not a table that the query 'a' of this job has written"):
        refuse_foreign(mine.location, "a", "host")
    back = old.table("a", 5, overwrite=True)
    old.batch(1, [back], {"a": [(7, "w")]})
    assert old.rows(back) == [(7, "w")]


@pytest.mark.parametrize("name", ["12345", "7/3"])
def test_a_query_named_by_digits_is_no_call_of_a_batch(hosted, name):
    first, table = hosted.table("q"), hosted.table(name)
    hosted.batch(0, [first, table], {"q": [(1, "x")], name: [(1, "x")]})
    # The program was changed: the columns of a repeat are others.
    other = hosted.table(name, schema=COLUMNS.append(pa.field("w", pa.int64())))
    with pytest.raises(SchemaError):
        hosted.batch(0, [first, other], {name: [(1, "x", 5)]})
    assert hosted.batch(0, [first, table], {name: [(1, "x")]}) == {}
    assert hosted.batch(1, [first, table], {name: [(2, "x")]}).keys() == {name}
    assert hosted.rows(table) == [(1, "x"), (2, "x")]


def test_who_follows_a_table_hears_what_another_incarnation_took_away(hosted):
    a = hosted.table("a", buckets=2)
    hosted.batch(0, [a], {"a": [(key, "old") for key in range(6)]})
    hosted.batch(1, [hosted.table("a", 2, buckets=2)], {"a": [(0, "new"), (9, "new")]})
    applied = DeltaTable(a.location).history(1)[0]["upstreamApplied"]
    assert sum(applied["rows"].values()) == 2
    keys = [pa.parquet.read_table(f"{a.location}/{path}").column("k").to_pylist() for path in applied["deletions"]]
    assert sorted(itertools.chain(*keys)) == [1, 2, 3, 4, 5]


def _files(table: Any) -> set[str]:
    return {str(path.relative_to(table.location)) for path in Path(table.location).rglob("part-*.parquet")}


def test_only_what_commits_name_stays(hosted):
    a = hosted.table("a", buckets=2)
    named: set[str] = set()
    for number in range(3):
        seen = hosted.tables.look([a]).tables["a"]
        parts = [[(key, f"{number}") for key in range(part + 4, 12, 3)] for part in range(3)]
        parts = [list(itertools.chain(*parts))] if number == 2 else parts
        parts[0].append((number, "to be deleted by the next batch"))
        results = {"a": hosted.staged(a, seen, *parts, deleted=[20, number - 1])}
        assert (hosted.tables.commit([a], results, number, None)["a"].stray_buckets > 0) == (len(parts) > 1)
        assert hosted.tables.commit([a], results, number, None) == {}
        assert dict(hosted.rows(a))[5] == f"{number}"
        applied = DeltaTable(a.location).history(1)[0]["upstreamApplied"]
        named |= {*applied["rows"], *applied["deletions"]}
        assert _files(a) == named
    assert any("deleted/" in path for path in named)


def test_files_are_on_the_disk_before_the_entry_that_names_them(hosted, monkeypatch):
    a = hosted.table("a", buckets=2, options=(("durability", "power"),))
    synced: set[str] = set()
    put, sync = TableFolder.put_new, TableFolder.sync

    def syncs(folder: TableFolder, paths: Iterable[str]) -> None:
        listed = list(paths)
        synced.update(listed)
        sync(folder, listed)

    def puts(folder: TableFolder, path: str, content: bytes) -> bool:
        applied = json.loads(content.splitlines()[0])["commitInfo"]["upstreamApplied"]
        assert {*applied["rows"], *applied["deletions"]} <= synced
        return put(folder, path, content)

    monkeypatch.setattr(TableFolder, "sync", syncs)
    monkeypatch.setattr(TableFolder, "put_new", puts)
    hosted.batch(0, [a], {"a": [(key, "x") for key in range(9)]})
    results = hosted.results([a], {"a": [(1, "y")]}, {"a": [2, 3]})
    assert _files(a) <= synced  # in the task, which may run on another machine
    hosted.tables.commit([a], results, 1, None)
    hosted.batch(2, [hosted.table("a", 2, buckets=2, options=a.options)], {"a": [(1, "z")]})
    assert len(synced) >= 6


def _scenario(hosted: Hosted) -> Callable[[], Any]:
    """Before: four tables. Then a batch: one goes on, one starts over with nothing, one is a feed, one is new."""
    going, anew, feed = (
        hosted.table("going", buckets=2),
        hosted.table("anew"),
        hosted.table("feed", key=(), history="all"),
    )
    rows = [(key, "old") for key in range(6)]
    hosted.batch(0, [going, anew, feed], {"going": rows, "anew": rows, "feed": rows})
    tables = [going, hosted.table("anew", 2), feed, hosted.table("new", 2)]

    def batch() -> Any:
        given = {"going": [(1, "new"), (8, "new")], "feed": [(1, "new")], "new": [(3, "new")]}
        hosted.batch(1, tables, given, {"going": [0]})
        return {table.name: (hosted.rows(table), hosted.commits(table)) for table in tables}

    return batch


def test_a_death_at_any_step_commits_what_is_missing_and_nothing_twice(tmp_path, monkeypatch):
    whole = Hosted(tmp_path / "whole")
    batch, counted = _scenario(whole), itertools.count(1)
    reached: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(steps, "reached", lambda _: reached.append(next(counted)))
        expected = batch()
    assert len(reached) > 30
    assert expected["anew"] == ([], 2)
    partly = 0
    for dies_at in reached:
        hosted = Hosted(tmp_path / str(dies_at))
        batch = _scenario(hosted)
        moments = itertools.count(1)

        def moment(_: Any, dies_at: int = dies_at, moments: Any = moments) -> None:
            if next(moments) == dies_at:
                raise ProcessDied

        with monkeypatch.context() as patched:
            patched.setattr(steps, "reached", moment)
            patched.setattr(BatchCommit, "discard", lambda *_: None)  # nothing is tidied by a process that is killed
            with pytest.raises(ProcessDied):
                batch()
        done = [hosted.commits(hosted.table(name)) for name in ("going", "anew", "feed")]
        partly += len(set(done)) > 1
        hosted.restart()
        assert batch() == expected
        hosted.restart()
        assert batch() == expected
        for name in expected:
            assert LatestTable(hosted.table(name).location).check().healthy
    assert partly > 5


def test_the_table_goes_with_its_folder_and_others_files_stay(hosted, caplog):
    a, b, c = hosted.table("a", 3), hosted.table("b", 4), hosted.table("c", 5)
    hosted.batch(0, [a, b, c], {each: [(1, "y" if each == "b" else "x")] for each in "abc"})
    hosted.batch(1, [a, b, c], {"a": [(1, "z")]})  # a file out of use, which the log names
    (hosted.folder / "others" / "deep").mkdir(parents=True)
    (hosted.folder / "others" / "file").write_text("mine")
    staged = Path(a.location, "_upstream_bucket=7", "part-01234567-89ab-cdef-0123-456789abcdef.parquet")
    staged.parent.mkdir()
    staged.write_text("what a task has staged that died")
    refuse_foreign(a.location, "a", "host")
    assert not delete_table(a.location, "a", "host", 2), "a later query of the name has it"
    assert hosted.rows(a) == [(1, "z")]
    assert delete_table(a.location, "a", "host", 3)
    assert not os.path.lexists(a.location)
    assert not delete_table(a.location, "a", "host", 3)
    assert hosted.rows(b) == [(1, "y")]
    mine = ["input.csv", "_upstream_bucket=0/part-0.parquet", "_delta_log/notes.txt", "deep/er/input.parquet"]
    for each in mine:
        Path(c.location, each).parent.mkdir(parents=True, exist_ok=True)
        Path(c.location, each).write_text("mine")
    Path(c.location, "link").symlink_to(hosted.folder / "others")
    assert delete_table(c.location, "c", "host", 5)
    left = {os.path.relpath(each, c.location) for each in Path(c.location).rglob("*") if not each.is_dir()}
    assert left == set(mine) and Path(c.location, "link", "file").read_text() == "mine"
    assert "has a file that no query wrote" in caplog.text


def test_what_the_query_has_not_written_is_refused(hosted, tmp_path):
    a = hosted.table("a", 3)
    hosted.batch(0, [a], {"a": [(1, "x")]})
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("mine")
    for location, name, host in (
        (a.location, "a", "other"),
        (a.location, "b", "host"),
        (a.location, "a", None),
        (str(tmp_path / "texts"), "a", "host"),
    ):
        with pytest.raises(TableError, match=f"is not a table that the query '{name}' of this job has written"):
            refuse_foreign(location, name, host)
        with pytest.raises(TableError, match="is not a table"):
            delete_table(location, name, host or "", 9)
    assert hosted.rows(a) == [(1, "x")]
    assert (tmp_path / "texts" / "a.txt").read_text() == "mine"
    refuse_foreign(str(tmp_path / "nothing"), "a", None)


@pytest.mark.parametrize("done", range(14))
def test_what_a_process_that_died_has_left_goes_with_the_next_one(hosted, monkeypatch, done):
    a = hosted.table("a", 3, buckets=2)
    for batch in range(3):
        hosted.batch(batch, [a], {"a": [(batch, "x"), (batch + 7, "y")]})
    removed: list[str] = []
    remove = TableFolder._remove

    def dies(folder: TableFolder, path: str) -> None:
        if len(removed) == done:
            raise KeyboardInterrupt
        removed.append(path)
        remove(folder, path)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(TableFolder, "_remove", dies)
        delete_table(a.location, "a", "host", 5)
    assert len(removed) <= done
    if Path(a.location).exists():
        for name, host in (("a", "other"), ("b", "host")):
            with pytest.raises(TableError):
                delete_table(a.location, name, host, 5)
        assert delete_table(a.location, "a", "host", 5)
    assert not Path(a.location).exists()


def test_what_cannot_be_deleted_is_told(hosted, monkeypatch):
    a = hosted.table("a", 3)
    hosted.batch(0, [a], {"a": [(1, "x")]})
    with monkeypatch.context() as patched:
        patched.setattr(TableFolder, "_remove", lambda *_: None)  # as where permission lacks
        with pytest.raises(TableError, match=r"cannot be deleted: .*parquet is left"):
            delete_table(a.location, "a", "host", 5)
