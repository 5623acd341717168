"""Windows through `pack` and shards, against windows computed row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError, MalformedRowError, SchemaError
from upstream.core.rows.system_column import SYSTEM, TIMESTAMP
from upstream.core.watermark.bounds import beginning
from upstream.operators.aggregates.approximate import median
from upstream.operators.aggregates.functions import avg, collect, count, max_, min_, stddev_pop, sum_
from upstream.operators.windows import adaptive
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows, Windows
from upstream.operators.windows.shards.adaptive_keys import with_automatic_method

from .drawn import END, any_batches, any_windows, everything, plan_of
from .windows_of import SCHEMA, Batch, Row, Run, in_windows, latest_of, punctuation_table, rows_table


@settings(max_examples=150, deadline=None)
@given(
    windows=any_windows(),
    batches=any_batches(),
    method=st.sampled_from(["paned", "wid", "adaptive", "buffering"]),
    differential=st.booleans(),
    shards=st.sampled_from([1, 3]),
    tasks=st.sampled_from([1, 2]),
)
def test_every_window_whatever_the_method_the_order_and_the_batches(
    windows: Windows, batches: list[Batch], method: str, differential: bool, shards: int, tasks: int
) -> None:
    """Equivalence: one answer, that of the definition."""
    if method == "wid" and not isinstance(windows, SlidingWindows):
        method = "paned"
    aggregates = {"n": count(), "total": sum_("v"), **({} if differential else {"top": max_("v")})}
    run = Run(plan_of(windows, method=method, shards=shards, aggregates=aggregates)).batches(batches, tasks)
    expected = {
        (key, wid): (len(values), sum(values), None if differential else max(values))
        for (key, wid), values in in_windows(windows, everything(batches), END).items()
    }
    got = {(each["key"], each["window_id"]): (each["n"], each["total"], each.get("top")) for each in run.results}
    assert got == expected
    assert len(got) == len(run.results), "a window closes once"
    assert sum(report.late for report in run.reports) == 0


@settings(max_examples=60, deadline=None)
@given(
    windows=any_windows(),
    batches=any_batches(),
    emit=st.sampled_from(["all", "lazy", "all+early"]),
    lateness_us=st.sampled_from([0, 15]),
    seed=st.integers(0, 99),
)
def test_results_do_not_depend_on_modes_nor_on_switches(
    windows: Windows, batches: list[Batch], emit: str, lateness_us: int, seed: int
) -> None:
    """Keys are dense or not at random, anew with each batch; all else is as for panes."""
    given: dict[str, Any] = {"lateness_us": 0 if isinstance(windows, LandmarkWindows) else lateness_us, "emit": emit}
    random = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive, "dense_groups", lambda was, *_: random.random(len(was)) < 0.5)
        changing = Run(plan_of(windows, method="adaptive", **given)).batches(batches)
    paned = Run(plan_of(windows, method="paned", **given)).batches(batches)
    assert values_of(changing) == values_of(paned)


def values_of(run: Run) -> list[tuple[Any, ...]]:
    """All results, in an order of their own."""
    columns = ("batch", "key", "window_id", "final", "n", "total")
    return sorted(tuple(each[name] for name in columns) for each in run.results)


def test_dense_keys_keep_partial_aggregates_and_sparse_ones_rows() -> None:
    """One key with 40 rows a pane, then few; 30 keys with one row in two windows, of which one then has many."""
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


def test_auto_adapts_where_the_least_state_is_much_larger_than_a_row() -> None:
    """What grows with its rows is small where they are few."""
    windows = SlidingWindows(10, 5)
    for aggregate in (count(), sum_("v"), avg("v"), stddev_pop("v"), median("v"), collect("v", "time", limit=100)):
        assert with_automatic_method(plan_of(windows, aggregates={"it": aggregate})).method == "paned"
    several = {each.__name__: each("v") for each in (stddev_pop, min_, max_, sum_)}
    assert with_automatic_method(plan_of(windows, aggregates=several)).method == "adaptive"


@settings(max_examples=150, deadline=None)
@given(windows=any_windows(), batches=any_batches(), differential=st.booleans())
def test_lazy_gives_the_most_recent_window_of_each_key(
    windows: Windows, batches: list[Batch], differential: bool
) -> None:
    """What comes between depends on the batches; each result is right, windows increase, and the last one is the
    latest.
    """
    aggregates = {"n": count(), "total": sum_("v"), **({} if differential else {"top": max_("v")})}
    run = Run(plan_of(windows, "lazy", aggregates=aggregates)).batches(batches)
    expected = in_windows(windows, everything(batches), END)
    seen: dict[int, int] = {}
    for each in run.results:
        values = expected[each["key"], each["window_id"]]
        assert (each["n"], each["total"]) == (len(values), sum(values))
        assert each["window_id"] > seen.get(each["key"], -(10**9))
        seen[each["key"]] = each["window_id"]
    assert seen == latest_of(expected)


@pytest.mark.parametrize("windows", [SlidingWindows(4, 1), SlidingWindows(4, 2), SlidingWindows(12, 3)])
@pytest.mark.parametrize("emit", ["all", "lazy"])
def test_a_row_counts_to_its_last_window_though_nothing_comes_any_more(windows: SlidingWindows, emit: str) -> None:
    run = Run(plan_of(windows, emit, shards=1)).batches([([(1, 5, 7)], 5), *(([], bound) for bound in range(6, 30))])
    first, last = (int(end) for end in windows.wids(5))
    assert [(each["window_id"], each["total"]) for each in run.results] == [(wid, 7) for wid in range(first, last + 1)]


@settings(max_examples=100, deadline=None)
@given(
    windows=any_windows().filter(lambda each: isinstance(each, SlidingWindows)),
    batches=any_batches(),
    late=st.lists(st.tuples(st.integers(0, 4), st.integers(-10, 49), st.integers(-5, 5)), min_size=1, max_size=6),
    method=st.sampled_from(["paned", "wid", "adaptive", "buffering"]),
    emit=st.sampled_from(["all", "lazy"]),
    differential=st.booleans(),
)
def test_allowed_lateness_corrects_what_was_given(
    windows: Windows, batches: list[Batch], late: list[Row], method: str, emit: str, differential: bool
) -> None:
    """With enough of it, the last result of each window is that of all rows, however late they came."""
    aggregates = {"n": count(), "total": sum_("v"), **({} if differential else {"top": max_("v")})}
    run = Run(plan_of(windows, emit, method, lateness_us=200, aggregates=aggregates))
    run.batches([*batches, (late[:3], None), (late[3:], END)])
    expected = in_windows(windows, everything(batches) + late, END)
    got = {(each["key"], each["window_id"]): (each["n"], each["total"]) for each in run.results}
    if emit == "lazy":
        expected = {pair: expected[pair] for pair in latest_of(expected).items()}
        got = {pair: got.get(pair, (0, 0)) for pair in expected}
    assert got == {pair: (len(values), sum(values)) for pair, values in expected.items()}
    assert not run.late


@settings(max_examples=100, deadline=None)
@given(windows=any_windows(), batches=any_batches(), differential=st.booleans())
def test_early_results_are_of_what_has_come_and_are_replaced(
    windows: Windows, batches: list[Batch], differential: bool
) -> None:
    """A partial result has the key's newest row, is of an open window, and knows all rows of it that have come."""
    aggregates = {"n": count(), "total": sum_("v"), **({} if differential else {"top": max_("v")})}
    run = Run(plan_of(windows, "all+early", aggregates=aggregates)).batches(batches)
    final = {(each["key"], each["window_id"]): each["batch"] for each in run.results if each["final"]}
    come: list[Row] = []
    for number, (rows, _) in enumerate(batches, 1):
        come += rows
        for each in run.results:
            if each["batch"] == number and not each["final"]:
                first, last = windows.wids([row[1] for row in come if row[0] == each["key"]])  # pyright: ignore[reportArgumentType]
                values = [
                    row[2]
                    for row, low, high in zip([r for r in come if r[0] == each["key"]], first, last, strict=True)
                    if low <= each["window_id"] <= high
                ]
                assert (each["n"], each["total"]) == (len(values), sum(values))
                assert final.get((each["key"], each["window_id"]), 10**9) > number


