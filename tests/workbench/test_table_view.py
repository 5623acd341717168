"""Rows, keys, files and dead letters of a table, within limits."""

import pyarrow as pa
import pytest
from kit.scenes import Scene
from kit.sink import Sink

from upstream.conf.errors import OptionError, SchemaError, UpstreamError
from upstream.workbench import table_view
from upstream.workbench.watch import Watch


def watched(place):
    watch = Watch([str(place)], {})
    watch.refresh()
    return watch.table()


@pytest.fixture
def table(tmp_path):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(key, key, f"v{key}") for key in range(40)])])
    return watched(sink.path)


def test_rows_come_by_a_filter_and_up_to_a_limit(table):
    found = table_view.table_rows(table, 100, "t >= 38 OR v = 'v3'")
    assert [each["name"] for each in found["columns"]] == ["k", "t", "v"]
    assert sorted(found["rows"]) == [[3, 3, "v3"], [38, 38, "v38"], [39, 39, "v39"]]
    assert (found["complete"], found["parts"], found["rows_in_table"]) == (True, 4, 40)
    few = table_view.table_rows(table, 2, None, ["v"])
    assert (len(few["rows"]), len(few["rows"][0]), few["complete"]) == (2, 1, False)
    assert table_view.table_rows(table, 5, "t < 0")["rows"] == []


def test_a_search_without_end_ends_with_what_it_has(table, monkeypatch):
    monkeypatch.setattr(table_view, "_SECONDS", -1)
    found = table_view.table_rows(table, 100, "t >= 0")
    assert (found["parts_read"], found["complete"]) == (1, False)
    assert 0 < len(found["rows"]) < 40


@pytest.mark.parametrize(
    "where", ["nothing > 1", "t >", "1; DROP TABLE x", "(SELECT 1) = 1", "read_csv('/etc/passwd') = 1"]
)
def test_a_filter_is_an_expression_over_columns_and_nothing_else(table, where):
    with pytest.raises((OptionError, SchemaError), match="where="):
        table_view.table_rows(table, 5, where)


def test_one_key_is_looked_up_in_its_bucket(table):
    found = table_view.key_row(table, ["7"])
    assert found["rows"] == [[7, 7, "v7", *found["rows"][0][3:]]]
    assert table_view.key_row(table, ["k=700"])["rows"] == []
    assert table_view.key_columns(table)["key"] == [{"name": "k", "type": "int64"}]
    with pytest.raises(UpstreamError, match="not a value"):
        table_view.key_row(table, ["seven"])


def test_files_by_bucket_add_up_and_readers_are_named(tmp_path):
    sink = Sink(tmp_path, options={"key": "k", "eventTime": "t", "buckets": "2", "engine": "vectors"})
    sink.batch(0, [sink.rows([(key, 1, "a") for key in range(2_000)])])
    sink.batch(1, [sink.rows([(key, 2, "b") for key in range(3)], seq=2_000)])
    found = table_view.table_files(watched(sink.path))
    assert sum(each["rows"] for each in found["buckets"]) == 2_000
    reads = {each["reader"].split()[0]: each["reads"] for each in found["readers"]}
    assert reads["Spark"]
    assert reads["delta-rs"] == (not any(each["vectors"] for each in found["buckets"]))
    assert any(each["vectors"] for each in found["buckets"])
    assert 0 < sum(each["dead"] for each in found["buckets"]) <= 3


def test_what_json_lacks_is_text():
    rows = pa.table({"big": [1 << 60], "f": [float("nan")], "b": [b"\x00\xff"], "l": [[1, 2]], "s": ["x" * 5_000]})
    ((big, number, raw, listed, text),) = table_view.json_rows(rows)["rows"]
    assert (big, number, raw, listed) == (str(1 << 60), "nan", "0x00ff", "[1, 2]")
    assert len(text) == 2_001


def test_dead_letters_come_newest_first_and_page_by_page(tmp_path):
    scene = Scene(tmp_path)
    scene.step()
    table = watched(scene.path)
    assert table_view.letters(table, 10, 0) | {"places": []} == {
        **table_view.letters(table, 10, 0), "rows": [], "total": 0, "places": []
    }  # fmt: skip
    scene.dead_letters(7)
    found = table_view.letters(table, 3, 0)
    payloads = [row[3] for row in found["rows"]]
    assert (found["total"], ["bus 6" in payloads[0], "bus 4" in payloads[2]]) == (7, [True, True])
    assert "bus 0" in table_view.letters(table, 3, 6)["rows"][0][3]
    assert table_view.letters(table, 3, 7)["rows"] == []
    assert [row[2] for row in table_view.letters(table, 9, 0, "TIMESTAMP")["rows"]] == [
        "the time is not a timestamp"
    ] * 3
