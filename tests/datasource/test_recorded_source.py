"""The record of a source: enough to read its rows again, and no secret."""

import json

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from upstream.conf.errors import CheckpointError
from upstream.core.feedback.checkpoint_layout import SOURCE_RECORD
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.recorded_source import recorded_sources
from upstream.datasource.spark_reader import UpstreamStreamReader, source_schema
from upstream.storage.folder import TableFolder

COLUMNS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), pa.field(SYSTEM, SYSTEM_TYPE)])


def read_once(given, schema):
    reader = UpstreamStreamReader(given, schema)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    return end, [batch for part in reader.partitions(reader.initialOffset(), end) for batch in reader.read(part)]


@pytest.fixture
def given(tmp_path, monkeypatch):
    """A feed that is named relative to the folder in which the query runs."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("key,stamp\n7,2024-02-29 10:00:00\n8,2024-02-29 10:00:01\n")
    (tmp_path / "cp").mkdir()
    monkeypatch.chdir(tmp_path)
    return {
        "path": "in", "select": "key AS id, stamp AS at", "key": "id", "eventTime": "at", "where": "id > 7",
        "timeFormat": "%Y-%m-%d %H:%M:%S", "checkpointLocation": str(tmp_path / "cp"),
        "storage.secret_access_key": "hush",
    }  # fmt: skip


def test_rows_are_read_again_from_anywhere_and_no_secret_is_kept(given, tmp_path, monkeypatch):
    end, batches = read_once(given, source_schema(given))
    assert sum(batch.num_rows for batch in batches if not batch.column(-1)[0].as_py()["punctuation"]) == 1
    (record,) = tmp_path.joinpath("cp").glob(f"{SOURCE_RECORD}*")
    assert "hush" not in record.read_text()
    monkeypatch.chdir("/")
    (found,) = recorded_sources(TableFolder(str(tmp_path / "cp")))
    assert (found.connector, found.columns) == (end["connector"], end["schema"])
    unread = found.reading.connector.unread(None, 0, Limit())
    assert unread.whole
    (part,) = unread.ranges
    rows = [row for chunk in found.reading.connector.read(part, None, None) for row in chunk.rows.to_pylist()]
    assert [row["id"] for row in rows] == [7, 8]
    assert found.reading.condition.sql == "id > 7"
    changed = record.stat().st_mtime_ns
    read_once({**given, "path": str(tmp_path / "in")}, source_schema({**given, "path": str(tmp_path / "in")}))
    assert record.stat().st_mtime_ns == changed


def test_a_record_that_cannot_be_read(given, tmp_path):
    read_once(given, source_schema(given))
    (record,) = tmp_path.joinpath("cp").glob(f"{SOURCE_RECORD}*")
    record.write_text(json.dumps({**json.loads(record.read_text()), "layout": 2}))
    with pytest.raises(CheckpointError, match="it has layout 2"):
        recorded_sources(TableFolder(str(tmp_path / "cp")))
    record.write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        recorded_sources(TableFolder(str(tmp_path / "cp")))


def test_a_source_of_another_kind_has_no_rows_to_read_again(tmp_path):
    columns = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), pa.field(SYSTEM, SYSTEM_TYPE)])
    schema = from_arrow_schema(columns)
    given = {"connector": "synthetic", "key": "key", "eventTime": "time", "checkpointLocation": str(tmp_path)}
    del schema
    read_once(given, source_schema(given))
    (found,) = recorded_sources(TableFolder(str(tmp_path)))
    assert (found.connector, found.reading) == ("synthetic", None)
