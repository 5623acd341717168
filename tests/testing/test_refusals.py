"""What the tester does not do, it refuses, and says what to do."""

from __future__ import annotations

from typing import Any

import pyspark.sql
import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.testing import StreamTester

SCHEMA = "k STRING, at TIMESTAMP, v DOUBLE"


class Column(pyspark.sql.Column):
    """One that no session made."""

    def __new__(cls) -> Column:  # noqa: PYI034 no other class is made of it
        return object.__new__(cls)

    def __init__(self) -> None:
        pass

    def __str__(self) -> str:
        return "Column<'v > 0'>"


def made(steps: Any, schema: Any = SCHEMA, **more: Any) -> StreamTester:
    given = {"key": "k", "event_time": "at", **more}
    return StreamTester(steps, schema, **given)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (lambda s: s.where(Column()), r"Column<'v > 0'>.*give the expression as text"),
        (lambda s: s.select(Column()), "give the expression as text"),
        (lambda s: s.where("v RLIKE 'a.*'"), r"without Spark.*test this step on Spark"),
        (lambda s: s.select("rand() AS r"), r"without Spark.*map\(…\)"),
        (lambda s: s.queue(weight="hash(k)"), "without Spark"),
        (lambda s: s.write("table", checkpoint="c"), r"write\(…\) inside.*return the stream"),
        (lambda s: s.df, "no DataFrame"),
        (lambda s: s.session, "no Spark session"),
        (lambda s: s.window("5 minutes"), r"return WindowedStream.*agg"),
        (lambda _: None, "return NoneType"),
        (lambda: None, "take no stream"),
        (lambda s: s.queue().union(s.queue()).queue(budget=0), "budget"),
    ],
)
def test_steps(steps: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        made(steps)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (lambda s: s.where("absent > 0"), "absent"),
        (lambda s: s.where("v + 1"), "Expected: a condition"),
        (lambda s: s.select("v + 1 AS at"), "at would be computed anew"),
        (lambda s: s.select("v", "v"), "two columns are called v"),
        (lambda s: s.map(lambda batch: batch, "k STRING"), "map would give k"),
        (lambda s: s.queue(policy="fifo").window("5 minutes"), "every row, once"),
        (lambda s: s.union(s.select("v + 1 AS w")), "differ in v, w"),
    ],
)
def test_columns(steps: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        made(steps)


@pytest.mark.parametrize(
    "steps",
    [
        lambda s: s.where("v > 0").window("5 minutes").agg(n=us.aggregates.count()),
        lambda s: s.ordered(),
        lambda s: s.distinct("v"),
        lambda s: s.merge(s.where("v > 0")),
    ],
    ids=["window", "ordered", "distinct", "merge"],
)
def test_steps_that_would_wait_for_ever_for_a_low_watermark(steps: Any) -> None:
    with pytest.raises(OptionError, match="promises nothing"):
        made(steps, watermark=us.Watermark.none())
    made(steps)


def test_an_operator_in_two_branches() -> None:
    def steps(stream: Any) -> Any:
        one = stream.distinct()
        return one.where("v > 0").union(one.where("v < 0"))

    with pytest.raises(OptionError, match="two branches"):
        made(steps)


def test_arguments() -> None:
    same = lambda s: s  # noqa: E731
    with pytest.raises(SchemaError, match="no column id"):
        made(same, key="id")
    with pytest.raises(SchemaError, match="no column when"):
        made(same, event_time="when")
    with pytest.raises(OptionError, match="key"):
        made(same, key=[])
    with pytest.raises(OptionError, match="is no schema"):
        made(same, schema="k of text")
    with pytest.raises(OptionError, match=r"inputs called left, up for steps of left, right"):
        made(lambda left, right: left.union(right), schema={"left": SCHEMA, "up": SCHEMA})
    tester = made(same)
    with pytest.raises(OptionError, match="into='other'"):
        tester.batch([], into="other")
    with pytest.raises(SchemaError, match=r"the rows have speed.*columns among k, at, v"):
        tester.batch([{"k": "a", "speed": 1.0}])
    with pytest.raises(OptionError, match="punctuation='soon'"):
        tester.batch(punctuation="soon")
    with pytest.raises(OptionError, match="without an event time"):
        made(same, event_time=None).batch(punctuation="2024-01-01")
    with pytest.raises(SchemaError, match="no column absent"):
        tester.latest(key="absent")
