import json
from typing import Any

import pytest
from deltalake import DeltaTable

from upstream.core.feedback.ages import Staleness
from upstream.sink.figures.summary import CommitSummary, last_summary, read_summaries
from upstream.sink.spec.steps import CommitStep

from ..deaths import dying_at


def test_json_round_trip_and_later_versions():
    summary = CommitSummary(3, "q", 5, 10, 12, 4, 8, 1, 99, {"a": "2024", "b": None}, "2024", Staleness(1, 2, 3, 4), 0)
    assert CommitSummary.from_json({**summary.to_json(), "unknown": 1}) == summary


def test_reading_what_is_new(sink):
    assert read_summaries(str(sink.path)) == []
    for batch_id in range(5):
        sink.batch(batch_id, [sink.rows([(batch_id, 10, "a")], seq=batch_id)])
    path = str(sink.path)
    assert [(version, summary.batch_id) for version, summary in read_summaries(path)] == [(n + 1, n) for n in range(5)]
    assert [version for version, _ in read_summaries(path, 3)] == [4, 5]
    assert read_summaries(path, 5) == []
    assert read_summaries(path, 77) == []
    # Others' commits are no summaries, and a trimmed log starts later.
    DeltaTable(path).optimize.compact()
    DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    for version in range(3):
        (sink.path / "_delta_log" / f"{version:020d}.json").unlink()
    assert [version for version, _ in read_summaries(path, 1)] == [3, 4, 5]
    assert [version for version, _ in read_summaries(path)] == [3, 4, 5]


def others_commit(sink: Any, times: int) -> None:
    """As an owner who changes a property would: cheap commits without rows."""
    log = sink.path / "_delta_log"
    info = json.dumps({"commitInfo": {"timestamp": 1, "operation": "SET TBLPROPERTIES"}})
    first = sink.version() + 1
    for version in range(first, first + times):
        (log / f"{version:020d}.json").write_text(info)


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "forgotten"])
@pytest.mark.parametrize("times", [255, 256, 300])
def test_low_watermarks_outlive_any_number_of_foreign_commits(make_sink, tmp_path, remembered, times):
    sink = make_sink(lateOutput=str(tmp_path / "late"))
    sink.write(0, [sink.rows([(1, 10, "a")]), sink.punctuation(10)])
    others_commit(sink, times)
    if not remembered:
        (sink.checkpoint / "upstream-sink" / "last-commit.json").unlink()
    sink.write(1, [sink.rows([(2, 9, "late"), (3, 10, "in time")], seq=10)])
    assert last_summary(DeltaTable(str(sink.path)), "query-3") is None
    found = last_summary(DeltaTable(str(sink.path)), "query-1")
    assert found is not None
    assert (found.late, found.low_watermarks) == (1, {"feed": 10})
    late = DeltaTable(str(tmp_path / "late")).to_pyarrow_table()
    assert late.column("v").to_pylist() == ["late"]


def test_late_rows_are_put_out_however_much_others_have_committed(make_sink, tmp_path):
    sink = make_sink(lateOutput=str(tmp_path / "late"))
    sink.batch(0, [sink.rows([(1, 10, "a")]), sink.punctuation(10)])
    rows = [sink.rows([(2, 9, "late")], seq=10)]
    with dying_at(CommitStep.MAINTAINED):
        sink.write(1, rows)
    assert not DeltaTable.is_deltatable(str(tmp_path / "late"))
    others_commit(sink, 300)
    sink.write(1, rows)
    assert DeltaTable(str(tmp_path / "late")).to_pyarrow_table().column("v").to_pylist() == ["late"]
