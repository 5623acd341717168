from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import upstream as us
from upstream.conf.errors import OptionError
from upstream.operators.runtime.dead_letters import LateFeed, LateRows, late_feed, late_rows_of
from upstream.plan.nodes import Reorder, Window
from upstream.testing import StreamTester

SCHEMA = StructType([StructField("k", LongType())])


class Spec:
    """Of nothing that runs."""

    def identity(self):
        return {}


def window(late):
    return Window(("k",), None, SCHEMA, specification=Spec(), late_location=late)


def distinct(late):
    return Reorder(("k",), None, SCHEMA, specification=Spec(), name="distinct", late_location=late)


@pytest.mark.parametrize(("node", "name"), [(window, "late"), (distinct, "late-distinct")])
def test_a_relative_folder_is_that_of_the_driver_and_files_have_the_plans_name(node, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = late_rows_of(node("aside"))
    assert found == LateRows(str(tmp_path / "aside"), name)
    assert found.name == node("aside").late_name
    assert late_rows_of(node(None)) is None


def test_a_batch_that_is_run_again_writes_the_same_file(tmp_path):
    aside = LateRows(str(tmp_path), "late-merge")
    for _ in range(2):
        aside.write(7, 3, pa.table({"k": [1]}))
    aside.write(8, 3, pa.table({"k": [1]}))
    assert sorted(each.name for each in tmp_path.glob("*.parquet")) == [
        "late-merge-000000007-00003.parquet",
        "late-merge-000000008-00003.parquet",
    ]


def feed_of(steps: Any) -> LateFeed:
    found: list[LateFeed] = []

    def looked(stream: Any) -> Any:
        made = steps(stream)
        found.append(late_feed(made.plan))
        return made

    StreamTester(looked, "bus STRING, at TIMESTAMP, `top speed` BIGINT", key="bus", event_time="at")
    return found[0]


def windows(stream: Any, late: Any = None, **options: Any) -> Any:
    return stream.window("5 minutes", output="all", late_location=late, **options).agg(n=us.count())


COLUMNS = "`bus` string, `at` timestamp, `top speed` bigint"


@pytest.mark.parametrize(
    ("steps", "name"),
    [
        (windows, "late"),
        (lambda stream, late: windows(stream, late, by="top speed").where("n > 1"), "late"),
        (lambda stream, late: stream.ordered(late_location=late), "late-ordered"),
        (lambda stream, late: stream.distinct(late_location=late).select("bus AS it"), "late-distinct"),
    ],
)
def test_the_rows_before_the_step_under_the_names_of_its_files(steps, name, tmp_path):
    """The key is theirs, whatever the key of the results."""
    feed = feed_of(lambda stream: steps(stream, tmp_path / "late"))
    assert feed == LateFeed(f"{tmp_path}/late/{name}-[0-9]*.parquet", ("bus",), "at", COLUMNS, None)


def test_of_windows_over_windows_the_last_that_keeps_some(tmp_path):
    inner = feed_of(lambda stream: windows(windows(stream, tmp_path / "inner")))
    assert inner.pattern == f"{tmp_path}/inner/late-[0-9]*.parquet"
    outer = feed_of(lambda stream: windows(windows(stream, tmp_path / "inner"), tmp_path / "outer"))
    assert outer.pattern == f"{tmp_path}/outer/late-[0-9]*.parquet"
    assert outer.event_time == "window_time"
    assert "`window_end` timestamp, " in outer.schema
    assert "_upstream" not in outer.schema


def test_a_folder_that_looks_like_a_pattern(tmp_path):
    assert feed_of(lambda stream: windows(stream, tmp_path / "a[1]*")).pattern.startswith(f"{tmp_path}/a[[]1][*]/late-")


@pytest.mark.parametrize("steps", [windows, lambda stream: stream.queue(), lambda stream: stream])
def test_a_stream_that_keeps_none_is_refused(steps):
    with pytest.raises(OptionError, match=r"late_rows\(\) of a stream that keeps none.*late_location"):
        feed_of(steps)
