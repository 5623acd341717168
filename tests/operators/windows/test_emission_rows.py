"""Ranks, and rows paired with their windows, against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError
from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.windows.emission import MOST_PAIRS, expand, ranks
from upstream.operators.windows.kinds import LandmarkWindows, SlidingWindows


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


def test_windows_without_an_end_need_one():
    first, last = LandmarkWindows(slide=10).wids(np.array([5, 15, 45]))
    with pytest.raises(OptionError, match="give the last window that is wanted"):
        expand(first, last)
    row, wid = expand(first, last, through=2)
    assert list(zip(row.tolist(), wid.tolist(), strict=True)) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)]


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
