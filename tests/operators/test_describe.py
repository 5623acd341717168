"""What is told of a stream: from its plan, and from what its operators and its query have left."""

import dataclasses
import json

from upstream.core.feedback.checkpoint_layout import feeds_folder, operator_folder
from upstream.core.feedback.reports import (
    FeedReport,
    FeedReports,
    JoinReport,
    LatestJoinReport,
    ReorderReport,
    write_report,
)
from upstream.operators.describe import Description, FeedState, Place, live_places, source_feeds
from upstream.operators.runtime.feeds import ENDED

S = 1_000_000


def test_feeds_that_have_ended_or_not_begun_are_not_behind():
    place = Place(
        "input",
        [FeedState("a", 100 * S), FeedState("b", 70 * S, late=3), FeedState("c", None), FeedState("d", 1, ended=True)],
    )
    assert place.behind == {"a": 0, "b": 30 * S}
    assert place.apart == 30 * S
    assert Place("input", [FeedState("a", 5)]).apart is None
    text = str(place)
    assert "4 feeds, 30.0 s apart" in text
    assert "b: complete to 1970-01-01T00:01:10.000000Z, 30.0 s behind, 3 late" in text
    assert "c: no low-watermark yet" in text
    assert "d: ended" in text


def test_reports_below_the_checkpoint_are_read(tmp_path):
    checkpoint = str(tmp_path)
    folders = [feeds_folder(checkpoint, "gps"), operator_folder(checkpoint, "reorder")]
    assert live_places(folders, micros=False) == []
    write_report(folders[0], FeedReports(0, feeds=[FeedReport("north", 50, 60, 1, 10, 1, 2, 3)]))
    write_report(folders[0], FeedReports(1, feeds=[FeedReport("south", None, None, 1, 1, 0, 0, 0)]))
    for shard, bound in ((0, 40), (1, 30)):
        report = ReorderReport(shard, held=2, bounds={"left/x": bound, "right/y": ENDED})
        write_report(folders[1], report)
    intake, reordering = live_places(folders, micros=False)
    assert intake.name == "input gps"
    north = FeedState("north", 50, late=1, suspects=2, malformed=3, rows=10, heard_us=1)
    assert intake.feeds == [north, FeedState("south", None, rows=1, heard_us=1)]
    assert reordering.feeds == [FeedState("left/x", 30), FeedState("right/y", ENDED, ended=True)]
    assert reordering.held == 4
    assert "left/x: complete to 30" in str(reordering)


def test_rows_that_a_join_shed_are_shown(tmp_path):
    folder = operator_folder(str(tmp_path), "joins")
    for shard, shed in ((0, 3), (1, 4)):
        bounds = {"left/x": 5, "right/y": 7}
        report = JoinReport(shard, left_kept=2, bounds=bounds)
        write_report(folder, dataclasses.replace(report, left_shed=shed, right_shed=1, right_unsure=6))
    (place,) = live_places([folder], micros=False)
    assert "4 held, 9 shed, 12 unsure" in str(place)


def test_progress_of_the_source_is_in_the_last_planned_offset(tmp_path):
    assert source_feeds(tmp_path) == []
    (tmp_path / "offsets").mkdir()
    progress = {"a.csv": {"bound": 7, "late": 1, "suspects": 0}, "b.csv": {"bound": None, "late": 0, "suspects": 2}}
    for number, text in (("9", "{}"), ("10", json.dumps({"progress": progress, "ended": ["a.csv"]}))):
        (tmp_path / "offsets" / number).write_text(f"v1\n{{}}\n{text}\n-")
    (tmp_path / "offsets" / ".10.crc").write_text("")
    (place,) = source_feeds(tmp_path)
    assert place.feeds == [FeedState("a.csv", 7, ended=True, late=1), FeedState("b.csv", None, suspects=2)]


def test_a_description_reports_what_is_known_of_columns():
    described = Description({"k": "update key", "t": "ordered", "v": ""}, [])
    assert str(described) == "k: update key; t: ordered"
    assert str(Description({"v": ""}, [])) == "no column is ordered or bounded"


def test_rows_that_have_expired_are_counted(tmp_path):
    folder = operator_folder(str(tmp_path), "latest", 1)
    write_report(folder, LatestJoinReport(0, 1, 1, left_kept=3, right_kept=4, left_expired=5))
    write_report(folder, LatestJoinReport(1, 1, 1, left_kept=1, right_expired=2))
    (place,) = live_places([folder], micros=True)
    assert str(place) == "newest rows 1: 8 held, 7 expired"
    write_report(other := operator_folder(str(tmp_path), "latest", 2), LatestJoinReport(0, 1, 1, left_kept=3))
    assert live_places([other], micros=True) == []
