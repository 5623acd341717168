"""Windows that make no sense are refused when they are asked for, before anything runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.feeds import csv_feed, write_csv
from pyspark.sql import SparkSession

import upstream
from upstream.conf.errors import OptionError, SchemaError
from upstream.operators.aggregates.functions import avg, count, sum_

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("feed")
    write_csv(made / "part-0.csv", "key,ms,value", [("k0", 1_700_000_000_000 + at, at) for at in range(4)])
    return made


@pytest.fixture(scope="module")
def stream(spark: SparkSession, folder: Path) -> upstream.UpdateStream:
    return upstream.UpdateStream(csv_feed(spark, folder), key="key", event_time="ms")


def windows(stream: upstream.UpdateStream, duration: Any = "10 s", slide: Any = None, **options: Any) -> Any:
    """Windows over a stream that are in order but for what a test gives."""
    aggregates = options.pop("aggregates", {"n": count()})
    return stream.window(duration, slide, **{"time_format": "epoch_ms", **options}).agg(**aggregates)


@contextlib.contextmanager
def refused(spark: SparkSession, error: type[Exception], message: str) -> Iterator[None]:
    with pytest.raises(error, match=message):
        yield
    assert not spark.streams.active, "something runs"


DAY_BY_SECOND: dict[str, Any] = {"duration": "1 day", "slide": "1 s"}
WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"slide": "0 s"}, r"SLIDE is '0 s'. Expected: at least 1 microsecond"),
    ({"slide": "-5 s"}, r"SLIDE is '-5 s', which is not a duration. Expected: a positive number and a unit"),
    *(
        ({"duration": wrong}, r"RANGE is .*, which is not a duration. Expected: .*'10 minutes'")
        for wrong in ("soon", 10, None, "")
    ),
    ({"duration": "1 month"}, r"'1 month', and no zone is given.*What to do: give zone"),
    ({"duration": "all"}, r"duration='all' without a slide.*slide='1 hour'"),
    ({"output": "sometimes"}, r"output='sometimes'. Expected: one of latest, all, eager"),
    ({"output": "eager", "early": True}, r"output='eager' with early=True.*leave early out"),
    ({"time_zone": "Mars"}, r"time_zone='Mars'.*Expected: an IANA name"),
    ({"method": "quick"}, r"method='quick'. Expected: auto, "),
    ({"duration": "all", "slide": "10 s", "method": "wid"}, r"method='wid' on landmark windows.*'paned'"),
    ({"duration": "all", "slide": "10 s", "allowed_lateness": "1 s"}, r"allowed_lateness on landmark windows"),
    ({"slide": "3 rows", "early": True}, r"early=True with windows that slide by 3 rows. Expected: early=False"),
    ({"slide": "3 rows", "order": "arrival", "early": True}, r"slide by 3 rows. Expected: early=False: such a window"),
    ({"allowed_lateness": "a while"}, r"allowed_lateness='a while'. Expected: a duration"),
    ({"shards": 0}, r"shards=0. Expected: a whole number, at least 1"),
    ({"aggregates": {}}, r"there is nothing to aggregate.*count\(\)"),
    ({"aggregates": {"n": "count"}}, r"n='count'.*count\(\)"),
    ({**DAY_BY_SECOND, "method": "wid"}, r"in 86,400 windows.*method='paned'"),
    ({**DAY_BY_SECOND, "slide": "1 ms", "output": "all"}, r"86,400,000 results.*output='latest'"),
    ({"duration": "1 hour", "slide": "1.000001 s"}, r"3,600,000,000 panes.*SLIDE that divides RANGE"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), WRONG_OPTIONS, ids=[str(given) for given, _ in WRONG_OPTIONS])
def test_a_wrong_option(
    spark: SparkSession, stream: upstream.UpdateStream, options: dict[str, Any], message: str
) -> None:
    with refused(spark, OptionError, message):
        windows(stream, **options)


WRONG_COLUMNS: list[tuple[dict[str, Any], str]] = [
    ({"aggregates": {"s": sum_("speed")}}, r"sum\(speed\): there is no column speed.*one of \['key', 'ms', 'value'"),
    ({"aggregates": {"s": avg("key")}}, r"avg\(key\): key is string. Expected: a column of numbers"),
    ({"aggregates": {"key": count()}}, r"an aggregate is named key.*another name"),
    ({"aggregates": {"window_end": count()}}, r"an aggregate is named window_end"),
    ({"time_format": None}, r"'ms' holds numbers.*time_format=epoch_ms"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_COLUMNS, ids=[message for _, message in WRONG_COLUMNS])
def test_a_column_that_does_not_do(
    spark: SparkSession, stream: upstream.UpdateStream, options: dict[str, Any], message: str
) -> None:
    with refused(spark, SchemaError, message):
        windows(stream, **options)


def test_windows_by_time_on_a_stream_without_a_time(spark: SparkSession, stream: upstream.UpdateStream) -> None:
    timeless = upstream.UpdateStream(stream.df, key="key")
    with refused(spark, OptionError, r"windows by time on a stream without a time.*name the time column"):
        windows(timeless)


@pytest.mark.parametrize("policy", ["in-place", "auto", "shed"])
def test_windows_after_a_queue_that_leaves_rows_out(
    spark: SparkSession, stream: upstream.UpdateStream, policy: Any
) -> None:
    message = rf"queue\(policy='{policy}'\) leaves rows out.*put the window before the queue"
    with refused(spark, SchemaError, message):
        windows(stream.queue(policy=policy).where("value > 0"))


def test_windows_over_tombstones(spark: SparkSession, stream: upstream.UpdateStream) -> None:
    with refused(spark, SchemaError, r'tombstones.*on_leave="keep"'):
        windows(stream.where("value > 0", on_leave="delete").select("value"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"early": True}, "leave early out"),
        ({"output": "all", "allowed_lateness": "1 s"}, "leave allowed_lateness out"),
    ],
)
def test_windows_over_windows_that_give_a_result_several_times(
    spark: SparkSession, stream: upstream.UpdateStream, options: dict[str, Any], message: str
) -> None:
    first = windows(stream, **options)
    with refused(spark, SchemaError, f"several times|given again.*{message}"):
        windows(first, time_format=None)


@pytest.mark.parametrize("output", ["latest", "eager"])
def test_windows_over_windows_whose_results_depend_on_the_batches(
    spark: SparkSession, stream: upstream.UpdateStream, output: Any
) -> None:
    first = windows(stream, output=output).where("n > 1")
    with refused(spark, SchemaError, f"output='{output}'.*depend on the batches.*output=\"all\""):
        windows(first, time_format=None)


@pytest.mark.parametrize("duration", ["10 s", "10 rows"])
@pytest.mark.parametrize("way", ["a column more", "fewer columns", "without the system column"])
def test_windows_over_a_source_that_leaves_out_superseded_rows(
    spark: SparkSession, folder: Path, way: str, duration: str
) -> None:
    coalesced = upstream.latest(spark, str(folder), key="key", event_time="ms", timeFormat="epoch_ms")
    coalesced = coalesced.where("value > 0 OR _upstream.punctuation")
    whole = upstream.UpdateStream(coalesced.withColumn("more", coalesced["value"] + 1), key="key", event_time="ms")
    bare = upstream.UpdateStream.from_dataframe(
        coalesced.drop("_upstream"), key="key", event_time="ms", time_format="epoch_ms", name="bare"
    )
    stream = {"a column more": whole, "fewer columns": whole.select("more"), "without the system column": bare}[way]
    with refused(spark, SchemaError, r"source coalesces.*readStream"):
        windows(stream, duration)
