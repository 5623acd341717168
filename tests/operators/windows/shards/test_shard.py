"""Windows through `pack` and shards, against windows computed row by row."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.conf.errors import MalformedRowError, SchemaError
from upstream.core.rows.exact_integers import LOWEST
from upstream.core.rows.system_column import SYSTEM, TIMESTAMP
from upstream.core.watermark.bounds import beginning
from upstream.operators.aggregates.approximate import median
from upstream.operators.aggregates.functions import avg, collect, count, max_, min_, stddev_pop, sum_
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows
from upstream.operators.windows.shards import adaptive_keys
from upstream.operators.windows.shards.adaptive_keys import with_automatic_method

from .drawn import ANY_METHOD, END, LATE, SLIDING, any_batches, any_windows, everything, plan_of, totals
from .windows_of import SCHEMA, Run, agree_and_increase, in_windows, latest_of, marked, punctuation_table, rows_table


@given(any_windows(), any_batches(), ANY_METHOD, st.booleans(), st.sampled_from([1, 3]), st.sampled_from([1, 2]))
def test_every_window_is_that_of_the_definition(windows, batches, method, differential, shards, tasks):
    plan = plan_of(windows, method=method, shards=shards, aggregates=totals(differential))
    run = Run(plan).batches(batches, tasks)
    expected = {
        pair: (len(values), sum(values), None if differential else max(values))
        for pair, values in in_windows(windows, everything(batches), END).items()
    }
    got = {(each["key"], each["window_id"]): (each["n"], each["total"], each.get("top")) for each in run.results}
    assert got == expected
    assert len(got) == len(run.results), "a window closes once"
    assert sum(report.late for report in run.reports) == 0


@settings(max_examples=60)
@given(
    any_windows(),
    any_batches(),
    st.sampled_from(["all", "lazy", "all+early"]),
    st.sampled_from([0, 15]),
    st.integers(0, 99),
)
def test_results_do_not_depend_on_modes_nor_on_switches(windows, batches, emit, lateness_us, seed):
    given: dict[str, Any] = {"lateness_us": 0 if isinstance(windows, LandmarkWindows) else lateness_us, "emit": emit}
    random = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive_keys, "dense_groups", lambda was, *_: random.random(len(was)) < 0.5)
        changing = Run(plan_of(windows, method="adaptive", **given)).batches(batches)
    paned = Run(plan_of(windows, method="paned", **given)).batches(batches)
    assert values_of(changing) == values_of(paned)


def values_of(run):
    """All results, in an order of their own."""
    columns = ("batch", "key", "window_id", "final", "n", "total")
    return sorted(tuple(each[name] for name in columns) for each in run.results)


def test_dense_keys_keep_partial_aggregates_and_sparse_ones_rows():
    aggregates = {"spread": stddev_pop("v")}
    runs = {
        method: Run(plan_of(SlidingWindows(8, 2), method=method, shards=1, aggregates=aggregates))
        for method in ("adaptive", "paned", "buffering")
    }
    for pane in range(80):
        hot = 0 if pane < 40 else 7
        rows = [(hot, 2 * pane, value) for value in range(40)] + [(1 + pane % 30, 2 * pane + 1, 5)]
        for run in runs.values():
            run.batches([(rows, 2 * pane + 2)])
        if pane in (30, 79):
            report = runs["adaptive"].reports[-1]
            assert (report.entries, report.rows) == (4, 4), "of four panes"
            assert runs["paned"].reports[-1].entries == 8
            assert runs["buffering"].reports[-1].rows == 4 * 41
    assert [each["spread"] for each in runs["adaptive"].results] == [each["spread"] for each in runs["paned"].results]


def test_auto_adapts_where_the_least_state_is_much_larger_than_a_row():
    windows = SlidingWindows(10, 5)
    for aggregate in (count(), sum_("v"), avg("v"), stddev_pop("v"), median("v"), collect("v", "time", limit=100)):
        assert with_automatic_method(plan_of(windows, aggregates={"it": aggregate})).method == "paned"
    several = {each.__name__: each("v") for each in (stddev_pop, min_, max_, sum_)}
    assert with_automatic_method(plan_of(windows, aggregates=several)).method == "adaptive"


@given(windows=any_windows(), batches=any_batches(), differential=st.booleans())
def test_lazy_gives_the_most_recent_window_of_each_key(windows, batches, differential):
    run = Run(plan_of(windows, "lazy", aggregates=totals(differential))).batches(batches)
    agree_and_increase(run, in_windows(windows, everything(batches), END))


@given(SLIDING, any_batches(), LATE, ANY_METHOD, st.sampled_from(["all", "lazy"]), st.booleans())
def test_allowed_lateness_corrects_what_was_given(windows, batches, late, method, emit, differential):
    run = Run(plan_of(windows, emit, method, lateness_us=200, aggregates=totals(differential)))
    run.batches([*batches, (late[:3], None), (late[3:], END)])
    expected = in_windows(windows, everything(batches) + late, END)
    got = {(each["key"], each["window_id"]): (each["n"], each["total"]) for each in run.results}
    if emit == "lazy":
        expected = {pair: expected[pair] for pair in latest_of(expected).items()}
        got = {pair: got.get(pair, (0, 0)) for pair in expected}
    assert got == {pair: (len(values), sum(values)) for pair, values in expected.items()}
    assert not run.late


@given(windows=any_windows(), batches=any_batches(), differential=st.booleans())
def test_early_results_are_of_what_has_come_and_are_replaced(windows, batches, differential):
    run = Run(plan_of(windows, "all+early", aggregates=totals(differential))).batches(batches)
    final = {(each["key"], each["window_id"]): each["batch"] for each in run.results if each["final"]}
    for each in run.results:
        if not each["final"]:
            come = [row for row in everything(batches[: each["batch"]]) if row[0] == each["key"]]
            ids = zip(*windows.wids([time for _, time, _ in come]), strict=True)
            values = [row[2] for row, (low, high) in zip(come, ids, strict=True) if low <= each["window_id"] <= high]
            assert (each["n"], each["total"]) == (len(values), sum(values))
            assert final.get((each["key"], each["window_id"]), 10**9) > each["batch"]


def test_late_rows_are_counted_where_the_reports_of_closed_windows_were_lost():
    """Then `pack` adds up rows that are late; each counts, also one whose first window was the last to close."""
    run = Run(plan_of(SlidingWindows(10, 5), shards=1))
    run.batches([([(1, 7, 1)], 10)])
    run.forget()
    run.batches([([(1, 8, 100), (1, 1, 1000), (1, 12, 10000)], None)])
    assert sum(report.late for report in run.reports) == 2
    run.batches([([], 40)])
    assert [(each["window_id"], each["total"]) for each in run.results] == [(1, 1), (2, 10101), (3, 10000)]


def test_late_rows_are_put_aside_counted_and_take_part_where_windows_are_open():
    run = Run(plan_of(SlidingWindows(10, 5), shards=1))
    run.batches([([(1, 7, 1)], 10)])
    assert [each["window_id"] for each in run.results] == [1]
    run.batches([([(1, 8, 100), (1, 1, 1000)], None), ([], 40)])
    assert sorted(pa.concat_tables(run.late).column("v").to_pylist()) == [100, 1000]
    assert sum(report.late for report in run.reports) == 2
    assert [(each["window_id"], each["total"]) for each in run.results] == [(1, 1), (2, 101)]


def test_a_batch_reads_and_writes_what_comes_and_goes():
    run = Run(plan_of(SlidingWindows(600, 1), "lazy", shards=1))
    for second in range(900):
        run.batches([([(key, second, 1) for key in range(64)], second)])
    steady = run.reports[-100:]
    assert sum(report.runs_read for report in steady) <= 5 * 100
    assert sum(report.runs_written for report in steady) <= 3 * 100
    assert max(report.entries for report in steady) <= 64 * 760
    assert all(each["n"] == 600 for each in run.results if each["batch"] > 700)


def test_punctuation_is_of_the_windows_own_time_and_never_decreases():
    run = Run(plan_of(SlidingWindows(10, 5)))
    run.batches([([(1, 3, 1)], 12), ([(2, 14, 1)], 27), ([], 26), ([(1, 30, 1)], 41)])
    promises = [(each["batch"], each[SYSTEM]["source"], each["window_end"]) for each in run.punctuation]
    for batch, _, end in promises:
        assert all(each["window_end"] >= end for each in run.results if each["batch"] > batch)
    for source in {each[1] for each in promises}:
        ends = [end for _, other, end in promises if other == source]
        assert ends == sorted(set(ends))


def test_the_end_of_a_feed_closes_everything():
    run = Run(plan_of(SlidingWindows(10, 5), shards=1))
    run.tables(rows_table([(1, 3, 1), (2, 14, 5)], 1), punctuation_table(5, 1))
    run.tables(punctuation_table(None, 2))
    got = {(each["key"], each["window_id"]): each["total"] for each in run.results}
    assert got == {(1, 0): 1, (1, 1): 1, (2, 2): 5, (2, 3): 5}
    assert run.punctuation[-1]["window_end"] is None
    assert (names(run), run.reports[-1].running) == ({"head"}, 0)


@pytest.mark.parametrize(("said", "promised"), [(0, 1), (beginning(TIMESTAMP).cast(pa.int64()).as_py(), 0)])
def test_a_silent_feed_holds_windows_back(said, promised):
    run = Run(plan_of(SlidingWindows(10, 10), shards=1))
    rows = [rows_table([(1, 3, 1)], 1, "a"), rows_table([(1, 25, 1)], 1, "b")]
    run.tables(*rows, punctuation_table(50, 1, "a"), punctuation_table(said, 1, "b"))
    assert (run.results, len(run.punctuation)) == ([], promised)
    run.tables(rows_table([(1, 4, 2)], 2, "b"), punctuation_table(10, 2, "b"))
    assert [(each["window_id"], each["total"]) for each in run.results] == [(0, 3)]


def test_coalesced_rows_are_refused():
    """A count over them would be too small."""
    rows = rows_table([(1, 3, 1)], 1)
    system = [{**rows.column(SYSTEM)[0].as_py(), "covered": 2}]
    with pytest.raises(SchemaError, match="coalesced"):
        Run(plan_of(SlidingWindows(10, 5))).tables(
            rows.set_column(3, SCHEMA.field(SYSTEM), pa.array(system, SCHEMA.field(SYSTEM).type))
        )


@pytest.mark.parametrize("method", ["paned", "wid", "buffering"])
def test_tombstones_are_refused_or_dropped_and_counted(method):
    tombstone = marked(rows_table([(1, 3, 7), (2, 4, 1), (1, 12, 1)], 1), 1)
    strict = Run(plan_of(SlidingWindows(10, 10), method=method))
    strict.tables(rows_table([(1, 2, 5)], 1), punctuation_table(0, 1))
    with pytest.raises(SchemaError, match=r'1 rows .*tombstones="drop"'):
        strict.tables(tombstone, punctuation_table(20, 2))
    run = Run(plan_of(SlidingWindows(10, 10), method=method, tombstones="drop"), strict.stores)
    run.tables(tombstone, punctuation_table(20, 2), tasks=2)
    run.tables(tombstone.slice(1, 1), tasks=1)  # nothing else in this batch
    assert {(each["key"], each["window_id"]): each["total"] for each in run.results} == {(1, 0): 12, (1, 1): 1}
    last = {report.shard: report.tombstones for report in run.reports}
    assert sum(last.values()) == 2


def test_a_row_without_a_time_or_a_key_is_refused():
    rows = rows_table([(1, 3, 1)], 1)
    run = Run(plan_of(SlidingWindows(10, 5)))
    with pytest.raises(MalformedRowError, match="1 of 1 rows have no time"):
        run.tables(rows.set_column(1, SCHEMA.field("time"), pa.nulls(1, SCHEMA.field("time").type)))
    with pytest.raises(SchemaError, match="1 rows have no key"):
        run.tables(rows.set_column(0, SCHEMA.field("key"), pa.nulls(1, pa.int64())))


def test_a_result_given_again_comes_after_the_one_before_it():
    run = Run(plan_of(SlidingWindows(10, 10), "all+early", lateness_us=30, shards=1))
    run.batches([([(1, 3, 1), (2, 4, 1)], 5), ([(1, 7, 1)], 12), ([(1, 9, 1)], 15)])
    mine = [each for each in run.results if each["key"] == 1 and each["window_id"] == 0]
    assert [(each["n"], each["final"]) for each in mine] == [(1, False), (2, True), (3, True)]
    seqs = [each[SYSTEM]["seq"] for each in mine]
    assert seqs == sorted(set(seqs))


def test_punctuation_waits_for_corrections():
    run = Run(plan_of(SlidingWindows(10, 10), lateness_us=20, shards=1))
    run.batches([([(1, 3, 1)], 12), ([(1, 4, 1)], 29), ([], 31)])
    assert [(each["batch"], each["n"]) for each in run.results] == [(1, 1), (2, 2)]
    assert [(report.results, report.corrected) for report in run.reports] == [(1, 0), (0, 1), (0, 0)]
    promises = [(each["batch"], each["window_end"]) for each in run.punctuation]
    assert all(
        each["window_end"] >= bound for each in run.results for other, bound in promises if other < each["batch"]
    )
    assert promises[-1][0] == 3


def test_with_slack_rows_say_what_is_complete_and_punctuation_does_not():
    """The in-order baseline: what lies more than the slack behind the newest row is late."""
    run = Run(plan_of(SlidingWindows(10, 10), method="buffering", shards=1, slack_us=5))
    run.batches([([(1, 3, 1)], 100), ([(1, 14, 2)], None), ([(1, 4, 4)], None)])
    assert not run.results
    run.batches([([(1, 15, 8)], None)])
    assert [(each["window_id"], each["total"]) for each in run.results] == [(0, 5)]
    run.batches([([(1, 5, 16)], None)])
    run.tables(punctuation_table(None, 9))
    assert [(each["window_id"], each["total"]) for each in run.results] == [(0, 5), (1, 10)]
    assert [table.column("v").to_pylist() for table in run.late] == [[16]]


def test_small_runs_are_combined():
    run = Run(plan_of(SlidingWindows(1000, 1000), shards=1))
    run.batches([([(1, second, 1), (2, second, 2)], 0) for second in range(17)])
    assert [report.entries for report in run.reports] == [*range(2, 34, 2), 2], "more than sixteen become one"
    run.batches([([], 1000)])
    assert [(each["key"], each["n"], each["total"]) for each in run.results] == [(1, 17, 17), (2, 17, 34)]


HOPPING = SlidingWindows(10, 5)


def names(run):
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
def test_state_lies_under_the_names_of_earlier_checkpoints(plan, expected):
    run = Run(plan_of(HOPPING, shards=1, **plan)).batches([([(1, 7, 1), (2, 8, 1)], 8), ([(1, 12, 1)], 11)])
    assert names(run) == expected


@pytest.mark.parametrize("emit", ["all", "eager"])
def test_a_key_with_windows_closed_ahead_of_the_others_is_kept_under_its_name(emit):
    run = Run(plan_of(HOPPING, emit, shards=1))
    run.tables(rows_table([(1, 7, 1), (2, 8, 1)], 1), punctuation_table(6, 1), punctuation_table(20, 1, key=1))
    assert names(run) == {"head", "run", "ahead"} | ({"running"} if emit == "eager" else set())
    assert run.reports[-1].ahead > run.reports[-1].closed
    assert {each["key"] for each in run.results} == {1}


def test_the_head_has_the_members_of_earlier_checkpoints():
    """A member under another name would count as absent, and a checkpoint would go on from a default."""
    run = Run(plan_of(HOPPING, shards=1, aggregates={"spread": stddev_pop("v")})).batches([([(1, 7, 1)], 8)])
    members = json.loads(run.stores[0].values["head", 0]).keys()
    of_windows = {"running", "ahead", "closed", "final", "since", "told_us", "seen_us", "tombstones", "holding"}
    assert of_windows | {"now_us", "seq", "runs", "rows", "bounds", "told"} <= members


def test_a_report_counts_keys_with_a_running_window_and_rows_passed_over():
    quiet = Run(plan_of(HOPPING, "lazy", shards=1)).batches([([(1, 7, 1), (2, 8, 1)], 8), ([(1, 12, 1)], 30)])
    assert [report.superseded for report in quiet.reports] == [0, 0]
    assert [report.running for report in quiet.reports] == [0, 0]
    eager = Run(plan_of(SlidingWindows(3, 1), "eager", shards=1)).batches([([(1, 1, 1), (2, 1, 1)], 2)])
    assert eager.reports[-1].running == 2


def test_with_slack_punctuation_before_any_row_closes_nothing():
    run = Run(plan_of(SlidingWindows(10, 10), method="buffering", shards=1, slack_us=5)).batches([([], 100)])
    assert run.reports[-1].bound is None
    assert run.reports[-1].closed == LOWEST
    assert not run.results


def test_the_end_of_all_feeds_closes_the_landmark_window_of_the_last_row_and_none_after_it():
    run = Run(plan_of(LandmarkWindows(5), shards=1)).batches([([(1, 2, 1), (1, 7, 2)], 6)])
    run.tables(punctuation_table(None, 2))
    assert [(each["window_id"], each["total"]) for each in run.results] == [(0, 1), (1, 3)]
