"""A real Kafka broker on this machine, for tests, the demo and benchmarks: one KRaft node, started and stopped as a
process.

Its jars are fetched once, by the Ivy that Spark brings, into ``.cache/kafka``; Java and pyspark are all it takes. By
hand, until Ctrl-C: ``python tools/kafka.py``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from upstream.conf.jars import fetch
from upstream.conf.progress import progress

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Broker", "kafka_jars"]

PACKAGES = ("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
# Of the names and contents of all jars: what a broken download left is not taken for a broker.
DIGEST = "352900dcdc9fe35135538b9a4bef7c01b74ee1a98357cb2fc854c7d6c5dd76ae"
_CACHE = Path(__file__).resolve().parents[1] / ".cache" / "kafka"
_READY_S = 60.0


def kafka_jars() -> Path:
    """Return the folder of the broker's jars; download them (38 MB) if they are missing.

    Raises
    ------
    RuntimeError
        They cannot be fetched, or are not the ones they should be.
    """
    jars = _CACHE / "jars"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _digest(jars) != DIGEST:
            shutil.rmtree(jars, ignore_errors=True)
            with progress("fetching the broker's jars: 38 MB, once"):
                output = fetch(_CACHE, PACKAGES)
            if _digest(jars) != DIGEST:
                raise RuntimeError(
                    f"the jars of {PACKAGES[0]} in {jars} are not the published ones, or could not be fetched; Ivy's "
                    "last words:\n" + "\n".join(output.splitlines()[-5:])
                )
    return jars


class Broker:
    """One broker, with nobody to replicate to.

    Parameters
    ----------
    folder : pathlib.Path
        Its data and its log. It may have been used before: then what it holds is there again.
    heap : str
        The JVM's largest heap.

    Attributes
    ----------
    address : str
        For ``bootstrap.servers``; the same after a restart.
    """

    def __init__(self, folder: Path, *, heap: str = "512m") -> None:
        self._folder = folder
        self._heap = heap
        self._port, self._controller = _free_ports(2)
        self.address = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        properties = self._folder / "server.properties"
        properties.write_text(self._properties())
        if not (self._folder / "data" / "meta.properties").exists():
            given = ("format", "-t", _topic_like_uuid(), "-c", str(properties))
            subprocess.run(self._java("kafka.tools.StorageTool", *given), check=True, stdout=subprocess.DEVNULL)
        command = self._java("kafka.Kafka", str(properties))
        try:
            with (self._folder / "broker.log").open("ab") as log:
                # In a session of its own: a Ctrl-C at the terminal is for whoever started it, who stops it in order.
                self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            self._wait()
        except BaseException:  # also a Ctrl-C: nobody could stop it any more
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill -9."""
        self._end(signal.SIGKILL)

    @property
    def admin(self) -> AdminClient:
        """A client to manage it by: one, since what it promises goes with it."""
        if self._admin is None:
            self._admin = AdminClient(
                {"bootstrap.servers": self.address, "log_level": 0, "reconnect.backoff.max.ms": 200}
            )
        return self._admin

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """Make a topic; its name. Settings by their names, with ``_`` for ``.``."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        made[topic].result(timeout=30)
        self._until(lambda: len(self._partitions(topic)) == partitions)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic so many partitions."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(timeout=30)
        self._until(lambda: len(self._partitions(topic)) == partitions)

    def log_of(self, topic: str, partition: int = 0) -> Path:
        """Return the folder of a partition's log."""
        return self._folder / "data" / f"{topic}-{partition}"

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result(timeout=30)
        self._until(lambda: not self._partitions(topic))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _partitions(self, topic: str) -> dict[int, Any]:
        found = self.admin.list_topics(timeout=10).topics.get(topic)
        return {} if found is None or found.error is not None else found.partitions

    def _until(self, holds: Any) -> None:
        end = time.monotonic() + _READY_S
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError(f"the broker at {self.address} did not do what it was asked for")
            time.sleep(0.05)

    def _wait(self) -> None:
        end = time.monotonic() + _READY_S
        while True:
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                self._end(signal.SIGKILL)
                broker_log = (self._folder / "broker.log").read_text(errors="replace")
                raise RuntimeError(f"the broker did not come up:\n{broker_log[-3000:]}")
            try:
                if self.admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                time.sleep(0.1)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        finally:  # also after a second Ctrl-C
            process.kill()
            process.wait()

    def _java(self, *command: str) -> list[str]:
        # Ivy leaves Scala out, which Spark brings.
        (scala,) = Path(pyspark.__path__[0], "jars").glob("scala-library-2.13*.jar")
        return ["java", f"-Xmx{self._heap}", "-cp", f"{kafka_jars()}/*:{scala}", *command]

    def _properties(self) -> str:
        data = self._folder / "data"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(data),
            "auto.create.topics.enable": "false",
            # By default a whole segment goes whose records are stamped more than a week ago, as recorded streams are.
            "log.retention.ms": "-1",
            "log.retention.check.interval.ms": "500",
            "log.cleaner.backoff.ms": "200",
            "log.cleaner.dedupe.buffer.size": str(16 << 20),
            "log.segment.delete.delay.ms": "100",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            # After kill -9 the controller takes the dead broker for alive for so long, and does not let it in again.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


def _topic_like_uuid() -> str:
    import base64

    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):  # the tool would take it for an option
            return made


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _digest(jars: Path) -> str:
    seen = hashlib.sha256()
    for path in sorted(jars.glob("*.jar")):
        seen.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return seen.hexdigest()


def _main() -> None:
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder)) as broker:
        print(f"Kafka listens on {broker.address}. Ctrl-C stops it, and what it holds is gone then.", flush=True)
        for each in (signal.SIGINT, signal.SIGTERM):  # a shell lets what it starts in the background ignore Ctrl-C
            signal.signal(each, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping", file=sys.stderr)


if __name__ == "__main__":
    _main()
