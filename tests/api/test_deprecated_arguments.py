"""`time` is `event_time` now: the old name works, and warns."""

from typing import Any

import pytest

import upstream
from upstream.conf.errors import OptionError

pytestmark = pytest.mark.spark


@pytest.fixture
def feed(tmp_path):
    (tmp_path / "feed.csv").write_text("k,t,v\n1,2,old\n1,1,late\n")
    return str(tmp_path / "feed.csv")


def test_time_is_event_time(spark, feed, tmp_path):
    with pytest.warns(DeprecationWarning, match=r"latest\(time=…\).*use event_time=") as seen:
        old = upstream.latest(spark, feed, key="k", time="t", timeFormat="epoch_s")
    assert seen[0].filename == __file__
    with pytest.warns(DeprecationWarning, match=r"UpdateStream\(time=…\).*use event_time=") as seen:
        stream = upstream.UpdateStream(old, key="k", time="t")  # pyright: ignore[reportCallIssue]
    assert seen[0].filename == __file__
    assert stream.event_time == "t"
    with pytest.warns(DeprecationWarning, match=r"UpdateStream.time.*use event_time"):
        assert stream.time == "t"
    with pytest.warns(DeprecationWarning, match=r"write_latest\(time=…\).*use event_time=") as seen:
        writer = upstream.write_latest(stream, tmp_path / "t", key="k", time="t", checkpointLocation=tmp_path / "cp")
    assert seen[0].filename == __file__
    writer.trigger(availableNow=True).start().awaitTermination()
    rows = spark.createDataFrame([(1, 1, "late again"), (2, 1, "new")], "k BIGINT, t BIGINT, v STRING")
    with pytest.warns(DeprecationWarning, match=r"write_batch\(time=…\).*use event_time="):
        upstream.write_batch(rows, tmp_path / "t", key="k", time="t")
    found = upstream.LatestTable(tmp_path / "t").rows().collect()
    assert sorted(found.rows()) == [(1, 2, "old"), (2, 1, "new")], "the time decided, by each of the old names"


def test_both_names_are_refused(spark, feed, tmp_path):
    df = upstream.latest(spark, feed, key="k", event_time="t", timeFormat="epoch_s")
    both: dict[str, Any] = {"key": "k", "event_time": "t", "time": "t"}
    for call in (
        lambda: upstream.latest(spark, feed, **both),
        lambda: upstream.write_latest(df, tmp_path / "t", **both),
        lambda: upstream.UpdateStream(df, **both),
    ):
        with pytest.raises(OptionError, match="both event_time and time"):
            call()
    with pytest.raises(TypeError, match="unexpected keyword argument 'tiem'"):
        upstream.UpdateStream(df, key="k", tiem="t")  # pyright: ignore[reportCallIssue]
