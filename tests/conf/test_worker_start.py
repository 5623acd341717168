"""A Python process of Spark's connects before it imports, since Spark gives up after ten seconds; a server forks it."""

import json
import marshal
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import wait_for

import upstream.conf

PROGRAM = Path(upstream.conf.__file__).with_name("worker-python")
SERVER = PROGRAM.with_name("worker_start.py")
RUN = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
WORKER = """
from pathlib import Path
while not Path({go!r}).exists():  # imports that take long
    time.sleep(0.01)
from pyspark.worker_util import get_sock_file_to_executor
if __name__ == "__main__":
    with get_sock_file_to_executor(timeout=None) as stream:
        stream.write(stream.readline().upper())
"""
SEEN = """
import json, os, sys
seen = ["pyarrow" in sys.modules, "polars" in sys.modules, os.environ.get("MINE"), os.getcwd(), sys.argv[1:]]
import numpy
print(json.dumps([*seen, sys.stdin.read(), numpy.random.random(), os.getppid()]))
sys.stderr.write("an error")
sys.exit(7)
"""


def _environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "UPSTREAM_PYTHON": sys.executable, "PYTHONPATH": str(folder), "UPSTREAM_FORKS": "", **more}


def test_a_process_connects_before_it_imports(tmp_path):
    go = tmp_path / "go"
    (tmp_path / "slow_worker.py").write_text(WORKER.format(go=str(go)))
    with socket.socket(socket.AF_UNIX) as spark:
        spark.bind(str(tmp_path / "spark"))
        spark.listen()
        spark.settimeout(100)
        process = subprocess.Popen(
            [PROGRAM, "-m", "slow_worker"],
            env=_environment(tmp_path, PYTHON_WORKER_FACTORY_SOCK_PATH=str(tmp_path / "spark")),
        )
        with spark.accept()[0] as connection, connection.makefile("rwb") as stream:
            assert struct.unpack("!i", stream.read(4)) == (process.pid,)
            go.touch()
            stream.write(b"still the same connection\n")
            stream.flush()
            assert stream.read() == b"STILL THE SAME CONNECTION\n"
        assert process.wait() == 0


@pytest.fixture
def server(tmp_path):
    """The server, and the path of its socket."""
    path = tmp_path / "own" / "forks"
    path.parent.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", RUN, SERVER, "serve", path],
        env=_environment(tmp_path, OMP_NUM_THREADS="1"),
        stdin=subprocess.PIPE,
    ) as process:
        # A client that meets the server's imports on a busy machine loses patience, and runs alone.
        wait_for(lambda: path.exists() and _seen(tmp_path, UPSTREAM_FORKS=str(path))[0])
        yield process, str(path)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0
        assert not path.parent.exists()


def _seen(folder: Path, **more: str) -> list[object]:
    (folder / "seen.py").write_text(SEEN)
    done = subprocess.run(
        [PROGRAM, "-m", "seen", "a", "b"], env=_environment(folder, MINE="ü", **more), cwd=folder, input="given",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (7, "an error")
    return json.loads(done.stdout)


def test_a_fork_is_as_a_process_of_its_own_but_with_the_imports_done(tmp_path, server):
    process, path = server
    *alone, _, _ = _seen(tmp_path)
    assert alone == [False, False, "ü", str(tmp_path), ["a", "b"], "given"]
    *forked, drawn, parent = _seen(tmp_path, UPSTREAM_FORKS=path)
    assert parent == process.pid
    assert forked == [True, *alone[1:]]
    assert _seen(tmp_path, UPSTREAM_FORKS=path)[-2] != drawn


@pytest.mark.parametrize("other", [{"PYTHONPATH": "/nowhere:{}"}, {"OMP_NUM_THREADS": "3"}])
def test_a_process_with_other_imports_is_not_forked(tmp_path, server, other):
    process, path = server
    other = {name: value.format(tmp_path) for name, value in other.items()}
    imported, *_, parent = _seen(tmp_path, UPSTREAM_FORKS=path, **other)
    assert not imported
    assert parent != process.pid


def test_a_fork_ends_with_the_process_that_spark_has_started(tmp_path, server):
    _, path = server
    (tmp_path / "endless.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)\n")
    with subprocess.Popen(
        [PROGRAM, "-m", "endless"], env=_environment(tmp_path, UPSTREAM_FORKS=path), stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        fork = int(client.stdout.readline())
        assert fork != client.pid
        client.send_signal(signal.SIGTERM)
        assert client.wait() == -signal.SIGTERM
    wait_for(lambda: not Path(f"/proc/{fork}").exists())


def test_a_fork_ends_with_a_client_that_ends_before_it_has_read_the_answer(tmp_path, server):
    _, path = server
    (tmp_path / "endless.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)\n")
    given, output = os.pipe()
    request = marshal.dumps(("endless", [], _environment(tmp_path, UPSTREAM_FORKS=path), str(tmp_path)))
    with socket.socket(socket.AF_UNIX) as client, open(given) as printed:
        client.connect(path)
        socket.send_fds(client, [struct.pack("!i", len(request))], [output, output, output])
        client.sendall(request)
        os.close(output)
        fork = int(printed.readline())
    wait_for(lambda: not Path(f"/proc/{fork}").exists())


def test_a_client_that_has_waited_too_long_gets_nothing_of_the_fork(tmp_path, server):
    process, path = server
    (tmp_path / "late.py").write_text("print('late')\n")
    given, output = os.pipe()
    request = marshal.dumps(("late", [], _environment(tmp_path, UPSTREAM_FORKS=path), str(tmp_path)))
    process.send_signal(signal.SIGSTOP)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        socket.send_fds(client, [struct.pack("!i", len(request))], [output, output, output])
        client.sendall(request)
        os.close(output)
    process.send_signal(signal.SIGCONT)
    with open(given) as printed:
        assert printed.read() == ""


def test_a_server_that_is_gone_is_no_loss(tmp_path):
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "forks"))
    assert _seen(tmp_path, UPSTREAM_FORKS=str(tmp_path / "forks"))[0] is False


def test_a_fork_works_for_the_jvm_that_has_started_its_client(tmp_path, server):
    _, path = server
    java = shutil.copy("/bin/sh", tmp_path / "java")
    (tmp_path / "whose.py").write_text(
        "from upstream.conf.process_identity import driver_process\nprint(driver_process().pid)\n"
    )
    with subprocess.Popen(
        [java, "-c", f"{PROGRAM} -m whose; true"],
        env=_environment(tmp_path, UPSTREAM_FORKS=path),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.read()) == process.pid
