"""Warming the workers: it reads with the installed format, and never fails."""

import pytest

from upstream.conf.session import warm_workers

pytestmark = pytest.mark.spark


def test_workers_are_warmed_by_a_batch_that_really_runs(spark):
    context = spark.sparkContext
    context.setLocalProperty("spark.jobGroup.id", "before")
    thread = warm_workers(spark)
    thread.join(timeout=120)
    assert not thread.is_alive()
    # Jobs of the background thread have no group of this one's: its program is not disturbed.
    assert context.statusTracker().getJobIdsForGroup("before") == []
    assert len(context.statusTracker().getJobIdsForGroup(None)) > 0
    context.setLocalProperty("spark.jobGroup.id", None)  # pyright: ignore[reportArgumentType]


def test_a_session_that_is_gone_is_no_failure():
    class Gone:
        @property
        def read(self) -> None:
            raise ConnectionError("stopped")

    thread = warm_workers(Gone())  # pyright: ignore[reportArgumentType]
    thread.join(timeout=10)
    assert not thread.is_alive()
