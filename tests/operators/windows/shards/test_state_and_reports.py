"""What a shard of windows leaves behind of each batch: state under names that checkpoints depend on, and a report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from upstream.operators.aggregates.functions import max_, stddev_pop
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows

from .drawn import plan_of
from .windows_of import Run, punctuation_table, rows_table

HOPPING = SlidingWindows(10, 5)
LEAST = -(2**63)


def names(run: Run) -> set[str]:
    return {kind for kind, _ in run.stores[0].values}


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({}, {"head", "run", "running"}),
        ({"method": "buffering"}, {"head", "rows", "running"}),
        ({"emit": "eager"}, {"head", "run", "running"}),
        ({"aggregates": {"top": max_("v")}, "method": "wid"}, {"head", "run"}),
    ],
    ids=["paned", "buffering", "eager", "wid"],
)
def test_state_lies_under_the_names_of_earlier_checkpoints(plan: dict[str, Any], expected: set[str]) -> None:
    run = Run(plan_of(HOPPING, shards=1, **plan)).batches([([(1, 7, 1), (2, 8, 1)], 8), ([(1, 12, 1)], 11)])
    assert names(run) == expected


def test_a_key_with_windows_closed_ahead_of_the_others_is_kept_under_its_name() -> None:
    run = Run(plan_of(HOPPING, shards=1))
    run.tables(rows_table([(1, 7, 1), (2, 8, 1)], 1), punctuation_table(6, 1), punctuation_table(20, 1, key=1))
    assert "ahead" in names(run)
    assert run.reports[-1].ahead > run.reports[-1].closed


def test_eager_emission_closes_the_window_that_a_key_with_a_promise_is_committed_to() -> None:
    """The other key is committed to its window until the low-watermark closes it."""
    run = Run(plan_of(HOPPING, "eager", shards=1))
    run.tables(rows_table([(1, 7, 1), (2, 8, 1)], 1), punctuation_table(6, 1), punctuation_table(20, 1, key=1))
    assert names(run) == {"head", "run", "running", "ahead"}
    assert run.reports[-1].ahead > run.reports[-1].closed
    assert [each["key"] for each in run.results] == [1]


def test_the_head_has_the_members_of_earlier_checkpoints() -> None:
    """A member under another name would count as absent, and a checkpoint would go on from a default."""
    run = Run(plan_of(HOPPING, shards=1, aggregates={"spread": stddev_pop("v")})).batches([([(1, 7, 1)], 8)])
    members = json.loads(run.stores[0].values["head", 0]).keys()
    of_windows = {"running", "ahead", "closed", "final", "since", "told_us", "seen_us", "tombstones", "holding"}
    assert of_windows | {"now_us", "seq", "runs", "rows", "bounds", "told"} <= members


def test_the_end_of_all_feeds_leaves_no_running_window() -> None:
    run = Run(plan_of(HOPPING, shards=1)).batches([([(1, 7, 1), (2, 8, 1)], 8), ([(1, 12, 1)], 11)])
    assert "running" in names(run)
    run.tables(punctuation_table(None, 2))
    assert names(run) == {"head"}
    assert run.reports[-1].running == 0


def test_a_report_counts_keys_with_a_running_window_and_rows_passed_over() -> None:
    quiet = Run(plan_of(HOPPING, "lazy", shards=1)).batches([([(1, 7, 1), (2, 8, 1)], 8), ([(1, 12, 1)], 30)])
    assert [report.superseded for report in quiet.reports] == [0, 0]
    assert [report.running for report in quiet.reports] == [0, 0]
    eager = Run(plan_of(SlidingWindows(3, 1), "eager", shards=1)).batches([([(1, 1, 1), (2, 1, 1)], 2)])
    assert eager.reports[-1].running == 2


def test_with_slack_punctuation_before_any_row_closes_nothing() -> None:
    run = Run(plan_of(SlidingWindows(10, 10), method="buffering", shards=1, slack_us=5)).batches([([], 100)])
    assert run.reports[-1].bound is None
    assert run.reports[-1].closed == LEAST
    assert not run.results


def test_the_end_of_all_feeds_closes_the_landmark_window_of_the_last_row_and_none_after_it() -> None:
    run = Run(plan_of(LandmarkWindows(5), shards=1)).batches([([(1, 2, 1), (1, 7, 2)], 6)])
    run.tables(punctuation_table(None, 2))
    assert [(each["window_id"], each["total"]) for each in run.results] == [(0, 1), (1, 3)]
