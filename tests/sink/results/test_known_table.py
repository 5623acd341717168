"""A table as the process knows it, beside what is there."""

import shutil

import pytest
from deltalake import DeltaTable
from kit.result_tables import Hosted

from upstream.sink.results import known_table as module
from upstream.sink.results.known_table import KnownTable, known_table
from upstream.sink.results.result_table import ResultTable, target_of
from upstream.sink.table.files import DataFiles
from upstream.sink.table.table import Snapshot, load_table, take_snapshot


def _as_delta_rs_sees_it(table: ResultTable) -> Snapshot:
    target = target_of(table)
    loaded = load_table(target)
    assert loaded is not None
    return take_snapshot(loaded, DataFiles(target, table.schema), target)


def test_it_is_what_delta_rs_finds_after_each_commit(hosted):
    a = hosted.table("a", buckets=3)
    for number in range(4):
        hosted.batch(number, [a], {"a": [(key, f"{number}") for key in range(number, 9)]}, {"a": list(range(number))})
        for known in (known_table(target_of(a)), KnownTable(target_of(a))):
            known.refresh()
            assert known.snapshot() == _as_delta_rs_sees_it(a)
            assert known.table_id == str(DeltaTable(a.location).metadata().id)


def test_its_own_commits_are_not_read_again(hosted, monkeypatch):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    with monkeypatch.context() as patched:
        patched.setattr(module.LogReplay, "follow", lambda *_: pytest.fail("an entry is read"))
        for number in range(1, 4):
            hosted.batch(number, [a], {"a": [(1, f"{number}")]})
    assert hosted.rows(a) == [(1, "3")]


@pytest.mark.parametrize("shortened", [False, True], ids=["as it is", "shortened behind a checkpoint"])
def test_commits_of_others_are_followed(hosted, shortened):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    known = known_table(target_of(a))
    for number in range(3):
        DeltaTable(a.location).alter.set_table_properties({"delta.note": f"{number}"}, raise_if_not_exists=False)
    DeltaTable(a.location).create_checkpoint()
    if shortened:
        for version in range(3):
            (hosted.folder / "results" / "a" / "_delta_log" / f"{version:020d}.json").unlink()
    known.refresh()
    assert (known.log.version, known.log.metadata["configuration"]["delta.note"]) == (3, "2")
    assert known.snapshot() == _as_delta_rs_sees_it(a)
    hosted.batch(1, [a], {"a": [(2, "y")]})
    assert hosted.rows(a) == [(1, "x"), (2, "y")]


def test_a_table_that_is_gone_or_made_anew_is_noticed(hosted):
    a = hosted.table("a")
    for number in range(3):
        hosted.batch(number, [a], {"a": [(number, "x")]})
    known = known_table(target_of(a))
    shutil.rmtree(a.location)
    known.refresh()
    assert known.version < 0
    assert known.snapshot() == Snapshot.empty()
    shutil.rmtree(hosted.checkpoint)
    hosted.tables = hosted.started()
    hosted.batch(0, [a], {"a": [(7, "x")]})
    before = known.table_id
    shutil.rmtree(a.location)
    Hosted(hosted.folder / "elsewhere").batch(0, [a], {"a": [(8, "x")]})
    known.refresh()
    assert known.table_id != before
    assert known.snapshot() == _as_delta_rs_sees_it(a)


def test_the_last_account_is_found_by_another_process(hosted):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    DeltaTable(a.location).alter.set_table_properties({"delta.note": "x"}, raise_if_not_exists=False)
    for known in (known_table(target_of(a)), KnownTable(target_of(a))):
        known.refresh()
        found = known.last_summary("host/a")
        assert found is not None
        assert (found.batch_id, found.rows) == (0, 1)
        assert KnownTable(target_of(a)).last_summary("host/b") is None


def test_a_process_forgets_the_tables_that_it_met_first(hosted, monkeypatch):
    monkeypatch.setattr(module, "_known", {})
    monkeypatch.setattr(module, "_MOST", 2)
    tables = [hosted.table(name) for name in "abc"]
    for batch in range(2):
        hosted.batch(batch, tables, {table.name: [(batch, "x")] for table in tables})
        assert len(module._known) == 2
    assert [hosted.rows(table) for table in tables] == [[(0, "x"), (1, "x")]] * 3
