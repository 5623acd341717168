"""Connect a Spark Python process to the JVM before its imports: Spark waits only ten seconds (4.2.0, no setting)."""

from __future__ import annotations

import contextlib
import os
import runpy
import socket
import struct
import sys
from collections.abc import Generator
from io import IOBase

_QUIET = "pyspark.sql.streaming.transform_with_state_driver_worker"


def main(module: str) -> None:
    """Connect, then run a module of Spark's workers as ``python -m`` does."""
    path = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    if path is not None:  # a port takes the handshake of an imported pyspark
        _connect(path)
    if module == _QUIET:
        _run_quietly()
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _connect(path: str) -> None:
    """Connect to Spark's socket, send this process's number, and let the module use this connection."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    patience_s = float(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15"))
    connection.settimeout(patience_s)
    connection.connect(path)
    stream = connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536")))
    stream.write(struct.pack("!i", os.getpid()))
    stream.flush()

    @contextlib.contextmanager
    def connected(timeout: float | None = -1) -> Generator[IOBase]:
        if timeout is None or timeout > 0:
            connection.settimeout(timeout)
        try:
            yield stream
        finally:
            stream.close()

    from pyspark import worker_util

    worker_util.get_sock_file_to_executor = connected


def _run_quietly() -> None:
    """Run the worker of a stateful operator's first batch without its steps, but with its errors, on the console."""
    from pyspark import worker_util
    from pyspark.sql.streaming import transform_with_state_driver_worker as worker

    setattr(worker, "print", lambda *_: None)  # noqa: B010 the module has no such name yet
    with worker_util.get_sock_file_to_executor() as stream:
        worker.main(stream, stream)


if __name__ == "__main__":
    main(sys.argv.pop(1))
