"""The report of a host's streams is what was written, and the reader of a stream takes up each change."""

from upstream.core.feedback.lanes import LaneReader, StreamLanes, read_lanes, write_lanes
from upstream.storage.folder import TableFolder


def test_the_report_is_what_was_written(tmp_path):
    place = TableFolder(str(tmp_path))
    reader, other = LaneReader(place, "s"), LaneReader(place, "t")
    assert read_lanes(place) == ({}, {})
    assert reader() is None
    for budget in (3, None):
        write_lanes(place, {"s": StreamLanes(newest=True, every=False, budget=budget)}, {"cost": 4})
        assert read_lanes(place) == ({"s": StreamLanes(True, False, budget)}, {"cost": 4})
        assert reader() == StreamLanes(True, False, budget)
        assert other() is None
