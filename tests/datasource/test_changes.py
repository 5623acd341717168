"""Change events as rows and deletions: the table that they lead to, however they are shuffled and sent again."""

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.hosting import Tables, Versions, run
from kit.local_host import LocalHost
from kit.recorded_changes import Recording
from kit.sink import Sink
from kit.tables import read_letters, read_table
from pyspark.sql.pandas.types import to_arrow_schema

from upstream.conf.errors import MalformedRowError, OptionError, SchemaError
from upstream.core.rows.system_column import SYSTEM
from upstream.datasource.changes import positions_of
from upstream.datasource.planner import BatchPlanner
from upstream.datasource.schema import feed_key
from upstream.datasource.spark_reader import UpstreamStreamReader, source_schema
from upstream.hosting.messages import Command
from upstream.language import Catalog
from upstream.operators.relations.plan.nodes import Stream
from upstream.sink.admin.check import check_table

RECORDING = Recording()
DDL = (
    "id BIGINT, customer STRING, total DECIMAL(10,2), due DATE, placed TIMESTAMP, paid TIMESTAMP, seal BINARY, "
    "channel STRING"
)
SOURCE = {"connector": "postgresql", "ts_ms": 1_700_000_000_123, "lsn": 5}


class Feed:
    """A folder of change events, read batch by batch as a query does, each batch by a reader of its own."""

    def __init__(self, folder: Path, lines: Sequence[bytes] = (), **options: str) -> None:
        self.folder = folder / "feed"
        self.folder.mkdir(parents=True)
        self.options = {"path": str(self.folder), "fileFormat": "debezium", "deadLetters": str(folder / "dead")}
        self.options |= {name: str(value) for name, value in options.items()}
        self._files = 0
        self.send(lines)
        self.schema: Any = source_schema(self.options)
        if isinstance(self.schema, str):
            from pyspark.sql.pandas.types import from_arrow_schema

            from upstream.expressions.bind import arrow_schema

            self.schema = from_arrow_schema(arrow_schema(self.schema))
        self.offset: Any = BatchPlanner.initial()

    def send(self, lines: Sequence[bytes]) -> None:
        if lines:
            self._files += 1
            (self.folder / f"{self._files:03}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))

    def batches(self) -> list[pa.RecordBatch]:
        """The rows of the next batch."""
        reader = UpstreamStreamReader(self.options, self.schema)
        end = reader.latestOffset(self.offset, reader.getDefaultReadLimit())
        parts = reader.partitions(self.offset, end)
        self.offset = end
        return [batch for part in parts for batch in reader.read(part)]

    def rows(self) -> list[dict[str, Any]]:
        found = [row for batch in self.batches() for row in batch.to_pylist()]
        return [{"deleted": row.pop(SYSTEM)["deleted"], **row} for row in found]


def event(op: str, row: Mapping[str, Any] | None, **source: Any) -> bytes:
    before, after = (row, None) if op == "d" else (None, row)
    return json.dumps({"before": before, "after": after, "source": {**SOURCE, **source}, "op": op}).encode()


def as_told(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as PostgreSQL's row_to_json tells it, in the types of the columns."""
    made = dict(row)
    made["total"] = None if row["total"] is None else Decimal(str(row["total"])).quantize(Decimal("0.01"))
    made["due"] = None if row["due"] is None else dt.date.fromisoformat(row["due"])
    for name in ("placed", "paid"):
        at = None if row[name] is None else dt.datetime.fromisoformat(row[name])
        made[name] = None if at is None else at.replace(tzinfo=at.tzinfo or dt.timezone.utc)
    made["seal"] = None if row["seal"] is None else bytes.fromhex(row["seal"].removeprefix("\\x"))
    return made


EXPECTED = {row["id"]: as_told(row) for row in RECORDING.table}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_order_with_replays_leads_to_the_table_of_the_source(tmp_path_factory, data):
    lines = RECORDING.lines()
    places = range(len(lines))  # a failure shows them, not the lines
    replays = data.draw(st.lists(st.integers(0, len(lines)), max_size=2))
    sent = data.draw(st.permutations([*places, *(at for end in replays for at in places[:end])]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=3)))
    folder = tmp_path_factory.mktemp("changes")
    feed = Feed(folder, lines, coalesce=str(data.draw(st.booleans())))
    assert feed_key(feed.schema) == ("id",)
    (feed.folder / "001.jsonl").unlink()
    columns = to_arrow_schema(feed.schema, timezone="UTC").remove(len(feed.schema) - 1)
    sink = Sink(folder, columns, {"key": "id", "eventTime": "_position", "buckets": "2"})
    for number, (low, high) in enumerate(zip([0, *cuts], [*cuts, len(sent)], strict=True)):
        feed.send([lines[at] for at in sent[low:high]])
        sink.batch(number, feed.batches())
    names = [name for name in columns.names if name != "_position"]
    assert {row["id"]: {name: row[name] for name in names} for row in sink.table().to_pylist()} == EXPECTED
    assert check_table(str(sink.path)).healthy
    assert read_letters(folder / "dead") == []


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chance=st.randoms(use_true_random=False))
def test_the_newest_rows_of_queries_are_the_table_of_the_source(tmp_path_factory, chance):
    lines = RECORDING.lines()
    feed = Feed(tmp_path_factory.mktemp("hosted"), lines)
    (feed.folder / "001.jsonl").unlink()
    columns = to_arrow_schema(feed.schema, timezone="UTC").remove(len(feed.schema) - 1)
    orders = Stream("orders", columns, ("id",), "_position", updates=True)
    text = "SELECT id, customer, total FROM LATEST(orders)"
    versions = Versions({1: {"copy": (1, text)}}, catalog=Catalog().with_stream(orders))
    host = LocalHost(versions, 2, chance)
    tables = Tables(host.plan(1))
    sent = [*lines, *lines[:30]]
    chance.shuffle(sent)
    for number, low in enumerate(range(0, len(sent), 30)):
        feed.send(sent[low : low + 30])
        rows = [pa.Table.from_batches([each]) for each in feed.batches()]
        host = run(host, Command(number, 1, served=None), {"orders": rows}, tables)
    assert tables.failed == {}
    assert tables.contents(1) == {(key, row["customer"], row["total"]): 1 for key, row in EXPECTED.items()}


