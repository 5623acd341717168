"""Fields of which a sample has only nulls: they have the types that a selection needs, and are not text."""

import json

import pyarrow as pa
import pytest

from upstream.datasource.ddl import arrow_schema
from upstream.datasource.registry import make_connector, parse_source_options
from upstream.datasource.selection import with_unseen_fields

ROW = pa.struct([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.null()))])
RAW = pa.schema([("before", pa.null()), ("after", ROW), ("in", pa.struct([("x", pa.null())])), ("other", pa.null())])


@pytest.mark.parametrize(
    ("sql", "before"),
    [
        ("coalesce(after.id, BEFORE.ID) AS id", "STRUCT<id: BIGINT>"),
        ("before.tags, before.name", "STRUCT<tags: ARRAY<STRING>, name: STRING>"),
        ("before.at.day, after.id", "STRUCT<at: STRUCT<day: STRING>>"),
        ("before, in.x.y", "STRING"),
    ],
)
def test_a_column_of_nulls_has_the_fields_that_are_named(sql, before):
    found = with_unseen_fields(sql, RAW)
    inner = "STRUCT<y: STRING>" if "x.y" in sql else "STRING"
    after = "STRUCT<id: BIGINT, name: STRING, tags: ARRAY<STRING>>"
    assert found == arrow_schema(f"before {before}, after {after}, `in` STRUCT<x: {inner}>, other STRING")


def test_changes_are_read_whose_first_rows_insert(tmp_path):
    rows = [{"before": None, "after": {"id": 1, "v": "a"}}, {"before": {"id": 1, "v": "a"}, "after": None}]
    feed = tmp_path / "feed.jsonl"
    feed.write_text(json.dumps(rows[0]) + "\n")
    select = "coalesce(after.id, before.id) AS id, after.*"
    options = {"path": str(feed), "select": select, "selectDuplicates": "first"}
    connector = make_connector(*parse_source_options(options))
    connector.fix_schema(connector.schema())
    feed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (part,) = connector.advance(None, 0, parse_source_options(options)[0].limit()).ranges
    found = [row for chunk in connector.read(part, None, None) for row in chunk.rows.to_pylist()]
    assert found == [{"id": 1, "v": "a"}, {"id": 1, "v": None}]
