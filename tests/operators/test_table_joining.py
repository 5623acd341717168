"""Joins with tables, without Spark."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError, TableError
from upstream.testing import StreamTester

ROUTES = pa.table({"route": ["x", "y"], "name": ["Xanadu", "Yonge"], "v": pa.array([7, 8], pa.int64())})
SCHEMA = "k STRING, t BIGINT, r STRING, v BIGINT"


def joining(tables=None, **join):
    def steps(stream):
        return stream.join_table("routes", **{"on": {"r": "route"}, **join})

    return StreamTester(
        steps, SCHEMA, key="k", event_time="t", time_format="epoch_us", tables=tables or {"routes": ROUTES}
    )


ROWS = [
    {"k": "a", "t": 1, "r": "x", "v": 1}, {"k": "b", "t": 1, "r": "z", "v": 2}, {"k": "c", "t": 1, "r": None, "v": 3},
    {"k": "d", "t": 1, "r": "y", "v": 4},
]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [("a", "Xanadu", 7), ("d", "Yonge", 8)]),
        ("left", [("a", "Xanadu", 7), ("b", None, None), ("c", None, None), ("d", "Yonge", 8)]),
    ],
)
def test_rows_get_the_columns_of_the_table(how, expected):
    found = joining(how=how).batch(ROWS)
    assert [(row["k"], row["name"], row["v_table"]) for row in found] == expected
    assert [set(row) for row in found] == [{"k", "t", "r", "v", "name", "v_table"}] * len(expected)


@pytest.mark.parametrize(("how", "expected"), [("semi", ["a", "d"]), ("anti", ["b", "c"])])
def test_rows_that_have_a_partner_or_none_pass_as_they_are(how, expected):
    twice = pa.concat_tables([ROUTES, ROUTES])
    found = joining({"routes": twice}, how=how).batch(ROWS)
    assert [row["k"] for row in found] == expected
    assert set(found[0]) == {"k", "t", "r", "v"}


def test_each_batch_reads_the_table_as_it_is_then():
    run = joining(columns=["name"])
    assert [row["name"] for row in run.batch(ROWS[:1])] == ["Xanadu"]
    run.change_table("routes", pl.DataFrame({"route": ["x", "z"], "name": ["Xi", "Zed"], "v": [1, 2]}))
    assert [(row["k"], row["name"]) for row in run.batch(ROWS)] == [("a", "Xi"), ("b", "Zed")]
    run.restart()
    assert [row["name"] for row in run.batch(ROWS[:1])] == ["Xi"]
    run.change_table("routes", ROUTES.slice(0, 0))
    assert run.batch(ROWS) == []
    assert [row["k"] for row in run.latest()] == ["a", "b"]


def test_punctuation_and_tombstones_pass_and_windows_follow():
    def steps(stream):
        named = stream.join_table("routes", on={"r": "route"}, columns="name")
        windows = named.where("name <> 'Yonge'").window("10 seconds", output="all", time_format="epoch_s")
        return windows.agg(n=us.count())

    run = StreamTester(
        steps, SCHEMA, key="k", event_time="t", time_format="epoch_s", watermark=us.Watermark.embedded(),
        tables={"routes": ROUTES},
    )  # fmt: skip
    assert run.batch(ROWS) == []
    assert [(row["k"], row["n"]) for row in run.batch(punctuation=20)] == [("a", 1)]
    gone = joining().batch([{"k": "a", "t": 5, "_upstream": {"deleted": True}}])
    assert [(row["k"], row["name"], row["_upstream"]) for row in gone] == [("a", None, {"deleted": True})]


def test_a_key_in_several_rows_is_refused_where_a_row_takes_one():
    twice = pa.concat_tables([ROUTES, ROUTES.slice(1)])
    run = joining({"routes": twice})
    with pytest.raises(TableError, match=r"1 rows more than keys: route 'y' is in several"):
        run.batch(ROWS)
    run.change_table("routes", ROUTES)
    assert len(run.batch(ROWS)) == 2


@pytest.mark.parametrize(
    ("join", "match"),
    [
        ({"on": "r"}, "the table has not"),
        ({"on": {"q": "route"}}, "the stream has not"),
        ({"on": {"v": "route"}}, "type int64 and route of type string"),
        ({"columns": ["nam"]}, r"has no nam.*route, name, v"),
        ({"suffix": "_x", "on": {"r": "route"}, "columns": ["name", "name"]}, "would be called name"),
    ],
)
def test_columns_that_do_not_fit(join, match):
    with pytest.raises(SchemaError, match=match):
        joining(**join)


@pytest.mark.parametrize(
    ("join", "match"),
    [
        ({"how": "outer"}, "inner, left, semi, anti"),
        ({"on": []}, "on="),
        ({"how": "semi", "columns": ["name"]}, "columns="),
        ({"table": "stops"}, "routes"),
    ],
)
def test_arguments_that_make_no_sense(join, match):
    table = join.pop("table", "routes")

    def steps(stream):
        return stream.join_table(table, **{"on": {"r": "route"}, **join})

    with pytest.raises(OptionError, match=match):
        StreamTester(steps, SCHEMA, key="k", event_time="t", time_format="epoch_us", tables={"routes": ROUTES})


def test_a_table_of_a_test_keeps_its_columns():
    run = joining()
    with pytest.raises(SchemaError, match="no column name any more"):
        run.change_table("routes", ROUTES.drop_columns(["name"]))
    with pytest.raises(SchemaError, match="given as dict"):
        run.change_table("routes", {})
