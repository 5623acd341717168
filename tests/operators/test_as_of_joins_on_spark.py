"""Joins as of a time on Spark, and windows after them."""

from __future__ import annotations

import random

import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from kit.tables import read_frame

import upstream as us
from upstream.conf.errors import OptionError

pytestmark = pytest.mark.spark


def write_feed(folder, name, files, keys, per_file=60):
    chance = random.Random(name)
    found = []
    for number in range(files):
        rows = []
        for _ in range(per_file):
            at = len(found)
            row = (f"k{chance.randrange(keys)}", 1000 + at * 4 - chance.randrange(50), at)
            found.append(row)
            rows.append(row)
        write_csv(folder / f"{name}-{number:03d}.csv", "key,ms,value", rows)
    return found


def feed(spark, folder, name, **options):
    given = {"progress": "bounded", "progressDelay": "60 ms", "maxFilesPerTrigger": 1, "atEnd": "close", **options}
    rows = csv_feed(spark, f"{folder}/{name}-*.csv", "key STRING, ms BIGINT, value BIGINT", **given)
    return us.UpdateStream(rows, key="key", event_time="ms")


def test_trades_with_the_quote_that_was_newest_and_windows_of_them(spark, tmp_path):
    trades = write_feed(tmp_path / "feed", "trade", 3, 5)
    quotes = write_feed(tmp_path / "feed", "quote", 2, 4, per_file=30)
    left, right = (feed(spark, tmp_path / "feed", name) for name in ("trade", "quote"))
    valued = left.join_as_of(right, on="key", how="left", tolerance=200, shards=3)
    assert valued.schema.names == ["key", "ms", "value", "ms_right", "value_right", "_upstream"]
    assert (valued.key, valued.event_time, valued.shards) == (("key",), "ms", 3)
    write_to_end(valued, tmp_path / "table", tmp_path / "checkpoint", key=("key", "value"))
    expected = {}
    for key, ms, number in trades:
        known = [quote for quote in quotes if quote[0] == key and ms - 200 <= quote[1] <= ms]
        expected[number] = max(known, key=lambda quote: (quote[1], quote[2]), default=(None, None, None))[2]
    found = dict(read_frame(tmp_path / "table").select("value", "value_right").rows())
    assert found == expected
    assert any(number is None for number in found.values())

    counted = (
        feed(spark, tmp_path / "feed", "trade")
        .join_as_of(feed(spark, tmp_path / "feed", "quote"), on="key", shards=2)
        .window("100 ms", output="all", time_format="epoch_ms", shards=2)
        .agg(n=us.count(), last=us.last("value_right", by="ms"))
    )
    write_to_end(counted, tmp_path / "windows", tmp_path / "windows_checkpoint", key=("key", "window_id"))
    with_partner = sum(any(quote[0] == key and quote[1] <= ms for quote in quotes) for key, ms, _ in trades)
    assert read_frame(tmp_path / "windows")["n"].sum() == with_partner


def test_trades_are_there_at_once_and_again_with_a_better_quote_over_a_restart(spark, tmp_path):
    trades = write_feed(tmp_path / "feed", "trade", 2, 5)
    quotes = write_feed(tmp_path / "feed", "quote", 1, 4, per_file=30)

    def run():
        left, right = (
            feed(spark, tmp_path / "feed", name, maxFilesPerTrigger=9, atEnd="keep") for name in ("trade", "quote")
        )
        valued = left.join_as_of(right, on="key", how="left", early=True, shards=2)
        write_to_end(valued, tmp_path / "table", tmp_path / "checkpoint", key=("key", "left_row"))
        known = {
            number: [quote for quote in quotes if quote[0] == key and quote[1] <= ms] for key, ms, number in trades
        }
        expected = {
            number: max(found, key=lambda quote: quote[1:], default=(None, None, None))[2]
            for number, found in known.items()
        }
        assert dict(read_frame(tmp_path / "table").select("value", "value_right").rows()) == expected
        return expected

    first = run()
    # Quotes among the later trades, which the watermark has not passed.
    better = [(f"k{at % 4}", 1100 + 20 * at, 100 + at) for at in range(15)]
    write_csv(tmp_path / "feed" / "quote-900.csv", "key,ms,value", better)
    quotes += better
    last = run()
    assert {number for number, quote in first.items() if quote is not None and last[number] != quote}


def test_what_makes_no_sense_is_refused(spark, tmp_path):
    write_feed(tmp_path / "feed", "a", 1, 2)
    one, two = (feed(spark, tmp_path / "feed", "a") for _ in range(2))
    for problem, match in (
        ({"how": "full"}, "one of inner, left"),
        ({"tolerance": -1}, "not negative"),
        ({"tolerance": "1 hour"}, "time_format='epoch_ms'"),
    ):
        with pytest.raises(OptionError, match=match):
            one.join_as_of(two, on="key", **problem)
    with pytest.raises(OptionError, match="left stream without an event time"):
        us.UpdateStream(one.df, key="key").join_as_of(two, on="key")
