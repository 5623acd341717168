"""Columns computed where rows are read: the SQL that is understood, and the source that uses it."""

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from upstream.conf.errors import OptionError, SchemaError
from upstream.datasource.planner import BatchPlanner
from upstream.datasource.registry import make_connector, parse_source_options
from upstream.datasource.selection import Selection, copied_column, referenced_columns, with_unseen_fields
from upstream.datasource.spark_reader import UpstreamBatchReader, UpstreamStreamReader, source_schema
from upstream.expressions.bind import arrow_schema

RAW = arrow_schema("data STRUCT<s: STRING, E: BIGINT, e: STRING, b: STRING, d: STRUCT<x: INT>>, id INT, at STRING")
ROWS = pa.table(
    {
        "data": [
            {"s": "A", "E": 1_700_000_000_123, "e": "u", "b": "1.5", "d": {"x": 2}},
            {"s": "B", "E": None, "e": "u", "b": "none", "d": None},
        ],
        "id": [1, 1 << 30],
        "at": ["2024-07-01T10:00:00+02:00", "soon"],
    },
    schema=RAW,
)


def column(sql: str) -> list[Any]:
    made, _ = Selection.bound(f"{sql} AS it", RAW).evaluate(ROWS)
    return made.column("it").to_pylist()


def test_the_columns_of_a_nested_feed():
    selection = Selection.bound("data.s AS symbol, timestamp_millis(data.E) AS at, data.b::DOUBLE AS bid", RAW)
    assert selection.schema == arrow_schema("symbol STRING, at TIMESTAMP, bid DOUBLE")
    made, misfits = pickle.loads(pickle.dumps(selection)).evaluate(ROWS)
    assert made.column("symbol").to_pylist() == ["A", "B"]
    assert made.column("at").cast(pa.int64()).to_pylist() == [1_700_000_000_123_000, None]
    assert made.column("bid").to_pylist() == [1.5, None]
    assert misfits == [None, "the column 'bid' cannot be computed: data.b::DOUBLE"]
    assert selection.evaluator().reads == ["data"]
    assert selection.evaluator(["at"]).reads == ["data"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("id * 4", [4, None]),  # of INT, it is an error
        ("data.d.x", [2, None]),
        ("data['s']", ["A", "B"]),
        ("`data`.`s`", ["A", "B"]),
        ("DATA.S", ["A", "B"]),
        ("data.E", [1_700_000_000_123, None]),
        ("data.e", ["u", "u"]),
        ("coalesce(data.d.x, 7)", [2, 7]),
        ("CASE WHEN id > 1 THEN data.b::DOUBLE ELSE 0 END", [0.0, None]),
        ("NOT data.d.x IS NOT NULL", [False, True]),
        ("concat(data.s, '-', id)", ["A-1", f"B-{1 << 30}"]),
        ("NULL", [None, None]),
    ],
)
def test_values(sql, expected):
    assert column(sql) == expected


@pytest.mark.parametrize(
    ("sql", "misfit"),
    [
        ("data.b::DOUBLE AS v", [False, True]),
        ("try_cast(data.b AS DOUBLE) AS v", None),
        ("CASE WHEN id = 1 THEN data.b::DOUBLE END AS v", None),
        ("coalesce(data.b::DOUBLE, 0) AS v", [False, True]),
        ("at::TIMESTAMP AS v", [False, True]),
        ("id::TINYINT AS v", [False, True]),
        ("timestamp_seconds(id * 9000000000) AS v", [False, True]),
        ("data.b::DOUBLE AS v, at::TIMESTAMP AS w", [False, True]),
        ("1 / (id - 1) AS v", [True, False]),
        ("1.0 / (id - 1) AS v", [True, False]),
        ("data.E / 0 AS v", [True, False]),  # null by zero is null
        ("if(id > 1, 1 / (id - 1), 0) AS v", None),
        ("id * 8589934592 AS v", [False, True]),
        ("id * 8589934591 AS v", None),  # 2^63 - 2^30
        ("9223372036854775806 + id AS v", [False, True]),
        ("-9223372036854775808 - id AS v", [True, True]),
        ("-(-9223372036854775807 - id) AS v", [True, True]),
        ("abs(-9223372036854775807 - if(id = 1, 1, 0)) AS v", [True, False]),
    ],
)
def test_what_cannot_be_converted_is_malformed_where_the_row_needs_it(sql, misfit):
    _, found = Selection.bound(sql, RAW).evaluate(ROWS)
    assert (None if found is None else [each is not None for each in found]) == misfit


