"""The expected answers of the benchmarks against loops over rows; a wrong result is found; and what is drawn and
counted of results.
"""

import statistics

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import modules

SECONDS = st.integers(1, 5)
FUNCTIONS = {"count": len, "sum": sum, "avg": statistics.fmean, "min": min, "max": max}


@pytest.fixture(scope="module")
def works():
    return modules.benchmark("window_works")


@pytest.fixture(scope="module")
def queries():
    return modules.benchmark("query_works")


@pytest.fixture(scope="module")
def joins():
    return modules.benchmark("join_works")


@pytest.fixture(scope="module")
def data():
    return modules.benchmark("data")


@st.composite
def feeds(draw):
    """Rows of some keys, and the row that closes their windows."""
    size = draw(st.integers(1, 30))
    keys, times, values = (
        draw(st.lists(st.integers(0, most), min_size=size, max_size=size)) for most in (3, 20_000, 5)
    )
    return pa.table({"key": [*keys, -1], "ms": [*times, 10**6], "value": [*values, 0]})


def one_by_one(rows, range_s, slide_s):
    """What is in each window of each key, by looking at every row for every window."""
    found = {}
    listed = [row for row in rows.to_pylist() if row["key"] >= 0]
    for end in range(slide_s * 1000, 50_000, slide_s * 1000):
        for row in listed:
            if end - range_s * 1000 <= row["ms"] < end:
                found.setdefault((row["key"], end), []).append(row["value"])
    return sorted(found.items())


@given(rows=feeds(), slide_s=SECONDS, times=SECONDS, emit=st.sampled_from(["all", "latest"]))
def test_sums(works, rows, slide_s, times, emit):
    work = works.Work("", slide_s * times, slide_s, emit)
    windows = one_by_one(rows, work.range_s, slide_s)
    if emit == "latest":
        last = {key: end for (key, end), _ in windows}
        windows = [((key, end), values) for (key, end), values in windows if last[key] == end]
    assert works.expected(work, rows).to_pylist() == [
        {"key": key, "window_end": end, "n": len(values), "total": sum(values)} for (key, end), values in windows
    ]


@given(rows=feeds(), slide_s=SECONDS, times=SECONDS)
def test_medians_and_distinct_values(works, rows, slide_s, times):
    work = works.Work("", slide_s * times, slide_s, aggregates="holistic")
    found = [tuple(row.values()) for row in works.expected(work, rows).to_pylist()]
    assert found == [
        (key, end, len(values), statistics.median_low(values), statistics.median_high(values), len(set(values)))
        for (key, end), values in one_by_one(rows, work.range_s, slide_s)
    ]


def test_a_range_that_the_slide_does_not_divide_is_refused(works):
    with pytest.raises(SystemExit, match="multiple"):
        works.Work("some", 10, 3)


ANSWER = pa.table({"key": [1, 1, 2], "window_end": [60, 120, 60], "n": [1, 2, 1], "total": [5, 9, 7]})


def test_a_right_result_passes_in_any_order_and_with_the_closing_row(works):
    more = pa.table({"key": [-1], "window_end": [600], "n": [1], "total": [0]})
    works.check("one", works.Work("sums", 60, 60), pa.concat_tables([more, ANSWER.take([2, 0, 1])]), ANSWER)


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        (ANSWER.slice(1), "2 rows"),
        (pa.concat_tables([ANSWER, ANSWER.slice(0, 1)]), "4 rows"),
        (ANSWER.set_column(3, "total", pa.array([5, 9, 8])), "'total': 8.*7 in total"),
        (ANSWER.set_column(1, "window_end", pa.array([60, 120, 61])), "60 in window_end"),
    ],
)
def test_a_planted_difference_stops(works, planted, message):
    with pytest.raises(SystemExit, match=f"one, sums: .*{message}"):
        works.check("one", works.Work("sums", 60, 60), planted, ANSWER)


def approximate(count, medians, different):
    return {
        "key": list(range(count)),
        "window_end": [60] * count,
        "n": [200] * count,
        **medians,
        "different": different,
    }