def test_late_rows_are_counted_where_the_reports_of_closed_windows_were_lost() -> None:
    """Then `pack` adds up rows that are late. No window closes twice, and each late row counts, also one whose first
    window was the last to close.
    """
    run = Run(plan_of(SlidingWindows(10, 5), shards=1))
    run.batches([([(1, 7, 1)], 10)])
    run._final = None
    run.batches([([(1, 8, 100), (1, 1, 1000), (1, 12, 10000)], None)])
    assert sum(report.late for report in run.reports) == 2
    run.batches([([], 40)])
    assert [(each["window_id"], each["total"]) for each in run.results] == [(1, 1), (2, 10101), (3, 10000)]


def test_late_rows_are_put_aside_counted_and_take_part_where_windows_are_open() -> None:
    """A row that misses one window of two goes to the late output, and into the other window."""
    run = Run(plan_of(SlidingWindows(10, 5), shards=1))
    run.batches([([(1, 7, 1)], 10)])  # windows 0 (-5 to 5 ... ) up to 10 are complete
    closed = {each["window_id"] for each in run.results}
    run.batches([([(1, 8, 100), (1, 1, 1000)], None), ([], 40)])
    late = pa.concat_tables(run.late)
    assert sorted(late.column("v").to_pylist()) == [100, 1000]
    assert sum(report.late for report in run.reports) == 2
    totals = {each["window_id"]: each["total"] for each in run.results}
    assert closed == {1}
    assert totals == {1: 1, 2: 101}
    assert len(run.results) == 2


