"""Files that are whole or not there."""

import os
import resource
from collections.abc import Callable

import pyarrow as pa
import pytest

from upstream.storage.atomic_write import replace_text, write_whole


def write(text: bytes) -> Callable[[pa.NativeFile], object]:
    return lambda stream: stream.write(text)


@pytest.mark.parametrize("as_uri", [False, True])
def test_the_last_one_is_there(tmp_path, as_uri):
    folder = tmp_path / "new" / "folder"
    for text in (b"one", b"another"):
        write_whole(folder.as_uri() if as_uri else str(folder), "a.json", write(text))
    assert (folder / "a.json").read_bytes() == b"another"


def test_a_writer_that_fails_leaves_the_last_one(tmp_path):
    write_whole(str(tmp_path), "a.json", write(b"one"))

    def half(stream: pa.NativeFile) -> None:
        stream.write(b"o")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(str(tmp_path), "a.json", half)
    assert (tmp_path / "a.json").read_bytes() == b"one"


def test_what_killed_writers_left_is_taken_away_with_the_next(tmp_path):
    (tmp_path / ".staged").mkdir()
    (tmp_path / ".staged" / "a.json.77").write_bytes(b"hal")
    (tmp_path / ".staged" / "b.json.78").write_bytes(b"somebody is writing it")
    for name in ("a.json.77", "b.json.78"):
        os.utime(tmp_path / ".staged" / name, (1, 1))
    write_whole(str(tmp_path), "a.json", write(b"whole"))
    assert [file.name for file in (tmp_path / ".staged").iterdir()] == ["b.json.78"]


def test_a_twin_at_work_is_left_alone(tmp_path):
    def while_the_twin_writes(stream: pa.NativeFile) -> None:
        stream.write(b"who")
        write_whole(str(tmp_path), "a.json", write(b"whole"))
        stream.write(b"le")

    write_whole(str(tmp_path), "a.json", while_the_twin_writes)
    assert (tmp_path / "a.json").read_bytes() == b"whole"
    assert list((tmp_path / ".staged").iterdir()) == []


def test_a_full_disk_leaves_the_users_file_as_it_was(tmp_path):
    file, link = tmp_path / "job.sql", tmp_path / "link.sql"
    file.write_text("select 1;")
    file.chmod(0o640)
    link.symlink_to(file)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            replace_text(link, "SELECT 1;\n" * 5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_text() == "select 1;"
    replace_text(link, "SELECT 1;\n")
    assert file.read_text() == "SELECT 1;\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [file, link]
    assert link.is_symlink()
