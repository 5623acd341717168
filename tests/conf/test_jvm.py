"""The archive of the JVM's classes: made once, mapped, left alone by those who decide otherwise, removed when stale."""

import json
import os
import socket
import sys
from pathlib import Path

import pytest
from kit.programs import run, run_python

from upstream.conf.errors import OptionError
from upstream.conf.java import java_program
from upstream.conf.jvm import (
    OPTIONS,
    ArchiveBasis,
    ClassArchive,
    check_pages_are_local,
    java_options,
    pages_port,
)

# A JVM of this session, and whether it has mapped an archive.
SESSION = """
    import json, pathlib, upstream
    spark = upstream.session(master="local[1]")
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    spark.range(10).count()
    print(json.dumps("classes-" in pathlib.Path(f"/proc/{pid}/maps").read_text()))
"""


@pytest.fixture
def undecided(monkeypatch, tmp_path):
    """The options of tests' JVMs decide about archives; here nobody does."""
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))


def _basis(folder: Path) -> ArchiveBasis:
    for file in ("jdk/release", "jdk/lib/modules", "jdk/lib/server/classes.jsa", "spark/jars/a.jar", "delta.jar"):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)
    java, spark = folder / "jdk" / "bin" / "java", folder / "spark"
    return ArchiveBasis(str(java), str(spark), str(folder / "conf"), str(folder / "delta.jar"))


def test_an_archive_is_of_files_as_they_are(tmp_path):
    basis = _basis(tmp_path)
    key = basis.key()
    assert key == _basis(tmp_path).key() is not None
    keys = {key}
    for changed in ("jdk/release", "spark/jars/a.jar", "delta.jar"):
        (tmp_path / changed).write_text(f"another {changed}")
        keys.add(basis.key())
    (tmp_path / "spark" / "jars" / "b.jar").touch()
    keys.add(basis.key())
    assert len(keys) == 5
    (tmp_path / "conf").mkdir()
    assert basis.key() in keys
    (tmp_path / "conf" / "spark-defaults.conf").touch()  # a JVM refuses folders with files on the path
    assert basis.key() is None
    (tmp_path / "conf" / "spark-defaults.conf").unlink()
    (tmp_path / "delta.jar").unlink()
    assert basis.key() is None


def test_stale_archives_and_those_used_longest_ago_go(tmp_path, undecided):
    folder, bases = tmp_path / "cache", [_basis(tmp_path / name) for name in "abcde"]
    folder.mkdir()
    for used, basis in enumerate(bases):
        facts = folder / f"classes-{basis.key()}.json"
        facts.write_text(json.dumps(vars(basis)))
        facts.with_suffix(".jsa").touch()
        os.utime(facts, (used, used))
    (tmp_path / "e" / "delta.jar").write_text("another")
    (folder / "classes-0.json").write_text("{")
    archive = ClassArchive.of("", folder=folder)
    assert archive is not None
    archive.remove_stale()
    left = {path.name for path in folder.iterdir()}
    assert left == {f"classes-{basis.key()}.{kind}" for basis in (bases[2], bases[3]) for kind in ("json", "jsa")}


@pytest.mark.parametrize("decided", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=mine"])
def test_who_decides_about_archives_is_left_alone(undecided, monkeypatch, decided):
    assert ClassArchive.of("", "-Dmine=1") is not None
    assert ClassArchive.of("", f"-Dmine=1 {decided}") is None
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", decided)
    assert ClassArchive.of("") is None


def test_a_jvm_that_cannot_map_an_archive_starts_without_a_word(tmp_path, undecided):
    archive = ClassArchive.of("", folder=tmp_path)
    assert archive is not None
    assert "SharedArchiveFile" not in java_options({OPTIONS: "-Dmine=1"}, archive)
    archive.path.write_bytes(b"\0" * 100_000)
    options = java_options({OPTIONS: "-Dmine=1"}, archive)
    assert f'"-XX:SharedArchiveFile={archive.path}"' in options
    given = [each.strip('"') for each in options.split()]
    done = run(java_program() or "java", *given, "-version")
    assert done.returncode == 0
    assert done.stdout == ""
    assert "warn" not in done.stderr.lower()


@pytest.mark.slow
@pytest.mark.spark
def test_a_session_maps_the_archive_that_an_earlier_one_has_made_in_the_background(tmp_path, undecided):
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    done = run_python(SESSION, cwd=tmp_path, **environment)
    assert (done.returncode, json.loads(done.stdout)) == (0, False), done.stderr
    # The one that runs now has the lock; or it has ended.
    made = run(sys.executable, "-m", "upstream.conf.jvm", cwd=tmp_path, env={**os.environ, **environment})
    assert made.returncode == 0, made.stderr
    (archive,) = (tmp_path / "cache" / "upstream").glob("classes-*.jsa")
    assert {each.name for each in archive.parent.iterdir()} == {archive.name, f"{archive.stem}.json", "making"}
    done = run_python(SESSION, cwd=tmp_path, **environment)
    assert (done.returncode, json.loads(done.stdout)) == (0, True), done.stderr
    assert "shared" not in done.stdout + done.stderr, "nothing about archives"


def test_sparks_pages_take_a_free_port_and_no_address_that_others_reach(monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert pages_port(port) == "0"
    assert pages_port(port) == str(port)
    check_pages_are_local()
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.5")
    with pytest.raises(OptionError, match=r"no password, to other machines.*unset SPARK_LOCAL_IP"):
        check_pages_are_local()
