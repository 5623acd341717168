"""Reports are read as they were written."""

import dataclasses
import logging
from typing import ClassVar

import pytest

from upstream.conf.errors import TableError
from upstream.core.feedback.ages import Ages
from upstream.core.feedback.checkpoint_layout import stage_folder
from upstream.core.feedback.on_demand_watermark import DownstreamReports, reports_below
from upstream.core.feedback.reports import (
    REPORTS,
    FeedReport,
    FeedReports,
    LeftOutFigures,
    OperatorReport,
    QueueReport,
    ReorderReport,
    ServiceReport,
    ShardReport,
    StageReport,
    read_feed_reports,
    read_reports,
    write_report,
)
from upstream.storage.folder import TableFolder, folder_at


@dataclasses.dataclass(frozen=True)
class CountReport(ShardReport):
    """A kind of its own."""

    prefix: ClassVar[str] = "counted-"

    rows: int


def test_each_shard_has_one_report_its_last(tmp_path):
    for rows in (1, 2):
        for shard in (0, 1):
            write_report(str(tmp_path), CountReport(shard, rows + shard))
    assert read_reports(str(tmp_path), CountReport) == [CountReport(0, 2), CountReport(1, 3)]
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["counted-0.json", "counted-1.json"]


def test_a_report_is_read_as_its_base_too_without_the_members_of_its_kind(tmp_path):
    write_report(str(tmp_path), ReorderReport(3, needs=7, due=2, held=9))
    assert read_reports(str(tmp_path), OperatorReport) == [OperatorReport(3, needs=7, due=2)]


@pytest.mark.parametrize(
    "report",
    [
        QueueReport(2, now_us=1, waiting=4, places=[[1, 2]], ages=Ages(1, 2.0, 2.0, {3: 1})),
        ServiceReport(2, 10, 20, 30),
        *(kind(4, batch_id=2, now_us=9, state_bytes=7, bounds={"left/f": 8}) for kind in REPORTS.values()),
    ],
)
def test_a_report_is_read_as_it_was_written(tmp_path, report):
    write_report(str(tmp_path), report)
    assert read_reports(str(tmp_path), type(report)) == [report]


def test_reports_of_feeds_are_read_in_the_order_of_feeds(tmp_path):
    feeds = [FeedReport("b", 1, None, 2, 3, 0, 0, 0), FeedReport("a", None, None, 2, 1, 0, 0, 0)]
    write_report(str(tmp_path), FeedReports(0, feeds=feeds))
    assert read_feed_reports(str(tmp_path)) == feeds[::-1]


LOG = logging.getLogger("upstream.test")


def fails():
    raise OSError(28, "No space left on device for sesame")


def refused():
    raise TableError("it is no table", hint="put it right")


def test_the_first_failure_in_a_row_is_a_warning_and_the_next_ones_are_counted(caplog):
    figures = LeftOutFigures("the report", TableFolder("s3://b/t", {"secret": "sesame"}), LOG)
    assert figures.attempt(lambda: None)
    assert caplog.messages == []
    for count in (1, 2, 3):
        assert not figures.attempt(fails)
        assert figures.count == count
    (warning,) = caplog.messages
    assert warning == (
        "the report cannot be written at s3://b/t: [Errno 28] No space left on device for ***. The job continues, and "
        "catches up when this is put right; until then further failures are counted alone"
    )
    assert figures.attempt(lambda: None)
    assert caplog.messages[1] == (
        "the report is written again at s3://b/t. It was left out 3 times; the job has caught up"
    )
    assert figures.count == 0
    assert not figures.attempt(refused)
    assert "it is no table. What to do: put it right. The job continues" in caplog.messages[-1]


def test_a_defect_is_no_failure_to_write():
    with pytest.raises(ZeroDivisionError):
        LeftOutFigures("the report", TableFolder("t"), LOG).attempt(lambda: 1 // 0)


def test_a_source_finds_what_each_shard_of_each_stage_needs(tmp_path):
    place = str(tmp_path)
    for stage, reports in enumerate(([StageReport(0, 30, 5), StageReport(1)], [StageReport(0, 20, 7)])):
        for each in reports:
            write_report(stage_folder(place, stage), each)
    assert DownstreamReports(reports_below(folder_at(place))).needs(0, []) == [20, 30]
