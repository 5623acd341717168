"""A join as of a time on Spark, over a restart."""

from __future__ import annotations

import random

import pytest
from kit.feeds import csv_feed, write_csv
from kit.queries import write_to_end
from kit.tables import read_frame

import upstream as us

pytestmark = pytest.mark.spark


def write_feed(folder, name, files, keys, per_file):
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


def test_trades_are_there_at_once_and_again_with_a_better_quote_over_a_restart(spark, tmp_path):
    trades = write_feed(tmp_path / "feed", "trade", 2, 5, 60)
    quotes = write_feed(tmp_path / "feed", "quote", 1, 4, 30)

    def run():
        options = {"progress": "bounded", "progressDelay": "60 ms", "atEnd": "keep"}
        left, right = (
            us.UpdateStream(csv_feed(spark, f"{tmp_path}/feed/{name}-*.csv", **options), key="key", event_time="ms")
            for name in ("trade", "quote")
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
