"""Which windows give a result: what a user writes, and what a plan has."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.windows.emission import (
    MOST_PAIRS,
    NONE,
    Emission,
    emission_for,
    emit_for,
    expand,
    latest_fully_arrived,
    latest_per_key,
    latest_started,
    ranks,
    written,
)
from upstream.operators.windows.kinds import LandmarkWindows, SlideByTupleWindows, SlidingWindows


@pytest.mark.parametrize(
    ("results", "early", "emit", "text"),
    [
        ("latest", False, "lazy", "emit='latest'"),
        ("latest", True, "early", "emit=us.Emission('latest', early=True)"),
        ("all", False, "all", "emit='all'"),
        ("all", True, "all+early", "emit=us.Emission('all', early=True)"),
        ("eager", False, "eager", "emit='eager'"),
    ],
)
def test_each_emission_has_one_spelling(results, early, emit, text):
    assert emit_for(Emission(results, early=early)) == emit
    assert written(emit) == text


def test_a_step_has_a_default_and_takes_a_word_or_an_emission():
    assert emission_for("join", "latest", ("all", "latest")) == Emission("latest")
    assert emission_for("join", Emission(early=True), ("all", "latest")) == Emission("all", early=True)
    slow = Emission(flush="slow", flush_rows=5)
    assert emission_for("window", slow, ("latest", "all"), flush=True) == dataclasses.replace(slow, results="latest")
    for emit, words in (
        ("eager", r"join\(…, emit='eager'\).*'all', 'latest', or us.Emission"),
        (Emission("eager"), r"emit=Emission\(results='eager'"),
        (None, "emit=None"),
        (slow, "flush='slow'"),
    ):
        with pytest.raises(OptionError, match=words):
            emission_for("join", emit, ("all", "latest"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"results": "some"}, "results='some'"),
        ({"early": "yes"}, "early='yes'"),
        ({"results": "eager", "early": True}, "'eager', early=True"),
        ({"flush": 5}, "flush=5"),
        ({"flush_windows": "1"}, "flush_windows='1'"),
    ],
)
def test_what_is_no_emission_is_refused(given, words):
    with pytest.raises(OptionError, match=words):
        Emission(**given)


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(-3, 6)), max_size=20))
def test_each_row_is_paired_with_each_of_its_windows(ranges):
    first = np.array([low for low, _ in ranges], dtype=np.int64)
    last = first + np.array([more for _, more in ranges], dtype=np.int64)
    row, wid = expand(first, last)
    wanted = [(i, w) for i in range(len(ranges)) for w in range(first[i], last[i] + 1)]
    assert list(zip(row.tolist(), wid.tolist(), strict=True)) == wanted


def test_pairs_at_the_ends_of_64_bits():
    first = np.array([HIGHEST - 1, LOWEST, 1 << 62, HIGHEST])
    last = np.array([HIGHEST, LOWEST + 1, (1 << 62) + 2, LOWEST])
    row, wid = expand(first, last)
    assert row.tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert wid.tolist() == [HIGHEST - 1, HIGHEST, LOWEST, LOWEST + 1, 1 << 62, (1 << 62) + 1, (1 << 62) + 2]


@pytest.mark.parametrize("last", [MOST_PAIRS, HIGHEST - 1])
def test_more_pairs_than_memory_are_refused(last):
    with pytest.raises(OptionError, match="use panes"):
        expand(np.array([0, LOWEST]), np.array([last, last]))


batches = st.lists(st.lists(st.integers(0, 4), max_size=10), max_size=5)


@given(batches, st.integers(1, 5), st.integers(1, 5))
def test_windows_partitioned_by_rows(batches, range_, slide):
    """However the stream is split into batches: rows (id + 1)·s − r to (id + 1)·s of each partition."""
    windows = SlidingWindows(range_, slide, attribute="rank")
    counted, found, number = np.zeros(5, dtype=np.int64), {}, 0
    for batch in batches:
        codes = np.array(batch, dtype=np.int64)
        rank, counted = ranks(codes, counted)
        row, wid = expand(*windows.wids(rank))
        for i, w in zip(row.tolist(), wid.tolist(), strict=True):
            found.setdefault((batch[i], w), []).append(number + i)
        number += len(batch)
    stream = [code for batch in batches for code in batch]
    wanted = {}
    for code in set(stream):
        own = [i for i, other in enumerate(stream) if other == code]
        for w in range(len(own) + range_):
            if inside := own[max((w + 1) * slide - range_, 0) : max((w + 1) * slide, 0)]:
                wanted[code, w] = inside
    assert found == wanted
    # The counters are the bounds of the partitions: no complete window gets another row.
    complete = windows.last_complete(counted)
    for (code, w), inside in wanted.items():
        full = sum(other == code for other in stream) >= (w + 1) * slide
        assert (w <= complete[code]) == full
        assert len(inside) <= range_


SLIDING = SlidingWindows(range=4, slide=2)  # window w is [2 w - 2, 2 w + 2)
GAPS = SlidingWindows(range=1, slide=3)  # window w is [3 w + 2, 3 w + 3)
X = np.array([0, 1, 2, 5])

shapes = st.builds(SlidingWindows, st.integers(1, 9), st.integers(1, 9), st.integers(-5, 5))


def test_the_window_that_began_last():
    assert latest_started(SLIDING, X).tolist() == [1, 1, 2, 3]
    assert latest_started(GAPS, X).tolist() == [NONE, NONE, 0, 1]
    assert latest_started(SlideByTupleWindows(3), X).tolist() == [2, 3, 4, 7]
    with pytest.raises(OptionError, match="which all begin with the stream"):
        latest_started(LandmarkWindows(10), X)


def test_the_last_window_that_has_arrived():
    assert latest_fully_arrived(SLIDING, X, 1).tolist() == [1, 1, 1, NONE]
    assert latest_fully_arrived(SLIDING, X, np.array([0, -1, 5, 2])).tolist() == [0, NONE, 2, 2]
    assert latest_fully_arrived(LandmarkWindows(2), X, 1).tolist() == [1, 1, 1, NONE]
    assert latest_fully_arrived(GAPS, X, 9).tolist() == [NONE, NONE, 0, 1]


def test_the_greatest_of_each_key():
    found = latest_per_key(np.array([3, -7, 5, 4]), np.array([0, 2, 0, 0]), 4)
    assert (found.dtype, found.tolist()) == (np.dtype(np.int64), [5, NONE, -7, NONE])


@given(shapes, st.lists(st.tuples(st.integers(0, 3), st.integers(-30, 60)), max_size=30), st.integers(-30, 80))
def test_most_recent_windows_are_those_of_the_definition(windows, rows, bound):
    codes = np.array([key for key, _ in rows], dtype=np.int64)
    x = np.array([value for _, value in rows], dtype=np.int64)
    ids = range(-80, 140)
    started = latest_per_key(latest_started(windows, x), codes, 4)
    arrived = latest_per_key(latest_fully_arrived(windows, x, windows.last_complete(bound)), codes, 4)
    for key in range(4):
        ends = {w: (int(low), int(high)) for w, low, high in zip(ids, *windows.extent(np.array(ids)), strict=True)}
        mine = [value for each, value in rows if each == key]
        held = [w for w, (low, high) in ends.items() if any(low <= value < high for value in mine)]
        complete = [w for w in held if ends[w][1] <= bound]
        assert started[key] == max(held, default=NONE)
        assert arrived[key] == max(complete, default=NONE)
