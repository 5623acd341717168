"""Reports are read as they were written, whatever release wrote them."""

import dataclasses
from typing import ClassVar

from upstream.core.feedback.ages import Ages
from upstream.core.feedback.reports import (
    FeedReport,
    FeedReports,
    QueueReport,
    ServiceReport,
    ShardReport,
    read_feed_reports,
    read_reports,
    read_values,
    write_report,
    write_value,
)


@dataclasses.dataclass(frozen=True)
class CountReport(ShardReport):
    """A kind of its own."""

    prefix: ClassVar[str] = "counted-"

    rows: int
    added_later: int = 7


def test_each_shard_has_one_report_its_last(tmp_path):
    for rows in (1, 2):
        for shard in (0, 1):
            write_report(str(tmp_path), CountReport(shard, rows + shard))
    assert read_reports(str(tmp_path), CountReport) == [CountReport(0, 2), CountReport(1, 3)]
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["counted-0.json", "counted-1.json"]


def test_names_of_other_releases_are_ignored_and_members_added_since_have_their_default(tmp_path):
    write_value(str(tmp_path), "counted-0.json", {"shard": 3, "rows": 5, "from_a_later_release": True})
    write_value(str(tmp_path), "counted-1.json", {"rows": 6})
    assert read_reports(str(tmp_path), CountReport) == [CountReport(3, 5), CountReport(0, 6)]


def test_reports_of_a_kind_with_parts_are_read_back(tmp_path):
    queue = QueueReport(2, 1, 0, 0, 0, 0, 0, 0, 4, 5, 6, [[1, 2]], 7, 8, 9, 10, 11, 12, Ages(1, 2.0, 2.0, {3: 1}))
    write_report(str(tmp_path), queue)
    write_report(str(tmp_path), ServiceReport(2, 10, 20, 30))
    assert read_reports(str(tmp_path), QueueReport) == [queue]
    assert read_reports(str(tmp_path), ServiceReport) == [ServiceReport(2, 10, 20, 30)]
    feeds = [FeedReport("b", 1, None, 2, 3, 0, 0, 0), FeedReport("a", None, None, 2, 1, 0, 0, 0)]
    below = tmp_path / "feeds"
    below.mkdir()
    write_report(str(below), FeedReports(0, feeds))
    assert read_feed_reports(str(below)) == feeds[::-1]
    assert read_values(str(below), "shard-")[0].keys() == {"shard", "feeds"}
