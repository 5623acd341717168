"""Tables of dropped queries: deleted to the end, and only where the query has written them."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from upstream.conf.errors import TableError
from upstream.sink.results import deletion
from upstream.sink.results.deletion import delete_table, refuse_foreign


def test_the_table_goes_with_its_folder(hosted):
    a, b = hosted.table("a", 3), hosted.table("b", 4)
    hosted.batch(0, [a, b], {"a": [(1, "x")], "b": [(1, "y")]})
    (hosted.folder / "others").mkdir()
    (hosted.folder / "others" / "file").write_text("mine")
    Path(a.location, "link").symlink_to(hosted.folder / "others")
    refuse_foreign(a.location, "a", "host")
    assert not delete_table(a.location, "a", "host", 2), "a later query of the name has it"
    assert hosted.rows(a) == [(1, "x")]
    assert delete_table(a.location, "a", "host", 3)
    assert not os.path.lexists(a.location)
    assert not delete_table(a.location, "a", "host", 3)
    assert hosted.rows(b) == [(1, "y")]
    assert (hosted.folder / "others" / "file").read_text() == "mine", "the link goes, and what it names stays"


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


@pytest.mark.parametrize("done", range(8))
def test_what_a_process_that_died_has_left_goes_with_the_next_one(hosted, monkeypatch, done):
    a = hosted.table("a", 3, buckets=2)
    for batch in range(3):
        hosted.batch(batch, [a], {"a": [(batch, "x"), (batch + 7, "y")]})
    removed: list[str] = []

    def dies(entry: os.DirEntry[str]) -> None:
        if len(removed) == done:
            raise KeyboardInterrupt
        removed.append(entry.path)
        shutil.rmtree(entry.path) if entry.is_dir() else os.remove(entry.path)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(deletion, "_remove", dies)
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
        patched.setattr(deletion.shutil, "rmtree", lambda *_, **__: None)  # as where permission lacks
        with pytest.raises(TableError, match=r"cannot be deleted: .*parquet is left"):
            delete_table(a.location, "a", "host", 5)