def test_what_a_batch_reads_and_writes_follows_what_comes_and_goes() -> None:
    """A window of 600 panes is advanced by one: no more pages are read than enter and leave."""
    run = Run(plan_of(SlidingWindows(600, 1), "lazy", shards=1))
    for second in range(900):
        run.batches([([(key, second, 1) for key in range(64)], second)])
    steady = run.reports[-100:]
    assert sum(report.runs_read for report in steady) <= 5 * 100
    assert sum(report.runs_written for report in steady) <= 3 * 100
    assert max(report.entries for report in steady) <= 64 * 760
    assert all(each["n"] == 600 for each in run.results if each["batch"] > 700)


def test_punctuation_is_of_the_windows_own_time_and_never_decreases() -> None:
    """After it no result with an earlier end comes."""
    run = Run(plan_of(SlidingWindows(10, 5)))
    run.batches([([(1, 3, 1)], 12), ([(2, 14, 1)], 27), ([], 26), ([(1, 30, 1)], 41)])
    promises = [(each["batch"], each[SYSTEM]["source"], each["window_end"]) for each in run.punctuation]
    for batch, _, end in promises:
        assert all(each["window_end"] >= end for each in run.results if each["batch"] > batch)
    for source in {each[1] for each in promises}:
        ends = [end for _, other, end in promises if other == source]
        assert ends == sorted(set(ends))


def test_the_end_of_a_feed_closes_everything() -> None:
    """And says so to whatever follows; the state is empty then."""
    run = Run(plan_of(SlidingWindows(10, 5), shards=1))
    run.tables(rows_table([(1, 3, 1), (2, 14, 5)], 1), punctuation_table(5, 1))
    run.tables(punctuation_table(None, 2))
    assert {(each["key"], each["window_id"]): each["total"] for each in run.results} == in_windows_total()
    assert run.punctuation[-1]["window_end"] is None
    assert {kind for kind, _ in run.stores[0].values} == {"head"}


def in_windows_total() -> dict[tuple[int, int], int]:
    """Of the rows of the test above."""
    found = in_windows(SlidingWindows(10, 5), [(1, 3, 1), (2, 14, 5)], 1000)
    return {pair: sum(values) for pair, values in found.items()}


