"""Record the change events of a table with Debezium and PostgreSQL: ``python tools/debezium.py FILE``.

The recording is what the tests of change events read. PostgreSQL is Debian's (``apt-get install postgresql``), and
Debezium's engine comes from Maven by the Ivy that Spark brings, into ``.cache/debezium``.

The file's first line has the schemas of the events and the table at the end. Each further line has a message: its key
and value, with the number of a schema in place of the schema.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upstream.conf.jars import fetch

if TYPE_CHECKING:
    from typing_extensions import Self

PACKAGES = (
    *(f"io.debezium:debezium-{name}:3.6.1.Final" for name in ("api", "embedded", "connector-postgres")),
    "org.slf4j:slf4j-simple:2.0.17",
)
_CACHE = Path(__file__).resolve().parents[1] / ".cache" / "debezium"
_WAIT_S = 60.0
_ENGINE = """\
import io.debezium.engine.*;
import io.debezium.engine.format.Json;
import java.io.*;
import java.util.Properties;

public class Recorder {
    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        try (Reader in = new FileReader(given[0])) { settings.load(in); }
        PrintWriter out = new PrintWriter(new FileWriter(given[1]), true);
        try (DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class).using(settings)
                .notifying(event -> out.println("{\\"key\\":" + event.key() + ",\\"value\\":" + event.value() + "}"))
                .build()) {
            engine.run();
        }
    }
}
"""

_TABLE = """
CREATE TABLE orders (
  id BIGINT PRIMARY KEY, customer TEXT NOT NULL, total NUMERIC(10, 2), due DATE, placed TIMESTAMP, paid TIMESTAMPTZ,
  seal BYTEA
);
INSERT INTO orders SELECT n, 'c' || n % 3, n * 1.25 - 4, DATE '2024-02-27' + n, TIMESTAMP '2024-02-27 10:00' + n *
  INTERVAL '1 hour 1 microsecond', TIMESTAMPTZ '2024-02-27 10:00+02' + n * INTERVAL '1 day', decode(lpad(to_hex(n * 97),
  6, '0'), 'hex') FROM generate_series(1, 8) AS n;
"""
# Each line is a transaction of its own.
_CHANGES = """\
INSERT INTO orders VALUES (9, 'c9', 99.99, NULL, NULL, NULL, NULL), (10, 'Zoë', -0.01, '1969-12-31', \
'1969-12-31 23:59:59.999999', '1969-12-31 23:59:59+00', '\\xff')
UPDATE orders SET total = total * 2 WHERE id <= 3
UPDATE orders SET id = 30 WHERE id = 3
DELETE FROM orders WHERE id = 2
INSERT INTO orders (id, customer) VALUES (2, 'back')
BEGIN; UPDATE orders SET total = 1 WHERE id = 4; UPDATE orders SET total = 2 WHERE id = 4; \
DELETE FROM orders WHERE id = 4; INSERT INTO orders (id, customer, total) VALUES (4, 'again', 3); COMMIT
BEGIN; UPDATE orders SET id = 50 WHERE id = 5; UPDATE orders SET id = 5, total = 7 WHERE id = 50; COMMIT
BEGIN; UPDATE orders SET id = 70 WHERE id = 7; UPDATE orders SET id = 7 WHERE id = 8; \
UPDATE orders SET id = 8 WHERE id = 70; COMMIT
DELETE FROM orders WHERE id = 30
"""
_LATER_CHANGES = (
    "ALTER TABLE orders ADD COLUMN channel TEXT",
    "UPDATE orders SET channel = 'web', total = NULL WHERE id = 1",
    "INSERT INTO orders (id, customer, total, channel) VALUES (11, 'last', 12345678.9, 'phone')",
    "DELETE FROM orders WHERE id = 6",
)


class Database:
    """PostgreSQL with a logical log, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bin = max(Path("/usr/lib/postgresql").glob("*/bin"))
        # PostgreSQL does not run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]

    def __enter__(self) -> Self:
        self._folder.mkdir()
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        data = str(self._folder / "data")
        self._run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", data)
        options = f"-p {self.port} -c wal_level=logical -c fsync=off -k {self._folder}"
        self._run("pg_ctl", "-w", "-D", data, "-o", options, "-l", str(self._folder / "log"), "start")
        return self

    def __exit__(self, *_: object) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")

    def session(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._psql(), "-q"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=self._user
        )

    def execute(self, statement: str) -> str:
        command = [*self._psql(), "-qAtc", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True, user=self._user).stdout

    def _psql(self) -> list[str]:
        place = ("-h", str(self._folder), "-p", str(self.port), "-U", "postgres")
        return [str(self._bin / "psql"), "-v", "ON_ERROR_STOP=1", *place]

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=self._user, cwd=self._folder)


