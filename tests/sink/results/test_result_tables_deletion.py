"""Tables of dropped queries: deleted to the end, and only where the query has written them."""

import contextlib
import os
from pathlib import Path

import pytest

from upstream.conf.errors import TableError
from upstream.sink.results.result_tables import delete_table, refuse_foreign
from upstream.storage.folder import TableFolder


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
