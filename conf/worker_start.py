"""Start a Python process of Spark's: as a fork of a server that has imported what most of them need, or alone.

A path runs this file, with as few imports as possible: ``fork SOCKET MODULE``, ``run MODULE`` or ``serve SOCKET``.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Generator, Sequence
    from io import IOBase
    from typing import NoReturn

    from typing_extensions import Self

STARTED_BY = "UPSTREAM_STARTED_BY"
"""Variable: the process that Spark has started, in place of the fork's parent."""

_DAEMON = "pyspark.daemon"
_QUIET = "pyspark.sql.streaming.transform_with_state_driver_worker"
_PATIENCE_S = 5
_PATH, _CORES = "PYTHONPATH", "OMP_NUM_THREADS"
# None of them starts a thread, apart from one of pyarrow's that survives forks. Polars and deltalake would.
_IMPORTED = (
    "numpy.random", "pandas", "pyarrow.compute", "pyspark.daemon", "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner", "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.stateful_processor_api_client", "pyspark.sql.streaming.proto.StateMessage_pb2",
    "upstream.datasource.spark_reader", "upstream.datasource.connectors.files.connector",
    "upstream.operators.runtime.shard_processor", "upstream.sink.spark_writer",
)  # fmt: skip
_THREADED = ("polars", "deltalake")


def run(module: str) -> None:
    """Run a module of Spark's workers as ``python -m`` does. All but the daemon connect to Spark first."""
    # Spark waits only ten seconds for the connection (4.2.0, no setting), and imports may take longer.
    import runpy

    if module == _DAEMON:
        runpy.run_path(os.path.join(os.path.dirname(__file__), "worker_daemon.py"), run_name="__main__")
        return
    path = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    if path is not None:  # a port takes the handshake of an imported pyspark
        _connect(path)
    if module == _QUIET:
        _run_quietly()
    else:
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _connect(path: str) -> None:
    """Connect to Spark's socket, send this process's number, and let the module use this connection."""
    import contextlib
    import socket
    import struct

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


def fork(path: str, module: str, given: Sequence[str]) -> int | None:
    """Let the server start the process with this one's files and environment, and wait for its end.

    Returns
    -------
    int or None
        The exit code; None if the server cannot start it.
    """
    import marshal
    from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
    from struct import pack

    server = socket(AF_UNIX, SOCK_STREAM)
    try:
        server.settimeout(_PATIENCE_S)
        server.connect(path)
        request = marshal.dumps((module, [*given], {**os.environ, STARTED_BY: str(os.getpid())}, os.getcwd()))
        server.sendmsg([pack("!i", len(request))], [(SOL_SOCKET, SCM_RIGHTS, pack("3i", 0, 1, 2))])
        server.sendall(request)
        if server.recv(1) != b"y":
            return None
        server.settimeout(None)
    except OSError:
        return None
    code = server.recv(1)
    return code[0] if code else 1


def serve(path: str) -> None:
    """Fork a process for each client until this process's input ends."""
    import contextlib
    import gc
    import select
    import signal
    import socket
    import warnings
    from importlib import import_module

    # Clients that come early wait, instead of importing the same beside this process.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    try:
        for name in _IMPORTED:
            import_module(name)
        if any(name in sys.modules for name in _THREADED):
            return
        # Forks of forks as well: no two draw the same numbers.
        os.register_at_fork(after_in_child=sys.modules["numpy.random"].seed)
        gc.collect()
        gc.freeze()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(listener, select.POLLIN)
        while all(number != 0 for number, _ in poll.poll()):
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError, ValueError, EOFError):  # noqa: SIM117
                with Request.received(client) as request:
                    if not request.fits():
                        client.sendall(b"n")
                        continue
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of pyarrow's thread
                        child = os.fork()
                    if child == 0:
                        listener.close()
                        request.run(client)
    finally:
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


class Request:
    """What a client wants to run, with which files as its input and outputs, environment and folder."""

    def __init__(
        self, files: list[int], module: str, given: list[str], environment: dict[str, str], folder: str
    ) -> None:
        self._files, self._module, self._given = files, module, given
        self._environment, self._folder = environment, folder

    @classmethod
    def received(cls, client: socket.socket) -> Request:
        import marshal
        import socket

        client.settimeout(_PATIENCE_S)
        length, files, _, _ = socket.recv_fds(client, 4, 3)
        with client.makefile("rb") as stream:
            return cls(files, *marshal.loads(stream.read(int.from_bytes(length, "big"))))  # noqa: S302 this user's own

    def fits(self) -> bool:
        """Return whether a fork of this process has the imports that the client's own process would have."""
        own, asked = os.environ, self._environment
        return _parts(own.get(_PATH)) == _parts(asked.get(_PATH)) and asked.get(_CORES) in {None, own.get(_CORES)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._files:
            os.close(number)

    def run(self, client: socket.socket) -> NoReturn:
        """Be the process, and end."""
        import atexit
        import contextlib
        import importlib
        import signal
        import threading
        import traceback

        code = 1
        try:
            for place, number in enumerate(self._files):
                os.dup2(number, place)
                os.close(number)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.environ.clear()
            os.environ.update(self._environment)
            os.chdir(self._folder)
            if _CORES not in self._environment:
                import pyarrow as pa

                pa.set_cpu_count(len(os.sched_getaffinity(0)))
            importlib.invalidate_caches()
            client.settimeout(None)
            try:
                client.sendall(b"y")
            except OSError:  # a client that has waited too long runs the module itself
                os._exit(code)
            threading.Thread(target=_end_with, args=(client,), daemon=True).start()
            sys.argv = [self._module, *self._given]
            run(self._module)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001 as Python itself does at the end of a program
            traceback.print_exc()
        finally:
            for each in threading.enumerate():
                if each is not threading.current_thread() and not each.daemon:
                    each.join()
            atexit._run_exitfuncs()
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            with contextlib.suppress(OSError):
                client.sendall(bytes([code & 255]))
            os._exit(code & 255)


def _end_with(client: socket.socket) -> None:
    """End this process when its client ends: Spark ends the process that it has started."""
    import contextlib
    import signal

    with contextlib.suppress(OSError):  # a client that ends before it reads the answer resets the connection
        client.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


def _parts(path: str | None) -> list[str]:
    return list(dict.fromkeys(filter(None, (path or "").split(os.pathsep))))


def main() -> None:
    """Run the command line."""
    how, *given = sys.argv[1:]
    sys.argv[1:] = given[1 if how == "run" else 2 :]
    if how == "serve":
        serve(given[0])
    elif how == "run":
        run(given[0])
    else:
        socket_path, module, *more = given
        code = fork(socket_path, module, more)
        if code is None:
            program = f"import runpy; runpy.run_path({__file__!r}, run_name='__main__')"
            python = os.environ["UPSTREAM_PYTHON"]
            os.execv(python, [python, "-c", program, "run", module, *more])  # noqa: S606
        os._exit(code)


if __name__ == "__main__":
    main()