def test_text_without_a_zone_is_read_in_the_zone_asked_for():
    rows = pa.table({"at": ["2024-07-01T10:00:00"]})
    for zone, hour in (("UTC", 10), ("Europe/Paris", 8)):
        made, _ = Selection.bound("at::TIMESTAMP AS t", rows.schema, zone).evaluate(rows)
        assert made.column("t")[0].as_py().hour == hour


def test_stars():
    assert Selection.bound("*, data.d.x", RAW).schema.names == ["data", "id", "at", "x"]
    assert Selection.bound("data.d.*, id AS n", RAW).schema.names == ["x", "n"]


@pytest.mark.parametrize(("keep", "value"), [("first", 1), ("last", "A")])
def test_of_two_columns_of_one_name_the_option_chooses(keep, value):
    selection = Selection.bound("id, at, data.s AS ID", RAW, duplicates=keep)
    made, _ = pickle.loads(pickle.dumps(selection)).evaluate(ROWS)
    assert (made.column_names[1:], made.column(0)[0].as_py()) == (["at"], value)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("data.*", "'E' and 'e'"),
        ("id, id", "two columns one name"),
        ("data.E, data.e", "'E' and 'e'"),
        ("data.x", "no field x"),
        ("nope", "no column 'nope'"),
        ("id.x", "INT"),
        ("id + 1", "write id + 1 AS name"),
        ("sum(id) AS s", "other rows"),
        ("count(*) AS s", "other rows"),
        ("id - avg(id) AS s", "function avg"),
        ("row_number() OVER () AS r", "other rows"),
        ("explode(data) AS r", "function explode"),
        ("rand() AS r", "RAND"),
        ("(SELECT 1) AS r", "subquery"),
        ("* EXCEPT (id)", "EXCEPT"),
        ("id FROM t", "'FROM'"),
        ("DISTINCT id", "'DISTINCT'"),
        ("id LIMIT 1", "'LIMIT'"),
        ("id; DROP TABLE t", "'t'"),
        ("id +", "an expression"),
        ("", "an expression"),
        ("'x'::INT AS n", "no row has a value"),
        ("id + data.d AS x", "add"),
        ("id::HYPERLOGLOG AS x", "HYPERLOGLOG"),
    ],
)
def test_what_is_refused(sql, message):
    with pytest.raises((OptionError, SchemaError)) as caught:
        Selection.bound(sql, RAW)
    assert message in str(caught.value)


def test_what_a_selection_mentions():
    assert referenced_columns("data.s AS a, `_key` AS k, upper(x) AS y, *") == ["data", "_key", "x"]
    assert copied_column("id AS k, data.s, *", "k") == "id"
    assert copied_column("id AS k, data.s", "s") is None
    assert copied_column("upper(x) AS x, *", "x") is None
    assert copied_column("id AS k, *", "at") == "at"
    assert copied_column("id AS k", "at") is None


def test_schemas_in_ddl():
    ddl = "a INT NOT NULL, b DECIMAL(12, 3), c ARRAY<STRUCT<x: DOUBLE>>, d MAP<STRING, BIGINT>, `e f` DATE, g BINARY"
    nested = [pa.list_(pa.struct([pa.field("x", pa.float64())])), pa.map_(pa.string(), pa.int64())]
    assert arrow_schema(ddl).types == [pa.int32(), pa.decimal128(12, 3), *nested, pa.date32(), pa.binary()]
    for wrong in ("", "a", "a NOPE", "SELECT 1"):
        with pytest.raises(OptionError):
            arrow_schema(wrong)


