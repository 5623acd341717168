"""Processes and boots where there is no /proc, as on macOS."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from upstream.conf import process_identity as processes
from upstream.conf.process_identity import Process, boot_name, cores, driver_process, same_boot
from upstream.conf.session import _for_machine
from upstream.sink.table.key_index import KeyIndex


def forget() -> None:
    boot_name.cache_clear()
    processes._machine.cache_clear()


@pytest.fixture
def without_proc(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_PROC", str(tmp_path / "no proc"))
    forget()
    yield
    forget()


@pytest.mark.usefixtures("without_proc")
def test_workers_do_not_delete_each_others_indexes(tmp_path, monkeypatch):
    """Also where the clock was set between their starts; those of an earlier boot go."""
    came_up = psutil.boot_time()
    homes: list[Path] = []
    for table, moved in (("one", 0), ("one", 40), ("other", -40), ("one", 0)):
        forget()
        monkeypatch.setattr(psutil, "boot_time", lambda moved=moved: came_up + moved)
        homes.append(Path(KeyIndex(table, ["k"], str(tmp_path / "index"), 1 << 20).home))
    assert homes[0] == homes[1] == homes[3]
    assert all(home.is_dir() for home in homes)
    forget()
    monkeypatch.setattr(psutil, "boot_time", lambda: came_up + 3600)
    later = Path(KeyIndex("one", ["k"], str(tmp_path / "index"), 1 << 20).home)
    assert [path for path in (tmp_path / "index").iterdir() if path.is_dir()] == [later]


@pytest.mark.usefixtures("without_proc")
def test_a_process_and_its_end():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = Process.of(child.pid)
        assert process.started
        assert process == Process.of(child.pid)
        assert not process.is_gone()
        assert child.stdin is not None
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and a zombie
        assert process.is_gone()
    assert process.is_gone()
    assert driver_process() == Process.of(os.getpid())


@pytest.mark.usefixtures("without_proc")
def test_a_clock_that_was_set_ends_no_process():
    here = Process.of(os.getpid())
    assert not Process(here.host, here.machine, here.pid, here.started + 60 * 100).is_gone()
    assert Process(here.host, here.machine, here.pid, here.started - 24 * 3600 * 100).is_gone()


def test_cores_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cores() == os.cpu_count()
    assert _for_machine("local[*]")["spark.sql.shuffle.partitions"]


def test_boots_with_a_name_of_the_system_are_compared_exactly():
    one = uuid.uuid4()
    assert same_boot(str(one), str(one))
    assert not same_boot(str(one), str(uuid.UUID(int=one.int ^ 1)))
