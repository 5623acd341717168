"""The expected answers of the window benchmark against each window counted by itself; and a wrong result is found."""

import statistics

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

SECONDS = st.integers(1, 5)


@pytest.fixture(scope="module")
def works(benchmark_module):
    return benchmark_module("window_works")


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
    return found


@given(rows=feeds(), slide_s=SECONDS, times=SECONDS, emit=st.sampled_from(["all", "latest"]))
def test_sums(works, rows, slide_s, times, emit):
    work = works.Work("", slide_s * times, slide_s, emit)
    windows = one_by_one(rows, work.range_s, slide_s)
    if emit == "latest":
        last = {key: max(end for other, end in windows if other == key) for key, _ in windows}
        windows = {(key, end): values for (key, end), values in windows.items() if last[key] == end}
    rowwise = [
        {"key": key, "window_end": end, "n": len(values), "total": sum(values)}
        for (key, end), values in sorted(windows.items())
    ]
    assert works.expected(work, rows).to_pylist() == rowwise


@given(rows=feeds(), slide_s=SECONDS, times=SECONDS)
def test_medians_and_distinct_values(works, rows, slide_s, times):
    work = works.Work("", slide_s * times, slide_s, aggregates="holistic")
    rowwise = [
        {
            "key": key,
            "window_end": end,
            "n": len(values),
            "lower": statistics.median_low(values),
            "upper": statistics.median_high(values),
            "different": len(set(values)),
        }
        for (key, end), values in sorted(one_by_one(rows, work.range_s, slide_s).items())
    ]
    assert works.expected(work, rows).to_pylist() == rowwise


def test_a_range_that_the_slide_does_not_divide_is_refused(works):
    with pytest.raises(SystemExit, match="no multiple"):
        works.Work("some", 10, 3)


ANSWER = pa.table({"key": [1, 1, 2], "window_end": [60, 120, 60], "n": [1, 2, 1], "total": [5, 9, 7]})


def test_a_right_result_passes_in_any_order_and_with_the_closing_row(works):
    more = pa.table({"key": [-1], "window_end": [600], "n": [1], "total": [0]})
    works.check("one", works.Work("sums", 60, 60), pa.concat_tables([more, ANSWER.take([2, 0, 1])]), ANSWER)


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        (ANSWER.slice(1), "2 rows, expected 3"),
        (pa.concat_tables([ANSWER, ANSWER.slice(0, 1)]), "4 rows, expected 3"),
        (ANSWER.set_column(3, "total", pa.array([5, 9, 8])), "row 2.*'total': 8.*expected 7 in total"),
        (ANSWER.set_column(1, "window_end", pa.array([60, 120, 61])), "expected 60 in window_end"),
    ],
)
def test_a_planted_difference_stops(works, planted, message):
    with pytest.raises(SystemExit, match=f"one, sums: .*{message}"):
        works.check("one", works.Work("sums", 60, 60), planted, ANSWER)


@pytest.mark.parametrize(
    ("median", "different", "right"),
    [
        (4, 100, True),
        (4.5, 80, True),
        (5, 122, True),
        (3.9, 100, False),
        (5.1, 100, False),
        (4, 77, False),
        (4, 123, False),
    ],
)
def test_approximate_answers_may_be_off_by_what_they_promise(works, median, different, right):
    work = works.Work("holistic", 60, 60, aggregates="holistic")
    answer = {"key": [1], "window_end": [60], "n": [200]}
    got = pa.table({**answer, "median": [median], "different": [different]})
    answer = pa.table({**answer, "lower": [4], "upper": [5], "different": [100]})
    if right:
        works.check("one", work, got, answer)
    else:
        with pytest.raises(SystemExit, match="one, holistic: "):
            works.check("one", work, got, answer)


@pytest.mark.parametrize(("off", "right"), [(6, True), (9, False)])
def test_many_approximate_answers_are_as_near_as_they_promise(works, off, right):
    work, n = works.Work("holistic", 60, 60, aggregates="holistic"), 2000
    answer = {"key": list(range(n)), "window_end": [60] * n, "n": [200] * n}
    got = pa.table({**answer, "median": [4] * n, "different": [100 + off * (-1) ** key for key in range(n)]})
    answer = pa.table({**answer, "lower": [4] * n, "upper": [5] * n, "different": [100] * n})
    if right:
        works.check("one", work, got, answer)
    else:
        with pytest.raises(SystemExit, match=r"deviate by 0\.090"):
            works.check("one", work, got, answer)


def test_the_feed(benchmark_module):
    data = benchmark_module("data")
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