def feed(folder: Path, quotes: Sequence[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps({"stream": "x", "data": quote}) + "\n" for quote in quotes)
    (folder / f"{len(list(folder.iterdir()))}.jsonl").write_text(text)


def read_all(given: dict[str, str]) -> tuple[list[dict[str, Any]], int]:
    """What a stream delivers in one batch, read by tasks that were pickled as Spark does it; and how many came."""
    schema = source_schema(given)
    reader = UpstreamStreamReader(given, schema)  # type: ignore[arg-type] not DDL with `select`
    start = BatchPlanner.initial()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    rows: list[dict[str, Any]] = []
    for partition in reader.partitions(start, end):
        task = pickle.loads(pickle.dumps(reader))
        rows += [row for batch in task.read(partition) for row in batch.to_pylist()]
    (state,) = end["progress"].values()
    return [row for row in rows if not row["_upstream"]["punctuation"]], state["received"]


QUOTES = [
    {"s": "A", "E": 1_700_000_000_000, "e": "bookTicker", "b": "1.5"},
    {"s": "B", "E": 1_700_000_001_000, "e": "bookTicker", "b": "2.5"},
    {"s": "A", "E": 1_700_000_002_000, "e": "bookTicker", "b": "3.5"},
    {"s": "C", "E": 1_700_000_003_000, "e": "bookTicker", "b": "n/a"},
    {"s": None, "E": 1_700_000_003_000, "e": "bookTicker", "b": "1"},
]
SELECT = "data.s AS symbol, timestamp_millis(data.E) AS at, data.b::DOUBLE AS bid"


def options(tmp_path: Path, **more: str) -> dict[str, str]:
    places = {"path": str(tmp_path / "feed"), "deadLetters": str(tmp_path / "dead")}
    return {**places, "select": SELECT, "key": "symbol", "eventTime": "at", **more}


@pytest.mark.parametrize("schema", [{}, {"schema": "data STRUCT<s: STRING, E: BIGINT, b: STRING>"}])
def test_a_nested_feed_becomes_rows_with_key_and_time(tmp_path, schema):
    feed(tmp_path / "feed", QUOTES)
    with pytest.raises((OptionError, SchemaError), match="'stream'"):
        source_schema(options(tmp_path, key="stream", **schema))
    rows, received = read_all(options(tmp_path, where="bid > 2", watermark="ordered", **schema))
    assert [(row["symbol"], row["bid"], row["at"].timestamp()) for row in rows] == [
        ("B", 2.5, 1_700_000_001),
        ("A", 3.5, 1_700_000_002),
    ]
    assert received == len(QUOTES), "rows that do not leave count, too"
    aside = pl.read_delta(str(tmp_path / "dead")).to_dicts()
    assert len(aside) == 2
    assert any("the column 'bid' cannot be computed" in each["reason"] for each in aside)
    assert any("n/a" in json.dumps(each) for each in aside)


def test_a_row_whose_condition_cannot_be_computed_is_malformed(tmp_path):
    feed(tmp_path / "feed", QUOTES[:3])
    rows, _ = read_all(options(tmp_path, where="100 / (bid - 2.5) > 0"))
    assert [row["bid"] for row in rows] == [3.5]
    (aside,) = pl.read_delta(str(tmp_path / "dead")).to_dicts()
    assert aside["reason"] == "the condition cannot be computed: 100 / (bid - 2.5) > 0"
    assert '"b": "2.5"' in json.dumps(aside).replace("\\", "")


def test_the_schema_of_the_feed_is_that_of_the_first_run(tmp_path):
    feed(tmp_path / "feed", QUOTES[:2])
    given = options(tmp_path, checkpointLocation=str(tmp_path / "checkpoint"))
    first = source_schema(given)
    (tmp_path / "feed" / "0.jsonl").write_text('{"data": {"s": "A", "b": "7"}}\n')  # by its look there is no data.E
    assert source_schema(given) == first
    with pytest.raises(SchemaError, match="no field E"):
        source_schema(options(tmp_path))


def test_other_connectors_have_nothing_to_select_from():
    with pytest.raises(OptionError, match="only files and kafka"):
        source_schema({"connector": "synthetic", "select": "key AS k", "key": "k"})


ROW = pa.struct([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.null()))])
RAW_OF_ROWS = pa.schema(
    [("before", pa.null()), ("after", ROW), ("in", pa.struct([("x", pa.null())])), ("other", pa.null())]
)


@pytest.mark.parametrize(
    ("sql", "before"),
    [
        ("coalesce(after.id, BEFORE.ID) AS id", "STRUCT<id: BIGINT>"),
        ("before.tags, before.name", "STRUCT<tags: ARRAY<STRING>, name: STRING>"),
        ("before.at.day, after.id", "STRUCT<at: STRUCT<day: STRING>>"),
        ("before, `in`.x.y", "STRING"),
        ("before.e AS kind, before.E AS at", "STRUCT<e: STRING, E: STRING>"),
    ],
)
def test_a_column_of_nulls_has_the_fields_that_are_named(sql, before):
    found = with_unseen_fields(sql, RAW_OF_ROWS)
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


def test_a_batch_that_is_read_again_sets_each_row_aside_once(tmp_path):
    given = options(tmp_path)
    for bad in (1, 1, 2):
        if bad == 2:
            feed(tmp_path / "feed", [QUOTES[3]])
        else:
            (tmp_path / "feed" / "0.jsonl").exists() or feed(tmp_path / "feed", QUOTES[:4])
        reader = UpstreamBatchReader(given, source_schema(given))  # type: ignore[arg-type] not DDL with `select`
        for partition in reader.partitions():
            list(reader.read(partition))
        assert len(set(pl.read_delta(str(tmp_path / "dead"))["origin"])) == bad
    assert pl.read_delta(str(tmp_path / "dead")).height <= 3, "those of another grouping again"
