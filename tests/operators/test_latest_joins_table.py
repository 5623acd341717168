"""Joins with tables, without Spark."""

import polars as pl
import pyarrow as pa
import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.testing import StreamTester

ROUTES = pa.table({"route": ["x", "y"], "name": ["Xanadu", "Yonge"], "v": pa.array([7, 8], pa.int64())})
SCHEMA = "k STRING, t BIGINT, r STRING, v BIGINT"


def joining(**join):
    def steps(stream):
        return stream.join_table(**{"table": "routes", "on": {"r": "route"}, **join})

    return StreamTester(steps, SCHEMA, key="k", event_time="t", time_format="epoch_us", tables={"routes": ROUTES})


ROWS = [
    {"k": "a", "t": 1, "r": "x", "v": 1}, {"k": "b", "t": 1, "r": "z", "v": 2}, {"k": "c", "t": 1, "r": None, "v": 3},
    {"k": "d", "t": 1, "r": "y", "v": 4},
]  # fmt: skip


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
    gone = joining(how="left").batch([ROWS[1], {"k": "a", "t": 5, "_upstream": {"deleted": True}}])
    assert [(row["k"], row["name"], row.get("_upstream")) for row in gone] == [
        ("b", None, None), ("a", None, {"deleted": True}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("join", "error", "match"),
    [
        ({"on": "r"}, SchemaError, "the table has not"),
        ({"on": {"q": "route"}}, SchemaError, "the stream has not"),
        ({"on": {"v": "route"}}, SchemaError, "int64 and route"),
        ({"columns": ["nam"]}, SchemaError, "has no nam"),
        ({"suffix": "_x", "columns": ["name", "name"]}, SchemaError, "would be called name"),
        ({"how": "outer"}, OptionError, "inner, left, semi, anti"),
        ({"on": []}, OptionError, "on="),
        ({"how": "semi", "columns": ["name"]}, OptionError, "columns="),
        ({"table": "stops"}, OptionError, "routes"),
    ],
)
def test_arguments_that_make_no_sense(join, error, match):
    with pytest.raises(error, match=match):
        joining(**join)


def test_a_table_of_a_test_keeps_its_columns():
    run = joining()
    with pytest.raises(SchemaError, match="no column name any more"):
        run.change_table("routes", ROUTES.drop_columns(["name"]))
    with pytest.raises(SchemaError, match="given as dict"):
        run.change_table("routes", {})
