"""A Python process of Spark's connects before it imports: Spark gives up after ten seconds."""

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import upstream.conf

PROGRAM = Path(upstream.conf.__file__).with_name("worker-python")
WORKER = """
from pathlib import Path
import time
while not Path({go!r}).exists():  # imports that take long
    time.sleep(0.01)
from pyspark.worker_util import get_sock_file_to_executor
if __name__ == "__main__":
    with get_sock_file_to_executor(timeout=None) as stream:
        stream.write(stream.readline().upper())
"""


def test_a_process_connects_before_it_imports(tmp_path):
    go = tmp_path / "go"
    (tmp_path / "slow_worker.py").write_text(WORKER.format(go=str(go)))
    with socket.socket(socket.AF_UNIX) as spark:
        spark.bind(str(tmp_path / "spark"))
        spark.listen()
        spark.settimeout(100)
        process = subprocess.Popen(
            [PROGRAM, "-m", "slow_worker"],
            env={
                **os.environ,
                "UPSTREAM_PYTHON": sys.executable,
                "PYTHONPATH": str(tmp_path),
                "PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "spark"),
            },
        )
        with spark.accept()[0] as connection, connection.makefile("rwb") as stream:
            assert struct.unpack("!i", stream.read(4)) == (process.pid,)
            go.touch()
            stream.write(b"still the same connection\n")
            stream.flush()
            assert stream.read() == b"STILL THE SAME CONNECTION\n"
        assert process.wait(100) == 0