@pytest.mark.parametrize("schemas", [True, False])
def test_given_columns_are_read_with_and_without_the_schema_of_events(tmp_path, schemas):
    ddl = (
        DDL
        if schemas
        else "id BIGINT, customer STRING, total STRING, due DATE, placed BIGINT, paid TIMESTAMP, seal BINARY"
    )
    feed = Feed(tmp_path, RECORDING.lines(schemas=schemas), schema=ddl, key="id", coalesce="true")
    found = {row["id"]: row for row in feed.rows() if not row["deleted"]}
    assert found.keys() == EXPECTED.keys()
    same = [name for name in found[1] if name in ("id", "customer", "due", "paid", "seal")]
    assert [[row[name] for name in same] for row in found.values()] == [
        [EXPECTED[key][name] for name in same] for key in found
    ]
    placed = found[1]["placed"]
    assert (placed if schemas else dt.datetime.fromtimestamp(placed / 1e6, dt.timezone.utc)) == EXPECTED[1]["placed"]


def test_columns_of_the_event_are_there_where_they_are_named(tmp_path):
    select = "id, _op, _committed, _source.lsn AS lsn"
    lines = [event("c", {"id": 1}), event("d", {"id": 2}, lsn=9)]
    row, gone = Feed(tmp_path, lines, key="id", select=select).rows()
    at = dt.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=dt.timezone.utc)
    assert row == {"id": 1, "_op": "c", "_committed": at, "lsn": 5, "_position": 5, "deleted": False}
    assert (gone["id"], gone["_op"], gone["deleted"]) == (2, "d", True)


def test_members_of_the_source_may_order_the_changes(tmp_path):
    lines = [event("c", {"id": 1, "v": v}, connector="sqlserver", change_lsn=v) for v in ("b", "c", "a")]
    (row,) = Feed(tmp_path, lines, key="id", coalesce="true", sequenceBy="_source.change_lsn").rows()
    assert (row["v"], row["_source"]["change_lsn"]) == ("c", "c")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (event("t", None), "truncated the table"),
        (event("m", None), "logical message"),
        (event("x", {"id": 1}), "none of c, u, d, and r"),
        (event("c", {"id": 1}, lsn=None), "source.lsn of the connector postgresql is null"),
        (event("c", {"id": 1}, connector="mysql"), "source.file and pos of the connector mysql"),
        (event("u", {"id": 1, "v": "__debezium_unavailable_value"}), "'v' is not in the event.*REPLICA IDENTITY FULL"),
        (event("d", None), "key column 'id' is null"),
        (event("c", {"id": "one"}), "member 'after/id' is a string and not a number"),
        (b'{"id": 1}', "no change event.*'op'"),
        (b'{"op": "c"', "not JSON"),
    ],
)
def test_what_is_no_change_of_a_row_goes_aside_with_the_reason(tmp_path, line, reason):
    feed = Feed(tmp_path, [event("c", {"id": 1, "v": "a"}), line, event("d", {"id": 1, "v": "a"})], key="id",
                schema="id BIGINT, v STRING")  # fmt: skip
    assert [(row["id"], row["deleted"]) for row in feed.rows()] == [(1, False), (1, True)]
    (letter,) = read_table(tmp_path / "dead").column("reason").to_pylist()
    assert re.search(reason, letter)


