"""A latest table by its path: each method does what the function and the command of its name do."""

import os
import uuid
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import upstream
from upstream.conf.errors import OptionError, TableError
from upstream.conf.process_identity import driver_process
from upstream.sink.commit.lease import TableLease
from upstream.storage.folder import TableFolder


@pytest.fixture
def written(sink):
    sink.batch(0, [sink.rows([(key, 1, "old") for key in range(6)])])
    sink.batch(1, [sink.rows([(key, 2, f"new {key}") for key in range(4)], seq=6)])
    return sink


@pytest.fixture
def table(written):
    return upstream.LatestTable(written.path)


def test_rows_are_the_newest_without_columns_of_ours(table):
    found = table.scan().collect().sort("k")
    assert found.columns == ["k", "t", "v"]
    assert found.rows() == [(k, 2, f"new {k}") for k in range(4)] + [(4, 1, "old"), (5, 1, "old")]
    assert table.scan(["v"]).filter(pl.col("v") == "old").collect().height == 2
    assert "_upstream_seq" in table.scan(["k", "_upstream_seq"]).collect().columns
    for read in (table.scan, table.to_polars, table.to_arrow, table.to_pandas):
        with pytest.raises(OptionError, match=r"no column w.*columns among k, t, v"):
            read(["k", "w"])


def test_one_table_in_three_forms(table):
    frame = table.to_polars().sort("k")
    assert frame.equals(table.scan().collect().sort("k"))
    arrow = table.to_arrow().sort_by("k")
    assert arrow.schema == pa.schema([("k", pa.int64()), ("t", arrow.schema.field("t").type), ("v", pa.string())])
    assert arrow.to_pylist() == frame.to_dicts()
    assert table.to_pandas(["v", "k"]).sort_values("k")["v"].tolist() == frame["v"].to_list()
    assert table.to_arrow(["_upstream_seq"]).column_names == ["_upstream_seq"]


def test_a_notebook_shows_ten_rows_and_no_markup_of_theirs(sink):
    sink.batch(0, [sink.rows([(key, 1, "<script>") for key in range(12)])])
    shown = upstream.LatestTable(sink.path)._repr_html_()
    assert "shape: (10, 3)" in shown
    assert shown.count("&lt;script&gt;") == 10
    assert "<script>" not in shown
    nowhere = upstream.LatestTable(sink.path / "<b>")._repr_html_()
    assert "&lt;b&gt;" in nowhere
    assert "there is no table" in nowhere


def test_what_commits_say(table):
    assert [(version, each.batch_id) for version, each in table.commits()] == [(1, 0), (2, 1)]
    assert [version for version, _ in table.commits(after_version=1)] == [2]
    figures = table.staleness()
    assert figures is not None
    assert (figures.commits, figures.updates) == (2, 10)
    assert table.staleness(after_version=2) is None


def test_maintained_compacted_and_divided_again(table, written):
    before = table.scan().collect().sort("k")
    dry = table.maintain(versions=1, retention="1 us", dry_run=True)
    assert dry.compacted == 0
    assert table.maintain(retention="7 days").entries == 0
    table.compact()
    version = table.rebucket(3)
    assert version == DeltaTable(str(written.path)).version()
    assert DeltaTable(str(written.path)).metadata().configuration["upstream.buckets"] == "3"
    assert table.scan().collect().sort("k").equals(before)
    with pytest.raises(OptionError, match="retention='a week'"):
        table.maintain(retention="a week")


def test_a_key_is_erased(table):
    assert table.erase(5, dry_run=True).found
    assert table.scan().collect().height == 6
    assert table.erase(5).found
    assert table.scan().collect().height == 5
    assert not table.erase(77).found


def test_orphans_are_removed_past_a_retention(table, written):
    orphan = Path(DeltaTable(str(written.path)).file_uris()[0]).with_name(f"part-{uuid.UUID(int=7)}.parquet")
    orphan.write_bytes(b"of a task that died")
    os.utime(orphan, (1, 1))
    with pytest.raises(OptionError, match="retention='a week'"):
        table.repair(orphans=True, retention="a week")
    table.repair(orphans=True, retention="100000 days")
    assert orphan.exists()
    table.repair(orphans=True, retention="1 day")
    assert not orphan.exists()


def test_more_history(make_sink):
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("a mapped name", pa.string())])
    sink = make_sink(columns, history="latest 3")
    sink.batch(0, [sink.rows([(1, time, "x") for time in range(5)])])
    table = upstream.LatestTable(sink.path)
    assert table.scan().collect().height == 3
    table.set_history("latest 2")
    assert sorted(table.scan().collect().rows()) == [(1, 3, "x"), (1, 4, "x")]


def test_a_lease_is_released(table, written):
    assert table.release() is None
    lease = TableLease(TableFolder(str(written.path), {}))
    lease.hold("another query", driver_process(), 60_000_000, 0)
    assert table.release() == "another query"
    assert lease.read() is None


def test_what_is_no_table_of_ours(tmp_path):
    nowhere = upstream.LatestTable(tmp_path / "none")
    for act in (nowhere.scan, nowhere.check, nowhere.maintain, nowhere.compact, nowhere.repair):
        with pytest.raises(TableError, match=r"there is no table|no table at|cannot be"):
            act()
    assert nowhere.commits() == []
    write_deltalake(str(tmp_path / "theirs"), pa.table({"a": [1]}))
    with pytest.raises(TableError, match=r"was not made by this package.*VACUUM"):
        upstream.LatestTable(tmp_path / "theirs").maintain()
    with pytest.raises(OptionError, match="path=3"):
        upstream.LatestTable(3)  # pyright: ignore[reportArgumentType]


def test_options_of_a_store_are_not_printed(tmp_path):
    table = upstream.LatestTable(tmp_path / "latest", storage_options={"secret_access_key": "hidden"})
    assert repr(table) == f"LatestTable('{os.fspath(tmp_path / 'latest')}')"
