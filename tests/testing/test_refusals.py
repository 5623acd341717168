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


def window(stream: Any, duration: Any = "10 s", slide: Any = None, **options: Any) -> Any:
    return stream.window(duration, slide, **options).agg(n=us.count())


def made(steps: Any, schema: Any = SCHEMA, **more: Any) -> StreamTester:
    given = {"key": "k", "event_time": "at", **more}
    return StreamTester(steps, schema, **given)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (lambda s: s.where(Column()), r"Column<'v > 0'>.*give the expression as text"),
        (lambda s: s.select(Column()), "give the expression as text"),
        (lambda s: s.where("split(k, 'a') IS NULL"), r"without Spark.*test this step on Spark"),
        (lambda s: s.select("rand() AS r"), r"without Spark.*map\(…\)"),
        (lambda s: s.queue(weight="levenshtein(k, 'a')"), "without Spark"),
        (lambda s: s.write("table", checkpoint="c"), r"write\(…\) inside.*return the stream"),
        (lambda s: s.df, "no DataFrame"),
        (lambda s: s.session, "no Spark session"),
        (lambda s: s.window("5 minutes"), r"return WindowedStream.*agg"),
        (lambda _: None, "return NoneType"),
        (lambda: None, "take no stream"),
        *((lambda s, wrong=wrong: s.queue(budget=wrong), "budget") for wrong in (0, -3, 1.5, "much")),
        (lambda s: s.queue(policy="lifo"), "lifo.*in-place"),
        (lambda s: s.where("v > 0", on_leave="drop"), "on_leave='drop'"),
        (lambda s: window(s, "10 s", "0 s"), "SLIDE is '0 s'"),
        *((lambda s, wrong=wrong: window(s, wrong), "RANGE is") for wrong in ("soon", 10, None, "")),
        (lambda s: window(s, "1 month"), "no zone"),
        (lambda s: window(s, "all"), "without a slide"),
        (lambda s: window(s, emit="sometimes"), "emit='sometimes'"),
        (lambda s: window(s, emit=us.Emission("eager", early=True)), "'eager', early=True"),
        (lambda s: window(s, us.Windower("10 s", method="quick")), "method='quick'"),
        (lambda s: window(s, us.Windower("10 s"), "5 s"), "slide='5 s' and zone=None beside it"),
        (lambda s: window(s, us.Windower("all", "10 s", method="wid")), "method='wid' on landmark"),
        (lambda s: window(s, "all", "10 s", lateness="1 s"), "a lateness on landmark"),
        (lambda s: window(s, lateness="a while"), "lateness='a while'"),
        (lambda s: window(s, lateness=us.Lateness(dead_letters="late")), "dead_letters='late'"),
        (lambda s: window(s, shards=0), "shards=0"),
        (lambda s: s.window("10 s").agg(), "nothing to aggregate"),
        (lambda s: s.window("10 s").agg(n="count"), "n='count'"),
        (lambda s: window(s, us.Windower("1 day", "1 s", method="wid")), "86,400 windows"),
        (lambda s: window(s, "1 day", "1 ms", emit="all"), "86,400,000 results"),
        (lambda s: window(s, "1 hour", "1.000001 s"), "3,600,000,000 panes"),
        (lambda s: s.union(s, prefer="up"), r"prefer='up'.*left, right"),
        (lambda s: s.union(s, names=("a", "a")), r"names=\('a', 'a'\)"),
        (lambda s: s.ordered(flush="slow"), "flush='slow' with flush_rows=None"),
        (lambda s: s.ordered(flush="slow", flush_rows=3), "flush_rows=3 for 16 shards"),
        (lambda s: s.ordered(flush="lazy"), "flush='lazy'"),
        (lambda s: s.distinct(late="drop"), "late='drop'"),
    ],
)
def test_steps(steps, words):
    with pytest.raises(OptionError, match=words):
        made(steps)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (lambda s: s.where("absent > 0"), "absent"),
        (lambda s: s.where("v + 1"), "Expected: a condition"),
        (lambda s: s.select("v + 1 AS at"), "at would be computed again"),
        (lambda s: s.select("v", "v"), "two columns are called v"),
        (lambda s: s.map(lambda batch: batch, "k STRING"), "map would give k"),
        *(
            (lambda s, policy=policy: window(s.queue(policy=policy).where("v > 0")), f"policy='{policy}'")
            for policy in ("fifo", "in-place", "auto", "shed")
        ),
        (lambda s: window(s.where("v > 0", on_leave="delete").select("v")), "tombstones"),
        (lambda s: window(window(s, emit=us.Emission(early=True))), "several times"),
        (lambda s: window(window(s, emit="all", lateness="1 s")), "re-emits a result"),
        (lambda s: window(window(s, emit="latest").where("n > 1")), "emit='latest'"),
        (lambda s: window(window(s, emit="eager").where("n > 1")), "emit='eager'"),
        (lambda s: s.window("10 s").agg(s=us.sum("speed")), "speed"),
        (lambda s: s.window("10 s").agg(s=us.avg("k")), "numbers"),
        (lambda s: s.window("10 s").agg(k=us.count()), "an aggregate is named k"),
        (lambda s: s.window("10 s").agg(window_end=us.count()), "an aggregate is named window_end"),
        (lambda s: s.union(s.select("v + 1 AS w")), "differ in v, w"),
        (lambda s: s.distinct("absent"), "distinct by absent"),
    ],
)
def test_columns(steps, words):
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
def test_steps_that_would_wait_for_ever_for_a_low_watermark(steps):
    with pytest.raises(OptionError, match="without a low-watermark"):
        made(steps, watermark=us.Watermark.none())
    with pytest.raises(OptionError, match="without a time"):
        made(steps, event_time=None)
    made(steps)


def test_an_operator_in_two_branches():
    def steps(stream: Any) -> Any:
        one = stream.distinct()
        return one.where("v > 0").union(one.where("v < 0"))

    with pytest.raises(OptionError, match="two branches"):
        made(steps)


def test_arguments():
    same = lambda s: s  # noqa: E731
    with pytest.raises(SchemaError, match="no column id"):
        made(same, key="id")
    with pytest.raises(SchemaError, match="no column when"):
        made(same, event_time="when")
    with pytest.raises(OptionError, match="key"):
        made(same, key=[])
    with pytest.raises(OptionError, match="is not a schema"):
        made(same, schema="k of text")
    with pytest.raises(OptionError, match="left, up"):
        made(lambda left, right: left.union(right), schema={"left": SCHEMA, "up": SCHEMA})
    tester = made(same)
    with pytest.raises(OptionError, match="into='other'"):
        tester.batch([], into="other")
    with pytest.raises(SchemaError, match="speed"):
        tester.batch([{"k": "a", "speed": 1.0}])
    with pytest.raises(OptionError, match="punctuation='soon'"):
        tester.batch(punctuation="soon")
    with pytest.raises(OptionError, match="without an event time"):
        made(same, event_time=None).batch(punctuation="2024-01-01")
    with pytest.raises(SchemaError, match="no column absent"):
        tester.latest(key="absent")
    with pytest.raises(SchemaError, match="time_format=epoch_ms"):
        made(same, "k STRING, at BIGINT")
