"""A job in a few lines, from a feed to a table that is read without Spark."""

import pytest
from kit.queries import run_to_end

import upstream
from upstream import aggregates as agg
from upstream.conf.errors import OptionError, SchemaError

pytestmark = pytest.mark.spark

ROWS = [(key, second, key * 10 + second) for second in range(12) for key in (1, 2)]


@pytest.fixture
def feed(tmp_path):
    folder = tmp_path / "feed"
    folder.mkdir()
    lines = [f"{key},1970-01-01T00:00:{second:02d}Z,{speed}" for key, second, speed in ROWS]
    (folder / "0.csv").write_text("\n".join(["vehicle,at,speed", *lines]) + "\n")
    return folder


def test_a_window_of_each_key(spark, feed, tmp_path):
    run_to_end(
        upstream.read(spark, feed, key="vehicle", event_time="at", watermark_delay="1 second", onEnd="keep")
        .where("speed > 10")
        .window("4 seconds", slide="2 seconds")
        .agg(speed=agg.avg("speed"), rows=agg.count())
        .write(tmp_path / "speeds", checkpoint=tmp_path / "checkpoint")
    )
    table = upstream.LatestTable(tmp_path / "speeds")
    found = table.scan(["vehicle", "speed", "rows"]).collect().sort("vehicle").rows()
    # The newest row is of 11 s, so the watermark is at 10 s: the last window that is complete holds 6 to 9 s.
    assert found == [(1, 17.5, 4), (2, 27.5, 4)]
    assert table.check().healthy
    (version, summary), *_ = table.commits()
    assert (version, summary.rows) == (1, 2)


def test_coalesced_into_a_table_with_a_key_of_its_own(spark, feed, tmp_path):
    stream = upstream.read(spark, str(feed), key="vehicle", event_time="at", coalesce=True)
    with pytest.raises(SchemaError, match="coalesces"):
        stream.window("4 seconds")
    own = {"key": ["vehicle"], "event_time": "at", "buckets": 2, "history": "latest"}
    run_to_end(stream.write(tmp_path / "latest", checkpoint=tmp_path / "checkpoint", **own))
    found = upstream.LatestTable(tmp_path / "latest").scan(["vehicle", "speed"]).collect()
    assert sorted(found.rows()) == [(1, 21), (2, 31)]


def test_wrong_arguments_are_named_at_once(spark, feed, tmp_path):
    with pytest.raises(OptionError, match="both watermark and watermark_delay"):
        upstream.read(spark, feed, key="k", watermark=upstream.Watermark.ordered(), watermark_delay="1 s")
    with pytest.raises(OptionError, match="key=None"):
        upstream.read(spark, feed, key=None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="event_time=3"):
        upstream.read(spark, feed, key="k", event_time=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match=r"eventTime='at'. Expected: event_time"):
        upstream.read(spark, feed, key="vehicle", eventTime="at")
    stream = upstream.read(spark, feed, key="vehicle", event_time="at")
    with pytest.raises(OptionError, match="checkpoint=None"):
        stream.write(tmp_path / "t", checkpoint=None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="checkpointLocation is given beside"):
        stream.write(tmp_path / "t", checkpoint=tmp_path / "c", checkpointLocation="d")
    with pytest.raises(OptionError, match="bucket"):
        stream.write(tmp_path / "t", checkpoint=tmp_path / "c", bucketz=3)
