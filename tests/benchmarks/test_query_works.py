"""The expected answers of the benchmark of continuous queries, row by row; and a wrong result is found."""

import statistics

import pyarrow as pa
import pytest

FUNCTIONS = {"count": len, "sum": sum, "avg": statistics.fmean, "min": min, "max": max}


@pytest.fixture(scope="module")
def works(benchmark_module):
    return benchmark_module("query_works")


@pytest.fixture(scope="module")
def rows(works):
    return works.table(400, 5)


def test_queries_differ_and_more_of_them_begin_with_the_same(works):
    every = works.window_queries(1_000)
    assert len({(each.range_s, each.slide_s, each.function, each.argument) for each in every}) == 1_000
    assert len({each.name for each in every}) == 1_000
    assert works.window_queries(100) == every[:100]
    with pytest.raises(SystemExit, match="1000 queries, not 1001"):
        works.window_queries(1_001)


def test_windows_are_the_same_whether_they_hold_their_start_or_their_end(rows):
    assert all(ms % 1000 for ms in rows["ms"].to_pylist())


def test_the_low_watermark_passes_the_span_and_no_more(works, rows):
    low_watermark = max(rows["ms"].to_pylist()) - works.DELAY_S * 1000
    for query in works.window_queries(50):
        assert query.end_ms < low_watermark <= query.end_ms + query.slide_s * 1000
        assert query.end_ms % (query.slide_s * 1000) == 0


def test_answers_row_by_row(works, rows):
    for query in works.window_queries(60):
        found = {}
        for row in rows.to_pylist():
            if row["key"] >= 0 and query.end_ms - query.range_s * 1000 < row["ms"] <= query.end_ms:
                value = row["value"] % 100 if query.argument == "value % 100" else row["value"]
                found.setdefault(row["key"], []).append(value)
        plain = [{"key": key, "v": FUNCTIONS[query.function](found[key])} for key in sorted(found)]
        assert works.expected(query, rows).to_pylist() == plain


def test_a_right_result_passes_in_any_order_and_a_planted_difference_stops(works):
    (query,) = works.window_queries(1)
    answer = works.expected(query, works.table(400, 5))
    assert answer.num_rows > 1
    works.check("one", [query], 400, 5, {query.name: answer.take(list(reversed(range(answer.num_rows))))})
    wrong = answer.set_column(1, "v", pa.array([answer["v"][0].as_py() + 1, *answer["v"].to_pylist()[1:]]))
    for planted in (wrong, answer.slice(1)):
        with pytest.raises(SystemExit, match=f"one, .*{query.name}"):
            works.check("one", [query], 400, 5, {query.name: planted})
