"""A join under kill -9, with rows of both sides kept: each pair and each row without a partner is there once."""

from pathlib import Path

import pytest
from kit.jobs import Job
from kit.join_pairs import expected, meet_in_job, pairs_in, write_join_feed
from kit.queries import run_to_end
from kit.tables import read_frame

from upstream.core.feedback.checkpoint_layout import operator_folder
from upstream.core.feedback.reports import JoinReport, read_reports
from upstream.sink.spec.steps import CommitStep

from . import jobs

# In a task before and after its part; before the commit, with all state written; after it; before Spark's own commit.
STEPS = (CommitStep.DECIDED, CommitStep.HANDED_OVER, CommitStep.LOOKED, CommitStep.COMMITTED, CommitStep.MEASURED)


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(("files", "chosen"), [(4, [CommitStep.LOOKED]), (10, STEPS)], ids=["one", "all"])
def test_killed_in_steps_of_a_batch(spark, tmp_path, files, chosen):
    feed, run = tmp_path / "feed", tmp_path / "run"
    left, right = (write_join_feed(feed, name, files) for name in ("left", "right"))
    run.mkdir()
    checkpoint, table = run / "checkpoint", run / "table"
    job = Job(Path(jobs.__file__), tmp_path / "run.log", ("join", feed, table, checkpoint))

    for place, step in enumerate(chosen, start=1):
        job.kill_at(step, batch=min(2 * place, files - 2))
        kept = read_reports(operator_folder(str(checkpoint), "joins"), JoinReport)
        assert sum(each.left_kept for each in kept) > 0
        assert sum(each.right_kept for each in kept) > 0
    run_to_end(jobs.join(spark, str(feed), str(table), str(checkpoint)))

    assert pairs_in(read_frame(table)) == expected(left, right, meet_in_job, "full")
    reports = read_reports(operator_folder(str(checkpoint), "joins"), JoinReport)
    assert sum(each.left_rows for each in reports) == len(left)
    assert sum(each.left_kept + each.right_kept for each in reports) == 0
