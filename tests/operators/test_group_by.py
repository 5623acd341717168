"""Groups of newest rows without Spark."""

import pytest

import upstream as us
from upstream.conf.errors import OptionError, SchemaError
from upstream.testing import StreamTester


def stream_tester(steps):
    schema = "k STRING, t BIGINT, r STRING, v BIGINT"
    return StreamTester(steps, schema, key="k", event_time="t", time_format="epoch_us")


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
