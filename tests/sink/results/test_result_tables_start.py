"""How a batch finds a query's table."""

import shutil
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from kit.result_tables import COLUMNS, Hosted

from upstream.conf.errors import FeedChangedError, TableError
from upstream.datasource.connectors.latest_table.table import TableLog
from upstream.sink.latest_table import LatestTable
from upstream.sink.results.deletion import refuse_foreign
from upstream.sink.table.log_entry import put_entry
from upstream.storage.folder import TableFolder

OTHERS = pa.schema([("name", pa.string()), ("share", pa.float64())])


def test_another_incarnation_replaces_all_rows_once(hosted):
    a = hosted.table("a", buckets=4)
    hosted.batch(0, [a], {"a": [(key, "old") for key in range(30)]})
    again = hosted.table("a", 2, buckets=4)
    made = hosted.batch(1, [again], {"a": [(1, "new"), (40, "new")]}, {"a": [2]})
    assert hosted.rows(again) == [(1, "new"), (40, "new")]
    assert (made["a"].keys, made["a"].deleted, hosted.commits(a)) == (2, 29, 2)
    hosted.restart()
    assert hosted.batch(1, [again], {"a": [(1, "new"), (40, "new")]}) == {}
    assert hosted.commits(a) == 2
    # Twice, and to nothing.
    for number, query_id in ((3, 3), (4, 4)):
        assert hosted.batch(number, [hosted.table("a", query_id, buckets=4)]).keys() == {"a"}
        assert hosted.rows(again) == []
    assert LatestTable(a.location).check().healthy
    with pytest.raises(TableError, match=r"change 4, .* change 3"):
        hosted.batch(5, [hosted.table("a", 3, buckets=4)], {})


def test_another_text_of_the_query_may_have_other_columns_and_another_kind(hosted):
    forms: list[tuple[dict[str, Any], list[tuple[Any, ...]]]] = [
        ({}, [(1, "x")]),
        ({"schema": OTHERS, "key": ("name",), "buckets": 5}, [("n", 0.5), ("m", 1.5)]),
        ({"key": (), "keep": "all"}, [(1, "x"), (1, "x")]),
        ({"schema": pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))])}, []),
        ({"schema": pa.schema([("k", pa.int64()), ("count(*) of it", pa.int64())])}, [(1, 9)]),
        ({}, []),
    ]
    for number, (form, rows) in enumerate(forms):
        table = hosted.table("a", number, **form)
        hosted.batch(2 * number, [table], {"a": rows})
        assert hosted.rows(table) == sorted(rows)
        more = [row for row in rows[:1] for _ in range(2)] if form.get("keep") else rows[:1]
        hosted.batch(2 * number + 1, [table], {"a": more})
        assert hosted.rows(table) == sorted([*rows, *more] if form.get("keep") else rows)
        report = LatestTable(table.location).check()
        assert report.healthy, report.findings
        found = DeltaTable(table.location).scan()  # noqa: F841 DuckDB finds it by its name
        assert duckdb.sql("SELECT count(*) FROM found").fetchall() == [(len(hosted.rows(table)),)]
        if number < 4:  # Polars does not read tables with names that plain Delta does not admit
            assert pl.scan_delta(table.location).collect().height == len(hosted.rows(table))
    location = hosted.table("a").location
    assert DeltaTable(location).metadata().id == DeltaTable(location, 0).metadata().id


def test_a_query_of_the_same_name_after_one_was_dropped(hosted):
    a, b = hosted.table("a"), hosted.table("b")
    hosted.batch(0, [a, b], {"a": [(1, "x")], "b": [(1, "x")]})
    hosted.batch(1, [b], {"b": [(2, "x")]})  # a is dropped, and its table stays
    hosted.batch(2, [hosted.table("a", 7), b], {"a": [(5, "y")]})
    assert hosted.rows(a) == [(5, "y")]
    hosted.batch(3, [b])
    shutil.rmtree(a.location)  # dropped with its table
    hosted.batch(4, [hosted.table("a", 9), b])
    assert hosted.rows(a) == []
    assert hosted.commits(a) == 1