def test_a_silent_feed_holds_windows_back() -> None:
    """The low-watermark is the least of all feeds that have spoken."""
    run = Run(plan_of(SlidingWindows(10, 10), shards=1))
    run.tables(rows_table([(1, 3, 1)], 1, "a"), punctuation_table(50, 1, "a"), punctuation_table(0, 1, "b"))
    assert not run.results
    run.tables(rows_table([(1, 4, 2)], 2, "b"), punctuation_table(10, 2, "b"))
    assert [each["total"] for each in run.results] == [3]


def test_a_feed_that_has_rows_and_has_promised_nothing_holds_windows_back() -> None:
    run, least = Run(plan_of(SlidingWindows(10, 10))), beginning(TIMESTAMP).cast(pa.int64()).as_py()
    begun = [punctuation_table(30, 1, "a"), punctuation_table(least, 1, "b")]
    run.tables(rows_table([(1, 5, 1)], 1, "a"), rows_table([(1, 25, 1)], 1, "b"), *begun)
    assert (run.results, run.punctuation, run.reports[-1].bound) == ([], [], None)
    run.tables(punctuation_table(20, 2, "b"))
    assert [row["window_id"] for row in run.results] == [0]


def test_another_window_on_the_same_state_is_refused() -> None:
    """By name, with what to do."""
    stores = Run(plan_of(SlidingWindows(10, 5))).batches([([(1, 3, 1)], 12)]).stores
    with pytest.raises(CheckpointError, match=r"begun with another window.*SlidingWindows"):
        Run(plan_of(SlidingWindows(10, 2)), stores).batches([([(1, 20, 1)], 22)])


def test_coalesced_rows_and_tombstones_are_refused() -> None:
    """A count over them would be too small."""
    run = Run(plan_of(SlidingWindows(10, 5)))
    rows = rows_table([(1, 3, 1)], 1)
    for field, value, message in (("covered", 2, "coalesced"), ("deleted", True, "tombstones")):
        system = [{**rows.column(SYSTEM)[0].as_py(), field: value}]
        marked = rows.set_column(3, SCHEMA.field(SYSTEM), pa.array(system, SCHEMA.field(SYSTEM).type))
        with pytest.raises(SchemaError, match=message):
            run.tables(marked)


@pytest.mark.parametrize("method", ["paned", "wid", "buffering"])
def test_tombstones_are_dropped_and_counted_if_asked_for(method: Any) -> None:
    """Also from one run of the query to the next, so that a query which one ended can go on."""
    field = SCHEMA.field(SYSTEM)
    plain = rows_table([(1, 3, 7), (2, 4, 1), (1, 12, 1)], 1)
    marks = [{**mark, "deleted": at == 1} for at, mark in enumerate(plain.column(SYSTEM).to_pylist())]
    marked = plain.set_column(3, field, pa.array(marks, field.type))
    strict = Run(plan_of(SlidingWindows(10, 10), method=method))
    strict.tables(rows_table([(1, 2, 5)], 1), punctuation_table(0, 1))
    with pytest.raises(SchemaError, match=r"1 rows before the window are tombstones.*tombstones=\"drop\""):
        strict.tables(marked, punctuation_table(20, 2))
    run = Run(plan_of(SlidingWindows(10, 10), method=method, tombstones="drop"), strict.stores)
    run.tables(marked, punctuation_table(20, 2), tasks=2)
    run.tables(marked.slice(1, 1), tasks=1)  # nothing else in this batch
    assert {(each["key"], each["window_id"]): each["total"] for each in run.results} == {(1, 0): 12, (1, 1): 1}
    last = {report.shard: report.tombstones for report in run.reports}
    assert sum(last.values()) == 2