@pytest.mark.parametrize(
    ("median", "different", "right"),
    [
        (4, [100], True),
        (4.5, [80], True),
        (5, [122], True),
        (3.9, [100], False),
        (5.1, [100], False),
        (4, [77], False),
        (4, [123], False),
        (4, [94, 106] * 1000, True),
        (4, [91, 109] * 1000, False),  # many answers have to be nearer than one
    ],
)
def test_approximate_answers_may_be_off_by_what_they_promise(works, median, different, right):
    work, count = works.Work("holistic", 60, 60, aggregates="holistic"), len(different)
    got = pa.table(approximate(count, {"median": [median] * count}, different))
    answer = pa.table(approximate(count, {"lower": [4] * count, "upper": [5] * count}, [100] * count))
    if right:
        works.check("one", work, got, answer)
    else:
        with pytest.raises(SystemExit, match="one, holistic: "):
            works.check("one", work, got, answer)


def test_the_feed_of_windows(data):
    table = data.window_table(20_000, 10)
    rows = table.slice(0, 20_000)
    key, ms = rows["key"].to_numpy(), rows["ms"].to_numpy()
    assert set(key) == set(range(10))
    assert len(set(zip(key.tolist(), ms.tolist(), strict=True))) == 20_000
    late = np.maximum.accumulate(ms) - ms
    assert 0 < late.max() < 5_000
    assert (late > 0).mean() > 0.03
    closing = table.slice(20_000).to_pylist()
    assert closing[0]["key"] == data.CLOSING_KEY
    # A low-watermark ten seconds behind it has passed the last window of ten minutes by a minute.
    assert closing[0]["ms"] - 10_000 > ms.max() + 660_000


def test_sparks_newest_per_key_is_that_of_its_batches(benchmark_module, tmp_path):
    module = benchmark_module("windows")
    first = {"key": [1, 2], "window_end": [60, 120], "n": [5, 6], "total": [7, 8]}
    second = {"key": [1], "window_end": [180], "n": [9], "total": [10]}
    for name, rows in (("a", second), ("b", first)):
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet")
    assert module.parquet_result(tmp_path, module.SLIDING).num_rows == 3
    rows = module.parquet_result(tmp_path, module.LATEST).sort_by("key").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(1, 180, 9, 10), (2, 120, 6, 8)]


def test_an_engine_with_fewer_rows_is_compared_by_rows_per_second(benchmark_module):
    harness = benchmark_module("harness")
    report = harness.Report("ours", by_rate=True)
    for work, engine, size, seconds in (
        ("some", "ours", 1_000, 2.0),
        ("some", "slow", 100, 4.0),
        ("more", "slow", 1, 1.0),
    ):
        report.add(harness.Measured(work, engine, size, [seconds], 1))
    assert [row["ratio_to_us"] for row in report.rows()] == [1, 20, None]


def test_plot_of_windows(benchmark_module, tmp_path):
    plot = tmp_path / "plots" / "windows.svg"
    benchmark_module("scaling").plot_windows([(2e6, 4.0), (1e6, 2.0)], [(1, 3.0), (600, 3.1)], plot)
    assert "RANGE / SLIDE" in plot.read_text()


def test_pairs_are_all_in_reach(data, joins):
    work = joins.JoinWork(400, 8, late=0.1, reach_s=20)
    left, right = (data.join_table(400, 8, side, 0.1).to_pylist() for side in (0, 1))
    pairs = [
        one["id"] * 400 + two["id"]
        for one in left
        for two in right
        if one["key"] == two["key"] and abs(one["ms"] - two["ms"]) <= 20_000
    ]
    assert joins.expected(work).tolist() == sorted(pairs)
    assert len(pairs) > 50


def test_a_pair_that_is_missing_or_there_twice_stops_it(joins):
    answer = np.array([1, 2, 3])
    joins.check("some", np.array([1, 2, 3]), answer)
    with pytest.raises(SystemExit, match=r"some: .*1 missing, 1 too many"):
        joins.check("some", np.array([1, 2, 2]), answer)