def test_a_table_of_somebody_else_is_refused_and_the_others_are_committed(hosted):
    mine, theirs = hosted.table("mine"), hosted.table("theirs")
    write_deltalake(theirs.location, pa.table({"k": [1], "v": ["precious"]}))
    seen = hosted.tables.look([mine, theirs])
    assert seen.tables.keys() == {"mine"}
    assert "the query 'theirs' of this job has not made it" in str(seen.refused["theirs"])
    with pytest.raises(TableError, match=r"there is a table at .*theirs already"):
        hosted.batch(0, [mine, theirs], {"mine": [(1, "x")]})
    assert hosted.rows(mine) == [(1, "x")]
    assert DeltaTable(theirs.location).version() == 0
    assert hosted.batch(0, [mine], {"mine": [(1, "x")]}) == {}  # the query has failed, the batch is repeated


def constrain(location: str) -> None:
    DeltaTable(location).alter.add_constraint({"small": "k < 5"})


def upgrade(location: str) -> None:
    features = {"readerFeatures": [], "writerFeatures": ["rowTracking"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    assert put_entry(TableFolder(location), 1, {"operation": "UPGRADE PROTOCOL"}, [{"protocol": protocol}])


@pytest.mark.parametrize(("change", "says"), [(constrain, "small CHECK (k < 5)"), (upgrade, "rowTracking")])
def test_what_is_not_followed_here_is_refused_before_the_table_is_replaced(hosted, change, says):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    change(a.location)
    for table in (a, hosted.table("a", 2), hosted.table("a", 2, schema=OTHERS, key=("name",))):
        assert says in str(hosted.tables.look([table]).refused["a"])
    assert hosted.rows(a) == [(1, "x")]


def test_who_follows_a_table_is_told_that_its_columns_are_others(hosted):
    a = hosted.table("a")
    hosted.batch(0, [a], {"a": [(1, "x")]})
    log = TableLog(TableFolder(a.location))
    table_id = str(DeltaTable(a.location).metadata().id)
    made = log.delivered(0, table_id)
    assert made is not None
    assert sum(made.rows.values()) == 1
    hosted.batch(1, [hosted.table("a", 2, schema=OTHERS, key=("name",))], {"a": [("n", 1.0)]})
    with pytest.raises(FeedChangedError, match=r"version 1 .* has replaced its rows by others with other columns"):
        log.delivered(1, table_id)


@pytest.mark.parametrize("columns", [COLUMNS, pa.schema([("k", pa.int64()), ("w", pa.float64())])])
def test_a_job_takes_over_and_the_other_one_notices(hosted, tmp_path, columns):
    old, new = hosted, Hosted(tmp_path, host="new")
    old.batch(0, [old.table("a", 5)], {"a": [(1, "x"), (2, "y")]})
    with pytest.raises(TableError, match="another checkpoint") as refused:
        new.batch(0, [new.table("a", 3, schema=columns)], {"a": [(2, 2)]})
    assert "overwrite=True" in refused.value.hint
    assert "another folder" in refused.value.hint
    mine = new.table("a", 3, schema=columns, overwrite=True)
    row = (2, "z" if columns is COLUMNS else 0.5)
    new.batch(0, [mine], {"a": [row]})
    assert new.rows(mine) == [row]
    new.batch(1, [mine], {"a": [(3, row[1])]})
    assert new.rows(mine) == [row, (3, row[1])]
    old.restart()
    with pytest.raises(TableError, match="this job has not made it, but a query of another checkpoint"):
        old.batch(1, [old.table("a", 5)], {"a": [(7, "w")]})
    with pytest.raises(TableError, match="is not a table that the query 'a' of this job has written"):
        refuse_foreign(mine.location, "a", "host")
    back = old.table("a", 5, overwrite=True)
    old.batch(1, [back], {"a": [(7, "w")]})
    assert old.rows(back) == [(7, "w")]
