"""A join by time on Spark, into a table over a restart."""

from __future__ import annotations

import random

import pytest
from kit.feeds import csv_feed, write_csv
from kit.join_pairs import expected
from kit.queries import write_to_end
from kit.tables import read_frame

import upstream as us
from upstream.core.feedback.checkpoint_layout import joins_folder
from upstream.core.feedback.join_reports import JoinReport
from upstream.core.feedback.report_files import read_reports

pytestmark = pytest.mark.spark

DELAY_MS = 60


def near(one, two):
    return -20 <= two[1] - one[1] <= 30


def write_feed(folder, name, files, keys=4):
    """Files of rows (key, ms, value), out of order by less than the delay; rows are (key, ms, position)."""
    chance = random.Random(name)
    found = []
    for number in range(files):
        rows = []
        for _ in range(60):
            at = len(found)
            row = (f"k{chance.randrange(keys)}", 1000 + at * 2 - chance.randrange(DELAY_MS - 10), at)
            found.append(row)
            rows.append(row)
        write_csv(folder / f"{name}-{number:03d}.csv", "key,ms,value", rows)
    return found


def feed(spark, folder, name, at_end):
    given = {"progress": "bounded", "progressDelay": f"{DELAY_MS} ms", "maxFilesPerTrigger": 1, "atEnd": at_end}
    return us.UpdateStream(csv_feed(spark, f"{folder}/{name}-*.csv", **given), key="key", event_time="ms")


def pairs_in(table):
    rows = read_frame(table).select("value", "value_right").rows()
    return sorted((-1 if one is None else one, -1 if two is None else two) for one, two in rows)


def test_a_full_join_gives_each_pair_and_each_row_without_one_over_restarts(spark, tmp_path):
    left = write_feed(tmp_path / "feed", "a", 2)
    right = write_feed(tmp_path / "feed", "b", 1, keys=6)
    place = tmp_path / "checkpoint"

    def query(at_end):
        streams = [feed(spark, tmp_path / "feed", name, at_end) for name in "ab"]
        return streams[0].join(streams[1], on="key", within=us.interval(before=20, after=30), how="full", shards=3)

    both = query("keep")
    write_to_end(both, tmp_path / "table", place, key=("key", "left_row", "right_row"))
    early = pairs_in(tmp_path / "table")
    assert 0 < len(early) < len(expected(left, right, near, "full"))
    assert set(early) <= set(expected(left, right, near, "full"))
    described = both.describe(place)
    assert [feed.feed.partition("/")[0] for feed in described.places[-1].feeds] == ["left", "right"]
    assert described.places[-1].held > 0

    left += [(key, ms + 240, at + 120) for key, ms, at in write_feed(tmp_path / "more", "a", 2)]
    write_csv(tmp_path / "feed" / "a-900.csv", "key,ms,value", left[120:])
    right = right + [(key, ms + 120, at + 60) for key, ms, at in write_feed(tmp_path / "more", "b", 3, keys=6)]
    write_csv(tmp_path / "feed" / "b-900.csv", "key,ms,value", right[60:])
    write_to_end(query("close"), tmp_path / "table", place, key=("key", "left_row", "right_row"))
    assert pairs_in(tmp_path / "table") == expected(left, right, near, "full")
    reports = read_reports(joins_folder(str(place)), JoinReport)
    assert sum(each.left_rows for each in reports) == len(left)
    assert sum(each.left_kept + each.right_kept for each in reports) == 0
    assert sum(each.left_late + each.right_late for each in reports) == 0
