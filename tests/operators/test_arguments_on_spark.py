"""Methods of a stream, given what they do not take: refused in our words where they are called."""

from typing import Any

import pytest
from kit.feeds import csv_feed

import upstream
from upstream.conf.errors import OptionError

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(spark, tmp_path):
    return upstream.UpdateStream(csv_feed(spark, tmp_path), key="key", event_time="ms")


TIMES = {"time_format": 5, "time_zone": 5}
WRONG: dict[str, dict[str, Any]] = {
    "queue": {
        "policy": 5, "budget": "ten", "shards": "4", "weight": 5, "access_interval": 5, "cost": 5, "half_life": 5,
        "stalest_keys": "1",
    },
    "window": {
        "duration": 5, "slide": 5, "zone": 5, "emit": 1, "lateness": 5, "tombstones": 5, "shards": 4.0,
    },
    "union": {"other": 5, "names": 5, "prefer": 5, "overlap": "no", "shards": "4"},
    "merge": {
        "other": 5, "names": (1, 2), "prefer": 5, "flush": 5, "flush_rows": "40", "shards": True, "dead_letters": 5,
    },
    "ordered": {"flush": 5, "flush_rows": 40.5, "shards": "4", "dead_letters": 5},
    "distinct": {"late": 5, "shards": None, "dead_letters": 5},
    "where": {"condition": 5, "on_leave": 5},
    "map": {"function": 5, "schema": 5, "batch_rows": "10"},
    "dataframe": {"checkpoint": 5},
    "explain": {"checkpoint": 5},
    "describe": {"checkpoint": 5},
}  # fmt: skip
# What a call needs besides.
NEEDED: dict[str, dict[str, Any]] = {
    "window": {"duration": "1 second"},
    "where": {"condition": "value > 1"},
    "map": {"function": lambda batch: batch, "schema": "x INT"},
}


@pytest.mark.parametrize("method", WRONG)
def test_what_is_no_argument_is_refused_by_name(stream, method):
    needed = {"other": stream} if method in ("union", "merge") else NEEDED.get(method, {})
    for name, value in WRONG[method].items():
        more = {"flush": "slow"} if name == "flush_rows" else {}
        with pytest.raises(OptionError, match=rf"{value!r}".replace("(", r"\(").replace(")", r"\)")) as refused:
            getattr(stream, method)(**{**needed, **more, name: value})
        assert refused.value.expected, (method, name)


@pytest.mark.parametrize("method", ["select", "distinct"])
def test_what_is_no_column_is_refused(stream, method):
    for column in (5, None, ["value"]):
        with pytest.raises(OptionError, match=method):
            getattr(stream, method)(column)


WRONG_FRAME: dict[str, Any] = {
    "df": 5, "key": 3, "event_time": 5, "feed": 5, "order": 5, "deleted": 5,
    "watermark": "5 s", **TIMES,
    "on_malformed": 5, "dead_letters": 5, "dead_letter_rows": 5, "shards": "4", "name": 5,
}  # fmt: skip


def test_what_from_dataframe_does_not_take_is_refused_by_name(spark):
    rows = spark.readStream.format("rate").load().selectExpr("value AS k", "timestamp AS at")
    upstream.UpdateStream.from_dataframe(rows, key="k", event_time="at")
    for name, value in WRONG_FRAME.items():
        with pytest.raises(OptionError, match=rf"{name}.*{value!r}"):
            upstream.UpdateStream.from_dataframe(**{"df": rows, "key": "k", "event_time": "at", name: value})


@pytest.mark.parametrize(
    "wrong",
    [
        {"df": 5},
        {"key": 3},
        {"key": []},
        {"key": None},
        {"key": ["key", 3]},
        {"event_time": 5},
        {"time_format": 5},
        {"time_format": "epoch_s"},
        {"time_zone": "Mars"},
    ],
)
def test_what_the_class_does_not_take_is_refused_by_name(stream, wrong):
    ((name, _),) = wrong.items()
    with pytest.raises(OptionError, match=rf"^{name}="):
        upstream.UpdateStream(**{"df": stream.df, "key": "key", "event_time": "ms", **wrong})
