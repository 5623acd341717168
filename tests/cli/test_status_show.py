import json

import pyarrow as pa
import pytest
from kit.sink import Sink

from .in_process import done, refused


@pytest.mark.parametrize("noon", [pa.timestamp("us", "UTC"), pa.timestamp("us")], ids=["numbers", "features by name"])
def test_names_with_spaces(tmp_path, noon):
    """Polars refuses a table with such names, and one of a feature that it does not know."""
    columns = pa.schema([("the key", pa.int64()), ("t", pa.int64()), ("a,b", pa.string()), ("noon", noon)])
    sink = Sink(tmp_path, columns, {"key": "the key", "time": "t", "buckets": "2"})
    sink.batch(0, [sink.rows([(key, 1, f"v{key}", 0) for key in range(5)])])
    asked = ("--where", '"the key" < 4', "--order-by", '"the key" DESC', "--limit", "2")
    shown = done("show", sink.path, *asked, "--format", "json")
    assert [json.loads(line)["a,b"] for line in shown.splitlines()] == ["v3", "v2"]


@pytest.fixture
def table(tmp_path):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(key, key, f"v{key}") for key in range(30)]), sink.punctuation(25)])
    return sink.path


def test_a_table_has_a_line_for_each_row_and_one_about_all(table):
    head, *rows, foot = done("show", table, "--limit", "3", "--where", "t > 10", "--order-by", "t DESC").splitlines()
    assert head.split() == ["k", "t", "v"]
    assert [row.split() for row in rows] == [["29", "29", "v29"], ["28", "28", "v28"], ["27", "27", "v27"]]
    assert foot.startswith("3 of 19 rows; version 1, complete to 25")


def test_all_rows_and_all_columns_in_forms_for_programs(table):
    rows = [json.loads(line) for line in done("show", table, "--format", "json", "--limit", "0").splitlines()]
    assert sorted(row["k"] for row in rows) == [*range(30)]
    assert rows[0].keys() == {"k", "t", "v"}
    csv = done("show", table, "--format", "csv", "--all", "--limit", "1")
    assert "_upstream_bucket" in csv.splitlines()[0]


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--columns", "sped", "no column sped; it has k"),
        ("--where", "sped > 1", "cannot be asked that"),
        ("--where", "t >", "cannot be asked that"),
    ],
)
def test_what_is_wrong_is_a_sentence(table, option, value, part):
    assert part in refused("show", table, option, value)
