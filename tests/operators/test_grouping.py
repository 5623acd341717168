"""Groups of newest rows without Spark."""

import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.testing import StreamTester


def stream_tester(steps):
    schema = "k STRING, t BIGINT, r STRING, v BIGINT"
    return StreamTester(steps, schema, key="k", event_time="t", time_format="epoch_us")


def test_a_key_leaves_one_group_and_enters_another():
    tester = stream_tester(lambda stream: stream.group_by("r", shards=2).agg(n=us.count(), v=us.sum("v")))
    tester.batch([{"k": "a", "t": 1, "r": "x", "v": 3}, {"k": "b", "t": 1, "r": "x", "v": 4}])
    assert [(row["r"], row["n"], row["v"]) for row in tester.latest()] == [("x", 2, 7)]
    tester.batch([{"k": "a", "t": 2, "r": "y", "v": 5}])
    found = {row["r"]: (row["n"], row["v"]) for row in tester.latest()}
    assert found == {"x": (1, 4), "y": (1, 5)}
    tester.batch([{"k": "b", "t": 2, "r": "y", "v": 1}])
    assert {row["r"]: (row["n"], row["v"]) for row in tester.latest()} == {"y": (2, 6)}


@pytest.mark.parametrize(
    ("steps", "error", "words"),
    [
        (lambda stream: stream.group_by("r").agg(), OptionError, "nothing to aggregate"),
        (lambda stream: stream.group_by("r").agg(n="count"), OptionError, "is no aggregate"),
        (lambda stream: stream.group_by(), OptionError, "at least one column"),
        (lambda stream: stream.group_by("line"), SchemaError, "line"),
        (lambda stream: stream.group_by("r").agg(r=us.count()), SchemaError, "column of that name"),
        (lambda stream: stream.group_by("r").agg(n=us.count()).window("1 s"), SchemaError, "in place of the one"),
    ],
)
def test_what_makes_no_sense_is_refused(steps, error, words):
    with pytest.raises(error, match=words):
        stream_tester(steps)