def test_late_rows_of_joins_lie_apart_and_nothing_is_lost(data, monkeypatch, tmp_path):
    monkeypatch.setattr(data, "CACHE", tmp_path)
    folder = data.join_feed(5_000, 100, 0, 4, 0.1, apart=True)
    whole = data.join_table(5_000, 100, 0, 0.1)
    parts = {part: pq.read_table(folder / part) for part in ("late", "on-time")}
    ids = np.concatenate([part.column("id").to_numpy() for part in parts.values()])
    assert sorted(ids.tolist()) == list(range(5_000))
    assert 0.05 < parts["late"].num_rows / 5_000 < 0.15
    late = np.isin(whole.column("id").to_numpy(), parts["late"].column("id").to_numpy())
    behind = np.maximum.accumulate(whole.column("ms").to_numpy()) - whole.column("ms").to_numpy()
    assert behind[~late].max() <= 5_000
    assert np.median(behind[late]) >= 300_000 - 5_000


def test_queries_differ_and_more_of_them_begin_with_the_same(queries):
    every = queries.window_queries(1_000)
    assert len({(each.range_s, each.slide_s, each.function, each.argument) for each in every}) == 1_000
    assert len({each.name for each in every}) == 1_000
    assert queries.window_queries(100) == every[:100]
    with pytest.raises(SystemExit, match="1001"):
        queries.window_queries(1_001)


def test_answers_of_queries_row_by_row(queries):
    rows = queries.table(400, 5)
    times = rows["ms"].to_pylist()
    assert all(ms % 1000 for ms in times), "windows are the same whether they hold their start or their end"
    low_watermark = max(times) - queries.DELAY_S * 1000
    for query in queries.window_queries(60):
        assert query.end_ms < low_watermark <= query.end_ms + query.slide_s * 1000
        assert query.end_ms % (query.slide_s * 1000) == 0
        found = {}
        for row in rows.to_pylist():
            if row["key"] >= 0 and query.end_ms - query.range_s * 1000 < row["ms"] <= query.end_ms:
                value = row["value"] % 100 if query.argument == "value % 100" else row["value"]
                found.setdefault(row["key"], []).append(value)
        plain = [{"key": key, "v": FUNCTIONS[query.function](found[key])} for key in sorted(found)]
        assert queries.expected(query, rows).to_pylist() == plain


def test_a_right_result_passes_in_any_order_and_a_planted_difference_stops(queries):
    (query,) = queries.window_queries(1)
    answer = queries.expected(query, queries.table(400, 5))
    assert answer.num_rows > 1
    queries.check("one", [query], 400, 5, {query.name: answer.take(list(reversed(range(answer.num_rows))))})
    wrong = answer.set_column(1, "v", pa.array([answer["v"][0].as_py() + 1, *answer["v"].to_pylist()[1:]]))
    for planted in (wrong, answer.slice(1)):
        with pytest.raises(SystemExit, match=f"one, .*{query.name}"):
            queries.check("one", [query], 400, 5, {query.name: planted})


@pytest.mark.parametrize(
    ("waits", "begin", "mean"),
    [
        # Rows came at 1 and at 5: ramps of 3 and 4 s within 10 s.
        ([(1, 4), (5, 9)], 0, (4.5 + 8) / 10),
        # What waits at the end is stale until then; a commit of later rows shows nothing.
        ([(1, 4), (8, 12), (11, 13)], 0, (4.5 + 2) / 10),
        ([(11, 13)], 0, 0),
        # Commits of an earlier run do not count.
        ([(1, 2), (5, 9)], 3, 8 / 7),
    ],
)
def test_a_table_is_stale_from_the_oldest_row_that_it_lacks_to_the_commit(benchmark_module, waits, begin, mean):
    in_us = [(came * 1_000_000, shown * 1_000_000) for came, shown in waits]
    found = benchmark_module("query_weights").mean_staleness_s(in_us, begin * 1_000_000, 10_000_000)
    assert found == pytest.approx(mean)
