"""A distribution of ages that can be added up, against the ages themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.journal import through_json

from upstream.core.feedback.ages import Ages

ages = st.lists(st.integers(-5, 10**11), max_size=60)


@given(parts=st.lists(ages, max_size=5), share=st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]))
def test_figures_of_several_parts_are_those_of_all_ages(parts, share):
    whole = Ages.together(Ages.from_json(through_json(Ages.of(np.array(p, dtype=np.int64)).to_json())) for p in parts)
    every = np.sort(np.maximum(np.array([age for p in parts for age in p], dtype=np.int64), 0))
    assert whole.count == len(every)
    if len(every) == 0:
        assert whole.figures() is None
        return
    found = whole.figures()
    assert found.mean == pytest.approx(every.mean() / 1e6, abs=1e-9)
    assert found.max == every.max() / 1e6
    exact = every[max(int(np.ceil(share * len(every))), 1) - 1] / 1e6
    assert whole.quantile_s(share) == pytest.approx(exact, rel=0.046, abs=0.001)


@given(rows=st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 9)), min_size=1, max_size=30))
def test_counts_stand_for_repeated_ages(rows):
    age, count = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    one, other = Ages.of(age, count), Ages.of(np.repeat(age, count))
    assert (one.count, one.bins, one.max_s) == (other.count, other.bins, other.max_s)
    assert one.total_s == pytest.approx(other.total_s)