def record(folder: Path, **settings: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages of a run, in order, and the table at its end."""
    folder.chmod(0o755)
    with Database(folder / "postgres") as database:
        for statement in _TABLE.split(";\n"):
            database.execute(statement)
        given = {
            "name": "recorder", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput", "topic.prefix": "shop", "table.include.list": "public.orders",
            "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "database.hostname": "127.0.0.1", "database.port": str(database.port), "database.user": "postgres",
            "database.dbname": "postgres", **settings,
        }  # fmt: skip
        (folder / "engine.properties").write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        (folder / "Recorder.java").write_text(_ENGINE)
        out = folder / "events.jsonl"
        out.touch()
        command = ["java", "-cp", f"{_jars()}/*", "Recorder.java", "engine.properties", "events.jsonl"]
        with (folder / "engine.log").open("wb") as log:
            engine = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            _wait(lambda: _count(out) == 8, engine, folder)
            for statement in _CHANGES.splitlines():
                database.execute(statement)
            _interleave(database)
            for statement in _LATER_CHANGES:
                database.execute(statement)
            _wait(lambda: out.read_text().endswith('"value":null}\n') and '"last"' in out.read_text(), engine, folder)
        finally:
            engine.kill()
            engine.wait()
        rows = database.execute("SELECT row_to_json(orders) FROM orders ORDER BY id")
    return [json.loads(line) for line in out.read_text().splitlines()], [json.loads(row) for row in rows.splitlines()]


def _interleave(database: Database) -> None:
    """Run two transactions, of which the first to write is the last to commit."""
    early = database.session()
    assert early.stdin is not None
    early.stdin.write("BEGIN; UPDATE orders SET total = 11 WHERE id = 9; SELECT pg_sleep(1);\n")
    early.stdin.flush()
    time.sleep(0.3)
    database.execute(
        "BEGIN; UPDATE orders SET total = 12 WHERE id = 10; UPDATE orders SET total = 13 WHERE id = 1; COMMIT"
    )
    early.stdin.write("UPDATE orders SET total = 14 WHERE id = 1; UPDATE orders SET total = 15 WHERE id = 9; COMMIT;\n")
    early.stdin.close()
    assert early.wait() == 0


def stored(messages: list[dict[str, Any]], table: list[dict[str, Any]]) -> str:
    """Return the text of a recording, in which each schema occurs once."""
    schemas: list[Any] = []

    def short(part: Any) -> Any:
        if part is None:
            return None
        if part["schema"] not in schemas:
            schemas.append(part["schema"])
        return {"schema": schemas.index(part["schema"]), "payload": part["payload"]}

    lines = [{name: short(part) for name, part in message.items()} for message in messages]
    return "".join(
        json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
        for line in ({"schemas": schemas, "table": table}, *lines)
    )


def _jars() -> Path:
    jars = _CACHE / "jars"
    if not jars.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        fetch(_CACHE, PACKAGES)
    return jars


def _count(path: Path) -> int:
    return path.read_text().count("\n")


def _wait(holds: Any, engine: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + _WAIT_S
    while not holds():
        if engine.poll() is not None or time.monotonic() > end:
            log = (folder / "engine.log").read_text(errors="replace")
            raise RuntimeError(f"the events did not come; the engine's last words:\n{log[-3000:]}")
        time.sleep(0.1)


def _main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        messages, table = record(Path(folder))
        Path(sys.argv[1]).write_text(stored(messages, table), encoding="utf-8")
    print(f"{len(messages)} messages and {len(table)} rows are in {sys.argv[1]}.")


if __name__ == "__main__":
    _main()
