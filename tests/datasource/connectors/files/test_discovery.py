"""Finding files: what is new, what is gone, at once and in the background."""

import os
import socket
from pathlib import Path

from kit.waiting import wait_for

from upstream.datasource.connectors.files import discovery
from upstream.datasource.connectors.files.discovery import Discovery


def found(changes: tuple[dict[str, tuple[int, int, int]], set[str]]) -> tuple[list[str], list[str]]:
    return sorted(os.path.basename(path) for path in changes[0]), sorted(os.path.basename(path) for path in changes[1])


def make(*roots: Path) -> Discovery:
    return Discovery([str(root) for root in roots], recursive=False, name_filter=None)


def test_changes(folder):
    (folder / "a").write_text("x")
    follow = make(folder)
    assert found(follow.changes()) == (["a"], [])
    assert found(follow.changes()) == ([], [])
    (folder / "a").write_text("xx")
    (folder / "b").write_text("x")
    assert found(follow.changes()) == (["a", "b"], [])
    (folder / "a").unlink()
    (folder / "c").write_text("x")
    assert found(follow.changes()) == (["c"], ["a"])
    assert sorted(follow.everything()) == [str(folder / "b"), str(folder / "c")]


def test_a_file_belongs_to_the_first_path_it_lies_under(folder):
    (folder / "a").write_text("x")
    assert make(folder / "a", folder).everything()[str(folder / "a")][2] == 0
    assert make(folder, folder / "a").everything()[str(folder / "a")][2] == 0


def test_frozen(folder):
    (folder / "a").write_text("x")
    follow = make(folder)
    follow.freeze()
    (folder / "b").write_text("x")
    assert found(follow.changes()) == (["a"], [])
    assert found(follow.changes()) == ([], [])


def until(follow: Discovery, wanted: tuple[list[str], list[str]]) -> None:
    names: set[str] = set()
    gone: set[str] = set()

    def seen() -> bool:
        more, less = found(follow.changes())
        names.update(more)
        names.difference_update(less)
        gone.update(less)
        return (sorted(names), sorted(gone)) == wanted

    wait_for(seen)


def test_in_the_background(folder, monkeypatch):
    monkeypatch.setattr(discovery, "_QUICK_SECONDS", 0.0)
    monkeypatch.setattr(discovery, "_FEW_FILES", 0)
    (folder / "a").write_text("x")
    (folder / "b").write_text("x")
    follow, frozen = make(folder), make(folder)
    assert found(follow.changes()) == found(frozen.changes()) == (["a", "b"], [])
    with (folder / "a").open("a") as file:
        file.write("x")
    # A file that changed lately is looked at without waiting for a pass.
    assert found(follow.changes()) == found(frozen.changes()) == (["a"], [])
    (folder / "c").write_text("x")
    (folder / "b").unlink()
    until(follow, (["c"], ["b"]))
    frozen.freeze()
    threads = [follow._thread, frozen._thread]
    (folder / "d").write_text("x")
    assert found(frozen.changes()) == (["c"], ["b"])
    del follow
    for thread in threads:
        assert thread is not None
        thread.join()
        assert not thread.is_alive()


def test_only_files_are_found_and_each_once(folder, caplog):
    (folder / "sub").mkdir()
    (folder / "a").write_text("x")
    (folder / "sub" / "b").write_text("x")
    (folder / "link").symlink_to(folder / "a")
    (folder / "nothing").symlink_to(folder / "absent")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "sub" / "self").symlink_to(folder / "sub")
    os.mkfifo(folder / "pipe")
    (folder / os.fsdecode(b"\xff\xfe")).write_text("x")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(folder / "socket"))
    for root in (folder, folder / "**" / "*"):
        expected = ["a", "b", "link"]
        assert found(Discovery([str(root)], recursive=True, name_filter=None).changes()) == (expected, [])
    said = [record.getMessage() for record in caplog.records]
    for name in ("pipe", "socket", "up", "self", r"\udcff\udcfe"):
        assert sum(f"{name} is not read" in line for line in said) == 1, said
    assert found(make(folder / "loop", folder / "pipe").changes()) == ([], [])