def test_a_row_without_a_time_or_a_key_is_refused() -> None:
    """With how many there are."""
    rows = rows_table([(1, 3, 1)], 1)
    run = Run(plan_of(SlidingWindows(10, 5)))
    with pytest.raises(MalformedRowError, match="1 of 1 rows have no time"):
        run.tables(rows.set_column(1, SCHEMA.field("time"), pa.nulls(1, SCHEMA.field("time").type)))
    with pytest.raises(SchemaError, match="1 rows have no key"):
        run.tables(rows.set_column(0, SCHEMA.field("key"), pa.nulls(1, pa.int64())))


def test_a_result_given_again_comes_after_the_one_before_it() -> None:
    """By `seq`, which decides between results for one window: partial results, the final one, its correction."""
    run = Run(plan_of(SlidingWindows(10, 10), "all+early", lateness_us=30, shards=1))
    run.batches([([(1, 3, 1), (2, 4, 1)], 5), ([(1, 7, 1)], 12), ([(1, 9, 1)], 15)])
    mine = [each for each in run.results if each["key"] == 1 and each["window_id"] == 0]
    assert [(each["n"], each["final"]) for each in mine] == [(1, False), (2, True), (3, True)]
    seqs = [each[SYSTEM]["seq"] for each in mine]
    assert seqs == sorted(set(seqs))


def test_punctuation_waits_for_corrections() -> None:
    """With allowed lateness nothing is promised of a window that may be given again."""
    run = Run(plan_of(SlidingWindows(10, 10), lateness_us=20, shards=1))
    run.batches([([(1, 3, 1)], 12), ([(1, 4, 1)], 29), ([], 31)])
    given = [(each["batch"], each["window_end"], each["n"]) for each in run.results]
    promises = [(each["batch"], each["window_end"]) for each in run.punctuation]
    assert [(batch, n) for batch, _, n in given] == [(1, 1), (2, 2)]
    assert [(report.results, report.corrected) for report in run.reports] == [(1, 0), (0, 1), (0, 0)]
    assert all(end >= bound for batch, end, _ in given for other, bound in promises if other < batch)
    assert promises
    assert promises[-1][0] == 3


def test_with_slack_rows_say_what_is_complete_and_punctuation_does_not() -> None:
    """The in-order baseline: what lies more than the slack behind the newest row is late; the end of the feed closes
    the rest.
    """
    run = Run(plan_of(SlidingWindows(10, 10), method="buffering", shards=1, slack_us=5))
    run.batches([([(1, 3, 1)], 100), ([(1, 14, 2)], None), ([(1, 4, 4)], None)])
    assert not run.results
    run.batches([([(1, 15, 8)], None)])
    assert [(each["window_id"], each["total"]) for each in run.results] == [(0, 5)]
    run.batches([([(1, 5, 16)], None)])
    run.tables(punctuation_table(None, 9))
    assert [(each["window_id"], each["total"]) for each in run.results] == [(0, 5), (1, 10)]
    assert [table.column("v").to_pylist() for table in run.late] == [[16]]


def test_small_runs_are_combined() -> None:
    """More than sixteen become one, and what they bring for one key and pane one entry."""
    run = Run(plan_of(SlidingWindows(1000, 1000), shards=1))
    run.batches([([(1, second, 1), (2, second, 2)], 0) for second in range(17)])
    assert [report.entries for report in run.reports] == [*range(2, 34, 2), 2]
    run.batches([([], 1000)])
    assert [(each["key"], each["n"], each["total"]) for each in run.results] == [(1, 17, 17), (2, 17, 34)]


def test_batches_shorter_than_a_pane_leave_few_entries() -> None:
    """What several batches bring for one key and pane is combined now and then, so that state follows keys and panes,
    not batches.
    """
    run = Run(plan_of(SlidingWindows(1000, 1000), shards=1))
    keys = 3000  # a run of its own in each batch
    for second in range(100):
        run.batches([([(key, second, 1) for key in range(keys)], 0)])
    assert max(report.entries for report in run.reports) <= 12 * keys
    run.batches([([], 1000)])
    assert [each["n"] for each in run.results] == [100] * keys
