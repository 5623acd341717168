"""Files as feeds in an object store."""

import gzip
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from upstream.conf.errors import FeedChangedError, OptionError
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.registry import CONNECTORS, parse_source_options
from upstream.storage.folder import TableFolder

from .stored import StoredSink

NOW = 1_800_000_000_000_000
UNLIMITED = Limit()


class Feed:
    """A connector over objects below a folder of the test's own."""

    def __init__(self, sink: StoredSink) -> None:
        self.place = TableFolder(f"s3://lake/{sink.folder.name}-feed", sink.storage)
        self.position: Any = None
        self.options: dict[str, str] = {}

    def put(self, name: str, content: bytes | str) -> None:
        self.place.write(name, content if isinstance(content, bytes) else content.encode())

    def connector(self, path: str = "", **options: str) -> Any:
        given = {"connector": "files", "path": f"{self.place.location}{path}", "schema": "k BIGINT, v STRING"}
        given |= {f"storage.{name}": value for name, value in self.place.storage.items()} | options
        common, own = parse_source_options(given)
        schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
        connector = CONNECTORS["files"].make(own, common)
        connector.fix_schema(schema)
        return connector

    def step(self, connector: Any, limit: Limit = UNLIMITED) -> list[tuple[int, str]]:
        """The rows of a batch; each range is read twice, as a task that runs again would."""
        step = connector.advance(self.position, NOW, connector.limit(limit))
        self.position = step.position
        twice = [self.read(connector, step.ranges) for _ in range(2)]
        assert twice[0] == twice[1]
        return twice[0]

    @staticmethod
    def read(connector: Any, ranges: Any) -> list[tuple[int, str]]:
        chunks = (chunk for part in ranges for chunk in connector.read(part, None, lambda **_: None))
        return [(row["k"], row["v"]) for chunk in chunks for row in chunk.rows.to_pylist()]


@pytest.fixture
def feed(stored):
    return Feed(stored())


def csv(*rows: tuple[int, str]) -> str:
    return "k,v\n" + "".join(f"{key},{value}\n" for key, value in rows)


def test_new_objects_longer_ones_and_a_restart(feed):
    feed.put("a b.csv", csv((1, "a")))
    feed.put("_hidden.csv", csv((9, "no")))
    feed.put("below/c.csv", csv((9, "no")))
    connector = feed.connector()
    assert feed.step(connector) == [(1, "a")]
    assert feed.step(connector) == []
    feed.put("b.csv", csv((2, "b")))
    assert feed.step(connector) == [(2, "b")]
    feed.put("a b.csv", csv((1, "a"), (3, "c")))
    assert feed.step(feed.connector()) == [(3, "c")], "a restart reads on from the position"
    assert feed.step(feed.connector()) == []
    absent = feed.connector("/none")
    absent.freeze(NOW)
    with pytest.raises(OptionError, match="does not exist"):
        absent.advance(None, NOW, Limit())


def test_an_object_that_is_another_one_is_noticed(feed):
    feed.put("a.csv", csv((1, "a"), (2, "b")))
    connector = feed.connector()
    step = connector.advance(None, NOW, Limit())
    feed.put("a.csv", csv((1, "a"), (2, "x")))
    with pytest.raises(FeedChangedError, match="replaced or rewritten"):
        feed.read(connector, step.ranges)
    feed.place.remove(["a.csv"])
    with pytest.raises(FeedChangedError, match="disappeared"):
        feed.read(connector, step.ranges)


def test_ranges_of_a_large_object_hold_each_row_once(feed):
    rows = [(number, f"value {number}") for number in range(3000)]
    feed.put("a.csv", csv(*rows))
    connector = feed.connector(splitBytes="7 kb")
    step = connector.advance(None, NOW, Limit())
    assert len(step.ranges) > 5
    assert feed.read(connector, step.ranges) == rows


def test_compressed_objects_and_parquet(feed):
    rows = [(number, str(number)) for number in range(100)]
    feed.put("a.csv.gz", gzip.compress(csv(*rows[:50]).encode()))
    table = pa.table({"k": [key for key, _ in rows[50:]], "v": [value for _, value in rows[50:]]})
    content = io.BytesIO()
    pq.write_table(table, content, row_group_size=10)
    feed.put("b.parquet", content.getvalue())
    connector = feed.connector(splitBytes="100 b")
    assert sorted(feed.step(connector)) == rows
    assert feed.step(connector) == []


@pytest.mark.parametrize(
    ("path", "options", "expected"),
    [
        ("", {}, "ab"),
        ("/", {"recursiveFileLookup": "true"}, "abcd"),
        ("/*.csv", {}, "ab"),
        ("/a.csv", {}, "a"),
        ("/{a,x/c}.csv", {}, "ac"),
        ("/x", {}, "c"),
        ("/*", {}, "abc"),
        ("/**/*.csv", {}, "abcd"),
        ("/x/**/[d-z].csv", {}, "d"),
        ("/_h/*.csv", {}, "e"),
        ("", {"recursiveFileLookup": "true", "pathGlobFilter": "[bd]*"}, "bd"),
    ],
)
def test_what_a_path_means(feed, path, options, expected):
    for number, name in enumerate(("a.csv", "b.csv", "x/c.csv", "x/y/d.csv", "_h/e.csv")):
        feed.put(name, csv((number, name[-5])))
    TableFolder(f"{feed.place.location}2", feed.place.storage).write("a.csv", csv((7, "f")).encode())
    assert sorted(value for _, value in feed.step(feed.connector(path, **options))) == list(expected)


@pytest.mark.parametrize("path", ["hdfs://name/x", "dbfs:/x", "gs://b/x", "abfss://b@a/x", "http://a/x"])
def test_other_systems_are_refused_by_name(path):
    scheme = path.partition(":")[0]
    _, own = parse_source_options({"connector": "files", "path": path})
    with pytest.raises(OptionError, match=f"is on {scheme}, which"):
        own.given()
