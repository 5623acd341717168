"""One table's part in a batch: once, wherever a process dies and whatever others do."""

import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kit.deaths import ProcessDied
from kit.result_tables import COLUMNS, Hosted

from upstream.conf.errors import SchemaError, TableError
from upstream.sink.commit.commit import BatchCommit
from upstream.sink.latest_table import LatestTable
from upstream.sink.spec import steps
from upstream.storage.folder import TableFolder


def test_a_repeated_batch_is_passed_over_and_leaves_no_file(hosted):
    a, feed = hosted.table("a"), hosted.table("feed", key=(), keep="all")
    rows = {"a": [(1, "x")], "feed": [(1, "x")]}
    hosted.batch(0, [a, feed], rows)
    hosted.restart()
    assert hosted.batch(0, [a, feed], rows) == {}
    hosted.batch(1, [a, feed], rows)
    results = hosted.results([a, feed], rows)
    assert hosted.tables.commit([a, feed], results, 1, "offsets of 1") == {}
    assert hosted.rows(feed) == [(1, "x"), (1, "x")]
    assert [hosted.commits(a), hosted.commits(feed)] == [2, 2]
    assert len(_files(feed)) == len(DeltaTable(feed.location).file_uris())


def test_a_batch_with_other_input_than_the_table_has_is_refused(hosted):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    hosted.batch(1, [a], {"a": [(1, "y")]})
    with pytest.raises(TableError, match=r"batch 1 of this query is in the table .* with other input"):
        hosted.batch(1, [a], {"a": [(1, "z")]}, offsets="others")
    with pytest.raises(TableError, match="batch 0 comes after batch 1"):
        hosted.batch(0, [a], {"a": [(1, "z")]})
    assert hosted.rows(a) == [(1, "y")]


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


def test_others_may_put_files_together_between_look_and_commit(hosted):
    a = hosted.table("a")
    feed = hosted.table("feed", key=(), keep="all")
    for number in range(3):
        hosted.batch(number, [a, feed], {"a": [(number, "x")], "feed": [(number, "x")]})
    results = hosted.results([a, feed], {"a": [(0, "y")], "feed": [(0, "y")]})
    DeltaTable(feed.location).optimize.compact()
    DeltaTable(a.location).alter.set_table_properties({"delta.note": "x"}, raise_if_not_exists=False)
    assert hosted.tables.commit([a, feed], results, 3, "offsets of 3").keys() == {"a", "feed"}
    assert hosted.rows(a) == [(0, "y"), (1, "x"), (2, "x")]
    assert hosted.rows(feed) == [(0, "x"), (0, "y"), (1, "x"), (2, "x")]


def test_a_foreign_change_of_rows_during_the_batch_is_refused(hosted):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x"), (2, "x")]})
    results = hosted.results([a], {"a": [(1, "y")]})
    DeltaTable(a.location).delete("k = 2")
    with pytest.raises(TableError, match="was changed by another writer during this batch"):
        hosted.tables.commit([a], results, 1, "offsets of 1")
    assert hosted.rows(a) == [(1, "x")]
    hosted.batch(1, [a], {"a": [(1, "y")]})
    assert hosted.rows(a) == [(1, "y")]


def test_who_follows_a_table_hears_what_another_incarnation_took_away(hosted):
    a = hosted.table("a", buckets=2)
    hosted.batch(0, [a], {"a": [(key, "old") for key in range(6)]})
    hosted.batch(1, [hosted.table("a", 2, buckets=2)], {"a": [(0, "new"), (9, "new")]})
    delivered = DeltaTable(a.location).history(1)[0]["upstreamDelivered"]
    assert sum(delivered["rows"].values()) == 2
    keys = [pa.parquet.read_table(f"{a.location}/{path}").column("k").to_pylist() for path in delivered["deletions"]]
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
        delivered = DeltaTable(a.location).history(1)[0]["upstreamDelivered"]
        named |= {*delivered["rows"], *delivered["deletions"]}
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
        delivered = json.loads(content.splitlines()[0])["commitInfo"]["upstreamDelivered"]
        assert {*delivered["rows"], *delivered["deletions"]} <= synced
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
    going, anew, feed = hosted.table("going", buckets=2), hosted.table("anew"), hosted.table("feed", key=(), keep="all")
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
