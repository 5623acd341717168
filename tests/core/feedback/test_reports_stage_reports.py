from upstream.core.feedback.checkpoint_layout import stage_folder
from upstream.core.feedback.on_demand_watermark import DownstreamReports, reports_below
from upstream.core.feedback.reports import StageReport, write_report
from upstream.storage.folder import folder_at


def test_a_source_finds_what_each_shard_of_each_stage_needs(tmp_path):
    place = str(tmp_path)
    for stage, reports in enumerate(([StageReport(0, 30, 5), StageReport(1)], [StageReport(0, 20, 7)])):
        for each in reports:
            write_report(stage_folder(place, stage), each)
    assert DownstreamReports(reports_below(folder_at(place))).needs(0, []) == [20, 30]