def test_a_truncation_stops_a_query_that_takes_no_malformed_row(tmp_path):
    feed = Feed(tmp_path, [event("c", {"id": 1}), event("t", None)], key="id", onMalformed="fail")
    with pytest.raises(MalformedRowError, match="truncated the table"):
        feed.rows()


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([{"connector": "postgresql", "lsn": 7, "ts_ms": 9}], [7]),
        ([{"connector": "sqlserver", "lsn": None, "ts_ms": 9}, {"connector": "db2", "ts_ms": None}], [9, None]),
        (
            [
                {"connector": "mysql", "file": file, "pos": pos, "row": row}
                for file, pos, row in [
                    ("bin.000009", (1 << 32) - 1, 0), ("bin.000010", 4, 0), ("bin.000010", 4, 1),
                    ("bin.000010", 40, None), ("bin.1000000", 4, 0),
                ]
            ],
            "increase",
        ),
        (
            [
                {"connector": "mysql", "file": "", "pos": 0, "op": "r"},
                {"connector": "mysql", "file": "bin.1", "pos": 4},
                {"connector": "mysql", "file": "bin.2", "pos": 0, "op": "r"},
                {"connector": "mysql", "file": "bin.2", "pos": 4},
            ],
            "increase",
        ),
        ([{"connector": "postgresql", "op": "r"}, {"connector": "postgresql", "lsn": 1}], [0, 1]),
        ([{"connector": "mariadb", "file": "bin", "pos": 4}, {"connector": None, "lsn": 4}], [None, None]),
    ],
)  # fmt: skip
def test_positions(sources, expected):
    kinds = {"connector": pa.string(), "file": pa.string()}
    names = ("connector", "ts_ms", "lsn", "file", "pos", "row")
    place = {name: pa.array([each.get(name) for each in sources], kinds.get(name, pa.int64())) for name in names}
    found, absent = positions_of(place, np.array([each.get("op") == "r" for each in sources]))
    values = found.to_pylist()
    if expected == "increase":
        assert values == sorted(set(values))
    else:
        assert values == expected
    assert sum(int(mask.sum()) for mask in absent.values()) == values.count(None)


def test_another_order_needs_no_position(tmp_path):
    feed = Feed(tmp_path, [event("c", {"id": 1, "at": 7}, lsn=None)], key="id", eventTime="at", timeFormat="epoch_s")
    assert [row["_position"] for row in feed.rows() if row["id"] == 1] == [None]
    assert not (tmp_path / "dead").exists()


def test_a_column_that_the_source_adds_is_reported_once_with_what_to_do(tmp_path, caplog):
    for number, names in enumerate((["id"], ["id", "fresh"], ["id", "fresh"])):
        Feed(tmp_path / str(number), [event("c", dict.fromkeys(names, 1))], key="id", schema="id BIGINT").rows()
    (said,) = [record.getMessage() for record in caplog.records if "fresh" in record.getMessage()]
    assert re.search("added the column fresh, which .* does not read.* new checkpoint.* option schema", said)


@pytest.mark.parametrize(
    ("lines", "options", "error", "message"),
    [
        ([event("c", {"id": 1})], {"schema": "id INT"}, OptionError, "`schema` and without `key`"),
        ([b'{"id": 1}'], {}, SchemaError, "no change event"),
        ([event("c", {"id": 1, "_position": 2})], {}, SchemaError, "a column '_position'"),
        ([event("c", {"id": 1})], {"coalesce": "true"}, OptionError, "coalesce=true without `key`"),
        ([event("c", {"id": 1})], {"watermark": "bounded"}, OptionError, "without `eventTime`: .* position"),
        ([event("c", {"id": 1})], {"connector": "replay"}, OptionError, "connector=files or kafka"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(tmp_path, lines, options, error, message):
    with pytest.raises(error, match=message):
        Feed(tmp_path, lines, **options).rows()
